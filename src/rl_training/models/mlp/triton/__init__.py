"""Triton kernels and the functions that launch them; imported only where a GPU runs compiled steps."""
