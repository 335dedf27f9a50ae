"""The command line: parsing and printing only."""

from rl_training.cli.main import app, run
from rl_training.cli.training import parse_seeds

__all__ = ["app", "parse_seeds", "run"]
