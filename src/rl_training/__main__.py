"""`python -m rl_training` and the `rl-training` command."""

import sys


def main() -> None:
    """Run the command line."""
    try:
        from rl_training.cli import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
