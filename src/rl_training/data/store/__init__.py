"""Datasets on disk: a hashed directory that is mapped into memory."""
