"""`python -m rl_training` and the `rl-training` command."""

import os
import sys


def main() -> None:
    """Run the command line."""
    # read when torch starts: threads that wait for work sleep, since spinning takes cores from whoever else needs them
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    try:
        from rl_training.cli import run

        sys.exit(run(sys.argv[1:]))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
