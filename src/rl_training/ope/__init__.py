"""What a policy is worth, judged by logged data alone, and which of several to try."""
