"""Named points at which a test may kill the process; inert unless RL_TRAINING_FAULT names one.

`RL_TRAINING_FAULT=save:before-rename` kills at the first visit of that point, `save:before-rename@3` at the third.
"""

import os
import signal

VARIABLE = "RL_TRAINING_FAULT"

_visits: dict[str, int] = {}


def fault_point(name: str) -> None:
    """Kill this process with SIGKILL if the environment variable names this point; otherwise do nothing."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    point, _, visit = wanted.partition("@")
    if point == name:
        _visits[name] = _visits.get(name, 0) + 1
        if _visits[name] == int(visit or 1):
            os.kill(os.getpid(), signal.SIGKILL)
