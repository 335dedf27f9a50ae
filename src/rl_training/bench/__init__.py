"""Speed of training runs, compared with the ceilings of the machine and with other libraries."""
