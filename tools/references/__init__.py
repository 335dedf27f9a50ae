"""Scripts that run the code of other projects and record its numbers for `tests/references`."""
