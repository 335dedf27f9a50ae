"""What an evaluation of a policy says."""
