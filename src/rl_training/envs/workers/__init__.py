"""Worker processes that step environments."""
