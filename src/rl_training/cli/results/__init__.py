"""Commands that show what runs have reached."""
