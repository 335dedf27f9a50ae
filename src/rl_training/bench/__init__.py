"""Speed: what a training run executes, timed beside the ceilings of the machine and beside other libraries."""
