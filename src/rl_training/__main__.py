"""`python -m rl_training` and the `rl-training` command."""

import os
import sys


def main() -> None:
    """Run the command line."""
    # read when torch starts: threads that wait for work sleep, since spinning takes cores from whoever else needs them
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from rl_training.runtime.signals import interrupt_on_stop_signals, interrupted_exit_code

    try:
        interrupt_on_stop_signals()
        from rl_training.cli import run

        code = run(sys.argv[1:])
        sys.exit(interrupted_exit_code() if code == 130 else code)
    except KeyboardInterrupt:
        sys.exit(interrupted_exit_code())


if __name__ == "__main__":
    main()
