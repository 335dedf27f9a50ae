"""The command line: parsing and printing only."""

from rl_training.cli.main import app, parse_seeds, run

__all__ = ["app", "parse_seeds", "run"]
