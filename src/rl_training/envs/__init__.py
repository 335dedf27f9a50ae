"""Environments, and whatever steps them."""
