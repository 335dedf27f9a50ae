"""Off-policy evaluation: what policies would earn, from logged data alone, and how far that can be trusted."""
