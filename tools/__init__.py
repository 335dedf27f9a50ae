"""What maintainers run by hand: files that are written from the package's own tables."""
