"""That an export computes what `predict` computes, and how long it takes."""

import time
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from rl_training.deploy.program import Floats, Program
from rl_training.errors import ExportError

INSIDE = 1000  # rows in the range of the data, and as many beyond it
ROWS = 2 * INSIDE
TOLERANCE = 1e-5  # of the range of each action
_BEYOND = 10.0  # the others are up to this many times as far out
_TIE = 1e-4  # values of two candidates that differ by less, relatively, are one

Runner = Callable[[Floats, Floats], tuple[Floats, NDArray[np.int64] | None]]
"""An export at work: observations (rows, n) and last actions (rows, m) to actions and the columns outside."""


@dataclass(frozen=True)
class Check:
    """What was compared, and how large the largest difference was."""

    rows: int
    largest_difference: float  # as a share of the action's range
    ties: int  # rows in which another candidate with the same value was taken


def probes(program: Program, seen: tuple[Floats, Floats] | None = None) -> tuple[Floats, Floats]:
    """Return observations inside the data, then far beyond it with some not finite, and last actions, some unknown.

    A column that never changes in the data does so beyond it. `seen` is the range of the data; without it, two deviations.
    """
    safety, draw = program.safety, np.random.Generator(np.random.Philox(0))
    spread = 2.0 * np.where(np.isfinite(program.std), program.std, 0.0).astype(np.float64)
    low, high = (end.astype(np.float64) for end in seen or safety.seen or (program.mean - spread, program.mean + spread))
    centre, reach = (low + high) / 2.0, (high - low) / 2.0
    beyond = _BEYOND * np.where(reach > 0.0, reach, np.maximum(1.0, np.abs(centre)))
    rows = [centre + far * draw.uniform(-1.0, 1.0, (INSIDE, len(centre))) for far in (reach, beyond)]
    observations = np.clip(np.concatenate(rows), -safety.largest, safety.largest).astype(np.float32)
    last = draw.uniform(safety.low, safety.high, (ROWS, len(safety.low))).astype(np.float32)
    for first, value in ((0, np.nan), (1, np.inf), (2, -np.inf)):
        chosen = np.arange(INSIDE + first, ROWS, 50)
        observations[chosen, draw.integers(len(centre), size=len(chosen))] = value
    last[3::20], last[4::100] = np.nan, np.inf
    return observations, last


def compare(
    program: Program,
    run: Runner,
    predict: Callable[[Floats], Floats],
    value: Callable[[Floats, Floats], np.float64 | NDArray[np.float64]],
    seen: tuple[Floats, Floats] | None = None,
) -> Check:
    """Return how far an export is from `predict` and the rules of `Safety`, or an ExportError if that is too far.

    Of candidates with the same value, `value` decides, either may be taken.
    """
    safety = program.safety
    observations, last = probes(program, seen)
    finite = safety.usable(observations)
    policy = np.full((ROWS, len(safety.low)), np.nan, dtype=np.float32)
    policy[finite] = predict(observations[finite])
    wanted = safety.applied(policy, observations, last)
    got, outside = run(observations, last)
    span = np.maximum(program.half_range * 2.0, np.finfo(np.float32).tiny)
    apart = np.where(np.isnan(wanted) & np.isnan(got), 0.0, np.abs(got - wanted) / span).max(axis=1)
    apart = np.where(np.isnan(apart), np.inf, apart)
    wrong = np.flatnonzero(apart > TOLERANCE)
    ties = 0
    if program.candidates is not None and len(wrong) and finite[wrong].all():
        own, other = (np.asarray(value(observations[wrong], actions[wrong])) for actions in (policy, got))
        same = np.abs(own - other) <= _TIE * np.maximum(1.0, np.abs(own))
        apart[wrong[same]], ties = 0.0, int(same.sum())
    worst = int(apart.argmax())
    if apart[worst] > TOLERANCE:
        raise ExportError(
            f"the export gives {got[worst].tolist()} where the policy gives {wanted[worst].tolist()}, for the observation "
            f"{observations[worst].tolist()}; nothing was written"
        )
    expected = safety.outside(observations)
    if expected is not None and (outside is None or not np.array_equal(expected, outside)):
        raise ExportError("the export counts other columns as outside the data; nothing was written")
    return Check(ROWS, float(apart.max()), ties)


def latency(run: Runner, program: Program, calls: int = 300) -> dict[str, float]:
    """Return the median and the 99 % quantile of the time of one observation, in microseconds, with one call at a time."""
    observations, last = probes(program)
    taken = []
    for call in range(calls + 20):
        row = slice(call % ROWS, call % ROWS + 1)
        begin = time.perf_counter()
        run(observations[row], last[row])
        taken.append(1e6 * (time.perf_counter() - begin))
    median, slow = np.quantile(taken[20:], (0.5, 0.99))
    return {"median_us": round(float(median), 2), "p99_us": round(float(slow), 2)}
