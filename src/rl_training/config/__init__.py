"""The schema of every setting, free of torch."""
