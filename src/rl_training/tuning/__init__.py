"""Tuning: a search over knobs whose trials are trained side by side, as populations."""
