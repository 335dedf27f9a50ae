"""The phases of a run, which count in gradient steps on a dataset or in environment steps."""
