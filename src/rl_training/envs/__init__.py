"""Environments: collection, evaluation, recipes and reference scores."""
