"""What a policy does on rows it never saw: all that is known of it without an environment."""
