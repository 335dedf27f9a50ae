"""Where the log leaves a command at an end of its range, as the observations tell, and whether a policy does so there.

A switched-off pump, a closed valve: the log has exactly the lowest value there, and a policy that commands a little more
never switches off. Only rows count in which a regression on the observations is sure that the log is at the end, so that
commands that reach their bounds by chance, noise or an operator's habit show nothing.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

AT_BOUND = 0.99  # of the way from the middle of a range to its end: there and beyond, an action counts as at a bound
_SURE = 0.9  # what a regression says of a row in which the log is at an end, from which on it is sure
_OFTEN = 0.05  # of the rows, at an end that is looked at
FEWEST = 20  # rows that show what a policy does

Numbers = NDArray[np.float64]
Ends = (("low", -1.0), ("high", 1.0))


def at_ends(actions: Numbers) -> Numbers:
    """Return 1 where an action (rows, columns) is at the low end, then at the high end, (rows, 2 * columns); else 0."""
    return np.concatenate([actions * end >= AT_BOUND for _, end in Ends], axis=1).astype(np.float64)


@dataclass(frozen=True, eq=False)
class Rest:
    """Rows in which the observations tell that an action is at one end of its range in the log."""

    side: str  # low or high
    label: str  # of the column
    column: int
    end: float
    rows: NDArray[np.intp]
    share: float  # of all rows
    logged: float  # how far the log is from that end there, on average, as a share of the range

    def figures(self, actions: Numbers) -> dict[str, float]:
        """Return how far actions are from the end in these rows, as a share of the range, and how often they are there."""
        own = actions[self.rows, self.column] * self.end
        found = {"rows": self.share, "data": self.logged, "distance": _from_end(own), "reached": (own >= AT_BOUND).mean()}
        return {f"{self.side}_{name}/{self.label}": float(value) for name, value in found.items()}


def rests(actions: Numbers, labels: list[str], predicted: Callable[[Callable[[Numbers], Numbers]], Numbers]) -> list[Rest]:
    """Return where logged actions (rows, columns) rest; `predicted` is what a regression says of a function of actions."""
    often = at_ends(actions).mean(axis=0) >= _OFTEN
    if not often.any() or len(actions) < FEWEST:
        return []
    sure, found = predicted(at_ends) >= _SURE, []
    for number in np.flatnonzero(often):
        (side, end), column = Ends[number // len(labels)], int(number % len(labels))
        rows = np.flatnonzero(sure[:, number])
        if len(rows) >= max(FEWEST, _OFTEN * len(actions)):
            away = _from_end(actions[rows, column] * end)
            found.append(Rest(side, labels[column], column, end, rows, len(rows) / len(actions), away))
    return found


def _from_end(own: Numbers) -> float:
    """The mean distance of actions from the end at 1, as a share of the range."""
    return float(np.clip(1.0 - own, 0.0, 2.0).mean() / 2.0)
