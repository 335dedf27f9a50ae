"""`python -m rl_training` and the `rl-training` command."""

import sys


def main() -> None:
    """Run the command line."""
    from rl_training.cli import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
