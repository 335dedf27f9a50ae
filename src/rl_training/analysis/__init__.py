"""What runs have written, read back: their metrics, and what may be concluded from them. Free of torch."""
