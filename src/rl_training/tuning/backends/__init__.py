"""Where the jobs of a study run: one file per way of running them."""
