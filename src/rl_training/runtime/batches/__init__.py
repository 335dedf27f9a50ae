"""Where the rows of gradient steps come from."""
