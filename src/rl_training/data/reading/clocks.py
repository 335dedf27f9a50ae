"""Clocks in a log: columns that move on by one step in nearly every row, and the rows after which they skip samples."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

_FEWEST = 50  # steps, below which none is usual
_USUAL = 0.9  # share of its steps that a clock takes as usual, and of the others that are skips or turns
_CLOSE = 0.1  # of a usual step, by which others may differ: clocks are rounded
_DAYS = (24.0, 1440.0, 86_400.0)  # hours, minutes and seconds of a day, at which a clock turns
_MOST_OF = 0.9  # a day, that a clock has shown before it turns
_ROUND = 0.01  # of their radius, by which the sine and the cosine of a clock may leave their circle
_FEW_ROWS = 200  # that tell whether two columns lie on a circle
_MOST_COLUMNS = 256

Numbers = NDArray[np.float64]
Flags = NDArray[np.bool_]


@dataclass(frozen=True)
class Skips:
    """The transitions in which a clock moves on by more than one sample."""

    columns: tuple[int, ...]  # of the observations: a clock, or the sine and the cosine of one
    flags: Flags  # (transitions,)


def skipped_samples(here: Numbers, after: Numbers) -> Flags:
    """Return the transitions in which a clock skips samples; none if the values are not those of a clock.

    A clock may turn: it falls by its period and goes on. The period is that of a day where the values suggest it, since
    rows that are missing at every midnight leave no whole turn; otherwise it is that of the largest fall.
    """
    steps = after - here
    usual = float(np.median(steps)) if len(steps) >= _FEWEST else 0.0
    if usual == 0.0 or not np.isfinite(usual):
        return np.zeros(len(steps), dtype=bool)
    samples = steps / usual
    turns = samples < 0.0
    if turns.any():
        samples = np.where(turns, samples + _period(here, usual, 1.0 - float(samples.min())), samples)
    return _skips(samples, np.abs(steps / usual - 1.0) <= _CLOSE)


def _period(here: Numbers, usual: float, fallen: float) -> float:
    """The samples of one turn, given how far the clock falls at most."""
    found = [day / abs(usual) for day in _DAYS if _MOST_OF * day <= fallen * abs(usual) <= 1.001 * day and here.min() >= 0.0]
    return found[0] if found else fallen


def _skips(samples: Numbers, usual: Flags) -> Flags:
    """Where a clock moves on by several whole samples; nothing where other steps than that are common."""
    whole = np.abs(samples - np.round(samples)) <= 2.0 * _CLOSE
    found = ~usual & whole & (np.round(samples) >= 2.0)
    known = found | (whole & (np.round(samples) == 1.0))
    regular = usual.mean() >= _USUAL and known[~usual].sum() >= _USUAL * (~usual).sum()
    return found if regular else np.zeros_like(found)


def clock_skips(here: NDArray[Any], after: NDArray[Any]) -> Iterator[Skips]:
    """Yield the clocks among the columns of observations (transitions, columns) that skip samples somewhere."""
    if here.ndim != 2 or not len(here):
        return
    with np.errstate(invalid="ignore", divide="ignore", over="ignore"):
        for column in range(min(here.shape[1], _MOST_COLUMNS)):
            flags = skipped_samples(here[:, column].astype(np.float64), after[:, column].astype(np.float64))
            if flags.any():
                yield Skips((column,), flags)
        for pair in _circles(here):
            turned = (_angles(after, pair) - _angles(here, pair) + np.pi) % (2.0 * np.pi) - np.pi
            usual = float(np.median(turned))
            if usual == 0.0 or len(turned) < _FEWEST:
                continue
            samples = (turned / usual) % (2.0 * np.pi / abs(usual))
            flags = _skips(samples, np.abs(samples - 1.0) <= _CLOSE)
            if flags.any():
                yield Skips(pair, flags)


def _circles(values: NDArray[Any]) -> Iterator[tuple[int, int]]:
    """Pairs of columns whose squares have the same sum in every row."""
    rows = np.linspace(0, len(values) - 1, min(len(values), _FEW_ROWS)).astype(np.intp)
    squares = np.square(values[rows, :_MOST_COLUMNS].astype(np.float64))
    moving = np.ptp(squares, axis=0) > 0.0
    for first in np.flatnonzero(moving):
        sums = squares[:, first : first + 1] + squares[:, first + 1 :]
        level = np.ptp(sums, axis=0) <= 2.0 * _ROUND * sums.mean(axis=0)
        yield from ((int(first), int(first + 1 + other)) for other in np.flatnonzero(level & moving[first + 1 :]))


def _angles(values: NDArray[Any], pair: tuple[int, int]) -> Numbers:
    return np.arctan2(values[:, pair[0]].astype(np.float64), values[:, pair[1]].astype(np.float64))
