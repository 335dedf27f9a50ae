"""Named points at which a test may kill the process or signal it; inert unless RL_TRAINING_FAULT names one.

`RL_TRAINING_FAULT=save:before-rename` kills at the first visit of that point, `save:before-rename@3` at the third,
`any@40` at the fortieth visit of any point; `evaluation:begin@2=SIGTERM` sends that signal instead.
"""

import os
import signal

VARIABLE = "RL_TRAINING_FAULT"
_ANY = "any"

_visits: dict[str, int] = {}


def fault_point(name: str) -> None:
    """Kill or signal this process if the environment variable names this point and visit; otherwise do nothing."""
    wanted = os.environ.get(VARIABLE)
    if not wanted:
        return
    place, _, sent = wanted.partition("=")
    point, _, visit = place.partition("@")
    if point in (name, _ANY):
        _visits[point] = _visits.get(point, 0) + 1
        if _visits[point] == int(visit or 1):
            os.kill(os.getpid(), signal.Signals[sent or "SIGKILL"])
