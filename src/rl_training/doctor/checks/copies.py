"""Checks of observations that are copies: of each other, or of the reward of their row."""

from collections.abc import Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.doctor.evidence import CheckInput
from rl_training.doctor.findings import Finding

_FEWEST_MOVES = 20  # of a column, below which two may be equal by chance
_LOOK = 200  # rows that hardly two different columns are equal in


def check_duplicate_columns(inputs: CheckInput) -> Iterator[Finding]:
    """Observations that are equal in every row, which say nothing twice and are weighed twice."""
    values = inputs.sample("observations")
    for column, first in _equal_columns(values):
        what, other = (inputs.named("observations", [number]) for number in (column, first))
        evidence = f"{what} is {other} again, in {inputs.every_row}"
        fix = f"leave one of them out {inputs.leave_out}: it tells a policy nothing, and must be there at work, too"
        yield Finding("duplicate-column", "warning", evidence, fix)


def check_rewards_in_observations(inputs: CheckInput) -> Iterator[Finding]:
    """Observations that are the reward of their row, which a policy knows only once it has acted."""
    values, rewards = inputs.sample("observations"), inputs.sample("rewards")
    look = slice(None, None, max(1, len(rewards) // _LOOK))
    alike = np.flatnonzero((values[look] == rewards[look]).all(axis=0))
    for column in alike[(values[:, alike] == rewards).all(axis=0)]:
        if _moves(rewards[:, 0]):
            evidence = f"{inputs.named('observations', [column])} is the reward of its row, in {inputs.every_row}"
            before = "use that of the row before: `lag(NAME, 1)`" if inputs.mapped else "store that of the row before"
            known = "unless it is read before the command is given, a policy cannot know it"
            yield Finding(
                "reward-in-observations", "warning", evidence, f"{known}: leave it out {inputs.leave_out}, or {before}"
            )


def _equal_columns(values: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Yield each column that equals an earlier one in every row, and that one."""
    look = np.ascontiguousarray(values[:: max(1, len(values) // _LOOK)].T)
    seen: dict[bytes, list[int]] = {}
    for column, part in enumerate(look):
        earlier = seen.setdefault(part.tobytes(), [])
        first = next((other for other in earlier if np.array_equal(values[:, other], values[:, column])), None)
        if first is None:
            earlier.append(column)
        elif _moves(values[:, column]):
            yield column, first


def _moves(values: NDArray[Any]) -> bool:
    return int(np.count_nonzero(np.diff(values))) >= _FEWEST_MOVES
