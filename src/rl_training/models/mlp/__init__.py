"""Stacked perceptrons: one mathematics, several ways to run it."""
