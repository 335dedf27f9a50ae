"""Is a column of some files in another unit than in the others? Decided from the data alone.

Files of honest logs differ: seasons, set-points, loads, starts. Another unit differs in a way of its own: the files fall into
two groups that are far apart, and one conversion makes the level, the spread and the steps from row to row of the one group
those of the other. A plant that runs at another load changes most columns by ratios that no unit has; so where other columns
of the same files are as far apart, and no conversion explains them, nothing is said.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from math import log, pi

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.float64]
Rows = NDArray[np.intp]
_FEWEST_ROWS = 10  # of a file, below which it says nothing
_FEWEST_OF_ALL = 50  # rows of a group
_CLOSER = 8.0  # times, that a conversion with an offset brings the groups to each other
_GAP = 0.5  # of a factor, in logarithms, that lies between groups; and of that gap, which lies within one
_ALIKE, _PART = log(1.5), 0.15  # ratio of sizes, spreads or steps in one unit; and this part of a factor, in logarithms
_OFFSET = 0.15  # of the larger numbers, below which an offset tells little
_ALIKE_MOVED = 0.3  # the same where numbers are also moved
_ROUGHLY = 1 / 3  # of a factor, in logarithms, by which the size of a file may differ that is unlike the others otherwise
_EXACT = 0.01  # the same for a column that is held for so long that its steps say nothing


@dataclass(frozen=True)
class Conversion:
    """The larger number is `factor` times the smaller, and `offset` more."""

    factor: float
    units: str
    offset: float = 0.0
    rival: "Conversion | None" = None  # so near to it that a log cannot tell them apart

    def back(self, values: Numbers) -> Numbers:
        """Return larger numbers as the smaller ones that they stand for."""
        return (values - self.offset) / self.factor

    def __str__(self) -> str:
        times = f"{self.factor:.5g} times " if self.factor != 1.0 else ""
        rival = f"; or {self.rival.factor:.5g} times, as of {self.rival.units}" if self.rival else ""
        return f"{times}the smaller{f' plus {self.offset:g}' if self.offset else ''}, as of {self.units}{rival}"

    def undone(self, *, larger: bool) -> str:
        """Return how the larger, or the smaller, numbers of a column become like the others."""
        if self.rival:
            both = (replace(self, rival=None), self.rival)
            return ", ".join(f"{one.undone(larger=larger)} for {one.units}" for one in both)
        if self.factor == 1.0:
            return f"`NAME {'-' if larger else '+'} {self.offset:g}`"
        if larger:
            return f"`{f'(NAME - {self.offset:g})' if self.offset else 'NAME'} / {self.factor:.8g}`"
        return f"`NAME * {self.factor:.8g}{f' + {self.offset:g}' if self.offset else ''}`"


CONVERSIONS = (
    Conversion(1.8, "°F and °C", 32.0),
    Conversion(1.0, "K and °C", 273.15),
    Conversion(3.6, "km/h and m/s"),
    Conversion(10.0, "mm and cm"),
    Conversion(14.503774, "psi and bar"),
    Conversion(1000.0 / 60.0, "l/min and m3/h"),
    Conversion(24.0, "a day and an hour"),
    Conversion(60.0, "an hour and a minute", rival=Conversion(180.0 / pi, "degrees and radians")),
    Conversion(100.0, "percent and a fraction, or ct and EUR"),
    Conversion(1000.0, "mbar and bar, or W and kW"),
    Conversion(3600.0, "an hour and a second"),
    Conversion(1e5, "Pa and bar"),
    Conversion(1e6, "Pa and MPa"),
)
_ANGLE = Conversion(180.0 / pi, "degrees and radians", rival=Conversion(60.0, "an hour and a minute"))
_TURN = 360.0  # degrees
_SMALLEST = min(conversion.factor for conversion in CONVERSIONS if not conversion.offset)


@dataclass(frozen=True)
class Profiles:
    """What the columns of every file are like, (files, columns): their middle 90 %, and how far they move in a row."""

    rows: Rows  # (files,)
    low: Numbers
    middle: Numbers
    high: Numbers
    steps: Numbers

    @property
    def spread(self) -> Numbers:
        """The width of the middle 90 %."""
        return self.high - self.low

    @property
    def size(self) -> Numbers:
        """How far from 0 the numbers go."""
        return np.maximum(np.abs(self.low), np.abs(self.high))


@dataclass(frozen=True)
class OtherUnit:
    """A column that some files have in another unit."""

    column: int
    files: Rows  # those that are fewer
    others: Rows
    conversion: Conversion
    larger: bool  # whether `files` have the larger numbers


def profiles_of(files: Iterable[tuple[Numbers, Numbers]]) -> Profiles:
    """Return what the columns of each file are like, given rows of it and how far columns move from one row to the next."""
    counts, found = [], []
    for values, moves in files:
        counts.append(len(values))
        low, middle, high = np.quantile(values, (0.05, 0.5, 0.95), axis=0)
        steps = np.minimum(moves, np.quantile(moves, 0.95, axis=0)).mean(axis=0) if len(moves) else np.zeros_like(low)
        found.append((low, middle, high, steps))
    return Profiles(np.array(counts, dtype=np.intp), *(np.stack(part) for part in zip(*found, strict=True)))


def other_units(profiles: Profiles) -> Iterator[OtherUnit]:
    """Yield the columns that some files have in another unit than most."""
    found = [unit for column in range(profiles.low.shape[1]) for unit in _of_column(profiles, column)]
    for unit in found:
        same = {other.column for other in found if np.array_equal(other.files, unit.files)}
        if len(_apart(profiles, unit) - same) <= len(same):
            yield unit


def _apart(profiles: Profiles, unit: OtherUnit) -> set[int]:
    """The columns whose numbers in these files are all outside those in the others."""
    low, high = profiles.low, profiles.high
    above = low[unit.files].min(axis=0) > high[unit.others].max(axis=0)
    below = high[unit.files].max(axis=0) < low[unit.others].min(axis=0)
    return set(np.flatnonzero(above | below).tolist())


def _of_column(profiles: Profiles, column: int) -> Iterator[OtherUnit]:
    """The files that have a column in another unit, a group at a time."""
    telling = np.flatnonzero((profiles.rows >= _FEWEST_ROWS) & (profiles.spread[:, column] > 0.0))
    for scaled in (True, False):
        level = profiles.size if scaled else profiles.middle
        groups = _by_size(profiles, telling, column) if scaled else _by_range(profiles, telling, column)
        most = max(groups, key=lambda group: (len(group), profiles.rows[group].sum()), default=telling)
        if 2 * len(most) < len(telling) or profiles.rows[most].sum() < _FEWEST_OF_ALL:
            continue
        named = telling[:0]
        for group in groups:
            if group is most or profiles.rows[group].sum() < _FEWEST_OF_ALL:
                continue
            larger = bool(level[group, column].min() > level[most, column].min())
            pair = _Pair(profiles, column, *((most, group) if larger else (group, most)))
            fits = [c for c in CONVERSIONS if (c.offset == 0.0) == scaled and pair.differ_by(c)]
            if fits and not np.isin(group, named).any():
                conversion = min(fits, key=pair.off)
                named = np.union1d(
                    group, _nearer_to(conversion, profiles, column, np.setdiff1d(telling, most), most, larger=larger)
                )
                if conversion.rival and level[named if larger else most, column].max() <= _TURN:
                    conversion = _ANGLE
                yield OtherUnit(column, named, most, conversion, larger)


def _nearer_to(conversion: Conversion, profiles: Profiles, column: int, files: Rows, most: Rows, *, larger: bool) -> Rows:
    """The files whose sizes a factor explains roughly, though their spread or their steps are unlike those of most."""
    if conversion.offset:
        return files[:0]
    factor = log(conversion.factor)
    apart = np.log(profiles.size[files, column] / np.median(profiles.size[most, column])) * (1.0 if larger else -1.0)
    return np.asarray(files[np.abs(apart - factor) < _ROUGHLY * factor], dtype=np.intp)


def _by_size(profiles: Profiles, files: Rows, column: int) -> list[Rows]:
    """Groups of files that are apart by most of the smallest factor."""
    sizes = np.log(profiles.size[files, column])
    order = np.argsort(sizes, kind="stable")
    cuts = np.flatnonzero(np.diff(sizes[order]) > _GAP * log(_SMALLEST)) + 1
    return [np.sort(files[part]) for part in np.split(order, cuts)]


def _by_range(profiles: Profiles, files: Rows, column: int) -> list[Rows]:
    """Groups of files whose numbers do not meet, by the widest gaps between files."""
    order = files[np.argsort(profiles.low[files, column], kind="stable")]
    reached = np.maximum.accumulate(profiles.high[order, column])
    gaps = profiles.low[order[1:], column] - reached[:-1]
    cuts = np.flatnonzero(gaps > _GAP * gaps.max(initial=0.0)) + 1
    return [np.sort(part) for part in np.split(order, cuts)]


@dataclass(frozen=True)
class _Pair:
    """Two groups of files, of which the upper may have a column in the unit of the larger numbers."""

    profiles: Profiles
    column: int
    lower: Rows
    upper: Rows

    def differ_by(self, conversion: Conversion) -> bool:
        """Whether they are far apart, and alike once they are converted."""
        if conversion.offset == 0.0:
            slack = min(_ALIKE, _PART * log(conversion.factor))
            far = self._tight(conversion.factor) and self._off(self.profiles.size, conversion) < slack
        else:
            slack, far = _ALIKE_MOVED, self._comes_closer(conversion)
        return far and self._meet(conversion) and self._alike(conversion, slack)

    def off(self, conversion: Conversion) -> float:
        """Return how far the conversion is from what the numbers differ by, in spread and steps."""
        return sum(self._off(values, conversion) for values in (self.profiles.spread, self.profiles.steps))

    def _of(self, values: Numbers) -> tuple[Numbers, Numbers]:
        return values[self.lower, self.column], values[self.upper, self.column]

    def _off(self, values: Numbers, conversion: Conversion) -> float:
        """By how much the ratio of a usual file of each group differs from the factor; a logarithm."""
        lower, upper = (float(np.median(own)) for own in self._of(values))
        if lower <= 0.0 or upper <= 0.0:
            return 0.0 if lower == upper else np.inf
        return abs(log(upper / lower / conversion.factor))

    def _tight(self, factor: float) -> bool:
        """Whether sizes differ by little within the groups, and by most of a factor between them."""
        lower, upper = self._of(self.profiles.size)
        gap = log(upper.min() / lower.max())
        return gap > _GAP * log(factor) and all(log(own.max() / own.min()) < _GAP * gap for own in (lower, upper))

    def _comes_closer(self, conversion: Conversion) -> bool:
        """Whether the conversion brings the groups far closer, and not by its factor alone."""
        lower, upper = (float(np.median(own)) for own in self._of(self.profiles.middle))
        return (
            conversion.offset > _OFFSET * upper
            and _CLOSER * abs((upper - conversion.offset) / conversion.factor - lower) < upper - lower
        )

    def _meet(self, conversion: Conversion) -> bool:
        """Whether the numbers of the groups meet once they are converted."""
        lows, highs = self._of(self.profiles.low), self._of(self.profiles.high)
        return bool(conversion.back(lows[1]).min() <= highs[0].max() and conversion.back(highs[1]).max() >= lows[0].min())

    def _alike(self, conversion: Conversion, slack: float) -> bool:
        """Whether they spread and move alike once they are converted."""
        held = not np.median(self._of(self.profiles.steps)[0]) > 0.0
        most = _EXACT if held else slack
        return all(self._off(values, conversion) < most for values in (self.profiles.spread, self.profiles.steps))
