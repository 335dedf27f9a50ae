"""Evaluations at the boundaries of a run: waited for, or beside training."""
