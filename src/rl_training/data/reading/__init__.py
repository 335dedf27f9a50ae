"""Files of logged data: how each format is recognised and read."""
