"""The scale of what an environment returns, by random steps before a run that learns in it alone."""
