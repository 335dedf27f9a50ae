"""Runs while they go on: what is new in their directories, in a terminal and on a page."""
