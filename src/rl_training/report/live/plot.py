"""Curves in characters: a line with a band and axes, and sparklines; in ASCII where a terminal shows nothing else."""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from textwrap import wrap
from typing import Final

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from rl_training.output import printable
from rl_training.report.bands import Band, Numbers
from rl_training.report.facts import number

LINE, BAND, AXIS = "bold cyan", "cyan", "bright_black"
_DOTS: Final = np.array([[0x01, 0x08], [0x02, 0x10], [0x04, 0x20], [0x40, 0x80]])  # of a braille character, by row and column
_BRAILLE = 0x2800


@dataclass(frozen=True)
class Glyphs:
    """The characters that a terminal can show."""

    unicode: bool

    @property
    def marks(self) -> str:
        """The marks of sparklines, from low to high."""
        return "▁▂▃▄▅▆▇█" if self.unicode else "_.-=+*#@"

    @property
    def axes(self) -> tuple[str, str, str, str]:
        """A vertical and a horizontal line, their corner, and the line of the switch."""
        return ("│", "─", "└", "┊") if self.unicode else ("|", "-", "+", "!")

    def shown(self, text: str) -> str:
        """Return a text in characters that can be shown; none of them moves the cursor or changes the terminal."""
        text = printable(text)
        return text if self.unicode else text.replace("\N{EN DASH}", "-").encode("ascii", "replace").decode()

    def fit(self, text: str, width: int) -> str:
        """Return a text on one line of this width, in characters that can be shown."""
        text = self.shown(text)
        if len(text) <= width:
            return text
        return text[: max(0, width - 1)] + ("…" if self.unicode else "~")[:width]


