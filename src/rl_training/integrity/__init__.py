"""Proofs for the user: that the files of a run are whole, and that a resume is exact on this machine."""
