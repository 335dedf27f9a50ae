"""Readers of HDF5 files, of the layouts that libraries write."""