def plot(band: Band, width: int, height: int, glyphs: Glyphs, switch: int | None = None) -> list[Text]:
    """Return a curve with its band and axes as lines of text; the last two are the axis and its labels."""
    top, bottom = _range(band)
    labels = [number(top), number((top + bottom) / 2), number(bottom)]
    margin = min(max(map(len, labels)), max(0, width - 6))
    columns, rows = max(1, width - margin - 1), max(1, height - 2)
    canvas = _Canvas(columns, rows, glyphs)
    first, last = int(band.positions[0]), int(band.positions[-1])

    def across(position: float) -> float:
        return 0.5 if last == first else (position - first) / (last - first)

    canvas.draw(np.array([across(p) for p in band.positions]), *((v - bottom) / (top - bottom) for v in _edges(band)))
    marked = None if switch is None or not first < switch < last else round(across(switch) * (columns - 1))
    vertical, horizontal, corner, _ = glyphs.axes
    lines = []
    for row, cells in enumerate(canvas.lines(marked)):
        place = {0: labels[0], rows - 1: labels[2], **({rows // 2: labels[1]} if rows >= 5 else {})}
        line = Text(glyphs.fit(place.get(row, ""), margin).rjust(margin) + vertical, style=AXIS)
        lines.append(line.append_text(cells))
    lines.append(Text(" " * margin + corner + horizontal * columns, style=AXIS))
    lines.append(Text(" " * (margin + 1) + _axis_labels(first, last, columns), style=AXIS))
    return lines


def sparkline(values: Numbers, width: int, glyphs: Glyphs) -> str:
    """Return values as a line of marks, each the mean of the values that fall to it."""
    known = values[np.isfinite(values)]
    if not len(known) or width < 1:
        return ""
    parts = np.array([part.mean() for part in np.array_split(known, min(width, len(known)))])
    low, high = parts.min(), parts.max()
    share = (parts - low) / (high - low) if high > low else np.zeros(len(parts))
    return "".join(glyphs.marks[round(part * (len(glyphs.marks) - 1))] for part in share.tolist())


def _edges(band: Band) -> tuple[Numbers, Numbers, Numbers]:
    return band.middle, band.low, band.high


def _range(band: Band) -> tuple[float, float]:
    """The highest and the lowest value of an axis that is never empty."""
    top, bottom = float(band.high.max()), float(band.low.min())
    if top == bottom:
        room = abs(top) * 0.1 or 1.0
        return top + room, bottom - room
    return top, bottom


def _axis_labels(first: int, last: int, columns: int) -> str:
    left, right = f"{first:,}", f"{last:,}"
    if first == last and len(right) <= columns:  # below its point
        return right.center(columns).rstrip()
    if len(left) + len(right) + 1 > columns:
        return right[:columns].rjust(columns)
    return left + right.rjust(columns - len(left))


class _Canvas:
    """Points on a grid, of which a character shows several: eight in braille, one in ASCII."""

    def __init__(self, columns: int, rows: int, glyphs: Glyphs) -> None:
        self.columns, self.rows, self.glyphs = columns, rows, glyphs
        self.wide, self.tall = (2, 4) if glyphs.unicode else (1, 1)
        shape = rows * self.tall, columns * self.wide
        self.line, self.band = np.zeros(shape, np.bool_), np.zeros(shape, np.bool_)

    def draw(self, across: Numbers, middle: Numbers, low: Numbers, high: Numbers) -> None:
        """Draw a line and its band; all values lie between 0 and 1, and `across` rises."""
        places = across * (self.line.shape[1] - 1)
        if len(places) == 1:
            self._point(int(places[0]), int(self._row(middle)[0]))
            return
        grid = np.arange(int(np.ceil(places[0])), int(places[-1]) + 1)
        ends = [self._row(np.interp(grid, places, values)) for values in (low, high, middle)]
        before = ends[2][0]
        for column, bottom, top, value in zip(grid, *ends, strict=True):
            self.band[top : bottom + 1, column] = True
            self.line[min(before, value) : max(before, value) + 1, column] = True
            before = value
        for place, value in zip(places.round().astype(np.int64), self._row(middle), strict=True):
            self.line[value, place] = True  # points that lie closer than the grid
        if self.glyphs.unicode:  # a band of sparse dots, so that the line stands out
            down, along = np.indices(self.band.shape)
            self.band &= (down % 2 == 1) & (along % 2 == 0)

    def _point(self, column: int, row: int) -> None:
        """Draw a single point so large that it is seen: half a character."""
        tall, wide = max(1, self.tall // 2), self.wide
        first, left = row // tall * tall, column // wide * wide
        self.line[first : first + tall, left : left + wide] = True

    def _row(self, values: Numbers) -> NDArray[np.int64]:
        return ((1.0 - values.clip(0.0, 1.0)) * (len(self.line) - 1)).round().astype(np.int64)

    def lines(self, marked: int | None) -> list[Text]:
        """Return the rows of characters; `marked` is a column with a vertical line behind the curve."""
        texts = []
        for row in range(self.rows):
            cells = [self._cell(row, column, marked=column == marked) for column in range(self.columns)]
            runs = groupby(cells, key=itemgetter(1))  # so that a style is not written for each character
            texts.append(Text.assemble(*(("".join(character for character, _ in run), style) for style, run in runs)))
        return texts

    def _cell(self, row: int, column: int, *, marked: bool) -> tuple[str, str]:
        area = slice(row * self.tall, (row + 1) * self.tall), slice(column * self.wide, (column + 1) * self.wide)
        line, band = self.line[area], self.band[area]
        if marked and not line.any():
            return self.glyphs.axes[3], AXIS
        style = LINE if line.any() else BAND
        if self.glyphs.unicode:
            dots = int(_DOTS[line | band].sum())
            return chr(_BRAILLE + dots) if dots else " ", style
        return "*" if line.any() else ":" if band.any() else " ", style


def wrapped(texts: Sequence[str], width: int, glyphs: Glyphs) -> list[str]:
    """Return texts, separated by commas, on as many lines of this width as they need."""
    return wrap(glyphs.shown(", ".join(texts)), max(width, 1))
