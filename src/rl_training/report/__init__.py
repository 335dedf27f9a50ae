"""Runs as pages, tables and pictures for people. Reads what runs have written, and never writes into their directories."""
