"""Off-policy evaluation against the truth: how well estimates from logged data order policies that were really tried."""
