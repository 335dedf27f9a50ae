"""What `rl-training ope` kept in a run directory, on a report."""
