"""What a run leaves on disk to go on from."""
