"""A trained policy as files that run without this package."""
