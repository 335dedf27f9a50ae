"""Triton kernels and their launches; loaded only where a GPU runs compiled steps."""
