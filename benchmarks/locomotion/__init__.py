"""Locomotion data by D4RL's recipe, and what algorithms reach on it: ours, CORL's and d3rlpy's. See README.md."""
