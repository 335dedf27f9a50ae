"""What a run saves to disk to resume from."""
