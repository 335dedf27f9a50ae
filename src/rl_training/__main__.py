"""`python -m rl_training` and the `rl-training` command."""

import os
import sys


def main() -> None:
    """Run the command line."""
    # read when torch starts: threads that wait for work sleep, since spinning takes cores from whoever else needs them
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    from rl_training.runtime.signals import exit_code, interrupt_on_stop_signals

    try:
        interrupt_on_stop_signals()
        from rl_training.cli import run

        code = run(sys.argv[1:])
    except KeyboardInterrupt:
        code = 130
    except Exception:
        if exit_code(1) == 1:
            raise
        code = 1
    sys.exit(exit_code(code))


if __name__ == "__main__":
    main()
