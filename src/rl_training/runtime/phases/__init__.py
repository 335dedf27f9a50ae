"""What a position of a run is: gradient steps on a dataset, or environment steps."""
