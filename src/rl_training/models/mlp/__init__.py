"""Stacked perceptrons: one definition, several ways to run it."""
