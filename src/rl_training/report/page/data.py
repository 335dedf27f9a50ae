"""Charts as the data of a page: thinned and rounded, so that the page stays small for any number of members."""

import json
import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.report.bands import Group
from rl_training.report.charts import Chart, Line
from rl_training.report.palette import NAME_DASHES, REFERENCE_DASHES, colour_of, dash_of
from rl_training.report.timing import Timing

MAIN_POINTS, SMALL_POINTS = 400, 200  # most points of a curve with its band: on a large chart, on a small one
_MEMBER_NUMBERS = 36_000  # most numbers for curves of single members: on all large charts, and on all small ones
_BAND_NUMBERS = 36_000  # the same for curves with bands
_LEAST = 10  # points: with fewer, the curves of members say nothing and are left out
_DIGITS, _MEMBER_DIGITS = 5, 4  # at least
_MOST_DIGITS = 8  # what differs beyond them counts as noise
_LEVELS = 1000  # that a curve is drawn with at least, between its lowest and its highest value
_REFERENCE_DIGITS = 9  # they are few, and stand in the legend too


def page_data(
    groups: Sequence[Group], main: Sequence[Chart], small: Sequence[Chart], timings: Sequence[Timing]
) -> dict[str, Any]:
    """Return what the script of a page draws: groups, and charts with positions that are stored once."""
    axes = _Axes()
    charts = [*_thinned(main, axes, MAIN_POINTS, groups), *_thinned(small, axes, SMALL_POINTS, groups)]
    listed = []
    for i, (group, timing) in enumerate(zip(groups, timings, strict=True)):
        steps = _spread(len(timing.positions), 200)
        listed.append(
            {
                "label": group.label,
                "colour": f"c{colour_of(i)}",
                "dash": dash_of(i),
                "members": [member_label(group, column) for column in group.members],
                "switch": group.run.switch,
                "time": [[timing.positions[at] for at in steps], [_rounded(timing.elapsed[at], 4) for at in steps]],
            }
        )
    dashes = {"names": NAME_DASHES, "references": REFERENCE_DASHES}
    return {"groups": listed, "charts": charts, "axes": axes.arrays, "dashes": dashes, "thinned": axes.thinned}


def member_label(group: Group, column: int) -> str:
    """Return what a member is called: its seed."""
    return f"seed {list(group.run.seeds.values())[column]}"


class _Axes:
    """Positions of curves, each stored once."""

    def __init__(self) -> None:
        self.arrays: list[list[int]] = []
        self.thinned = False  # whether a curve has fewer points here than in its run
        self._known: dict[bytes, int] = {}

    def index(self, positions: NDArray[np.int64]) -> int:
        """Return the number under which these positions are stored."""
        key = positions.tobytes()
        if key not in self._known:
            self._known[key] = len(self.arrays)
            self.arrays.append(positions.tolist())
        return self._known[key]


def _thinned(charts: Sequence[Chart], axes: _Axes, most: int, groups: Sequence[Group]) -> list[dict[str, Any]]:
    """Charts as plain values, each curve with as many points as all of them together may have."""
    lines = [line for chart in charts for line in chart.lines]
    columns = sum(len(groups[line.group].members) for line in lines if len(groups[line.group].members) > 1)
    points = max(_LEAST, min(most, _BAND_NUMBERS // max(1, 3 * len(lines))))
    single = min(most, _MEMBER_NUMBERS // max(1, columns))
    return [
        {
            "lines": [_line(line, axes, points, single) for line in chart.lines],
            "refs": [[name, _rounded(value, _REFERENCE_DIGITS)] for name, value in chart.references.items()],
            "percent": chart.percent,
        }
        for chart in charts
    ]


def _line(line: Line, axes: _Axes, points: int, single: int) -> dict[str, Any]:
    thin, several = line.band.thinned(points), line.band.members.shape[1] > 1
    left_out = len(thin.positions) < len(line.band.positions)
    axes.thinned |= left_out
    found: dict[str, Any] = {
        "group": line.group,
        "name": line.name,
        "x": axes.index(thin.positions),
        "mid": _column(thin.middle, _DIGITS),
    }
    if line.band.ends:
        found |= {"counts": thin.counts.tolist(), "ends": np.searchsorted(thin.positions, line.band.ends).tolist()}
    if several or left_out:  # the band of one member is nothing but the points left out: a collapse may be among them
        found |= {"low": _column(thin.low, _MEMBER_DIGITS), "high": _column(thin.high, _MEMBER_DIGITS)}
    if several and single >= _LEAST:
        few = line.band.thinned(single)
        found["mx"] = axes.index(few.positions)
        found["each"] = [_column(column, _MEMBER_DIGITS) for column in few.members.T]
    return found


def _column(values: NDArray[np.float64], digits: int) -> list[float | int | None]:
    """Numbers with as many digits as are printed, and as tell them apart on a chart."""
    known = values[np.isfinite(values)]
    span = float(known.max() / _LEVELS - known.min() / _LEVELS) if len(known) else 0.0
    places = -math.floor(math.log10(span)) if span > 0.0 else 0
    digits = digits if span > 0.0 else _DIGITS  # what never changes lies on the line that is drawn through it
    return [_rounded(value, max(digits, min(_MOST_DIGITS, _digits(value, places)))) for value in values.tolist()]


def _digits(value: float, places: int) -> int:
    """How many digits a number has with so many decimal places, or with those that the page prints if they are more."""
    size = abs(value)
    if not 0.0 < size < math.inf:
        return 0
    printed = 0 if size >= 1e4 else 1 if size >= 100 else 2  # as `shown` in the script; the digits of smaller numbers are few
    return math.floor(math.log10(size)) + 1 + max(places, printed)


def _rounded(value: float, digits: int) -> float | int | None:
    """A number with few digits, in few characters; None for NaN and inf."""
    if not math.isfinite(value):
        return None
    shown = f"{value:.{digits}g}"
    if shown.partition("e")[0].endswith("5"):  # half of the digit before: what is printed would be rounded twice
        shown = f"{value:.{digits + 2}g}"
    short = float(shown)
    return int(short) if short.is_integer() and abs(short) < 1e15 else short


def _spread(count: int, most: int) -> list[int]:
    return np.unique(np.linspace(0, count - 1, min(count, most)).round().astype(int)).tolist() if count else []


def as_json(value: Any) -> str:
    """Return JSON that may stand inside a script element: nothing in it can end the element or open another."""
    text = json.dumps(value, separators=(",", ":"), allow_nan=False, ensure_ascii=False)
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026").replace("\u2028", "\\u2028")
