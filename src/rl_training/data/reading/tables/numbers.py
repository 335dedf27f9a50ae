"""Numbers as loggers write them as text: point or comma is the decimal sign, and the other one may separate thousands.

Most cells tell which is which: `24,04`, `0,006` and `1.250,5` have a decimal comma. `1.271` alone may be 1.271 or 1271: then
the other cells of its column tell, or else those of the file. What nothing tells is refused.
"""

import re
from array import array
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping

import numpy as np
from numpy.typing import NDArray

from rl_training.data.reading.notes import Count, Note

_EMPTY = ("", "na", "n/a", "#n/a", "nan", "null", "none", "-")
_WORDS = {**dict.fromkeys(_EMPTY, np.nan), "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}
_OTHER = {".": ",", ",": "."}
_NAMES = {".": "point", ",": "comma"}
_UNCLEAR = re.compile(r"[+-]?[1-9]\d{0,2}[.,]\d{3}")
_THOUSANDS = re.compile(r"[+-]?[1-9]\d{0,2}(?:(?:\.\d{3})+,\d+|(?:\.\d{3}){2,}|(?:,\d{3})+\.\d+|(?:,\d{3}){2,})")
_LIKE_UNCLEAR = re.compile(r"\.\d{3}(?![\d.,])")
_LEAST_LEFT = 100.0  # whole numbers that end between here and 1000 suggest that those above have a separator


class UnclearNumberError(ValueError):
    """A number that may be another one a thousand times as large; the message says what it is, `row` where."""

    def __init__(self, row: int, message: str) -> None:
        super().__init__(message)
        self.row = row


def parse_number(cell: str, *, commas: bool) -> tuple[float | str, str]:
    """Return the number that a cell holds, NaN for an empty one, or other text as it is; and what it shows of its signs.

    That is the decimal sign, after it a sign that separates thousands, and `?.` or `?,` for a sign that may be either: it is
    read as the decimal one. Without `commas`, where commas separate cells, one alone is never known to be the decimal sign.
    """
    if cell[-4:-3] in _OTHER and _UNCLEAR.fullmatch(cell):
        return float(cell.replace(",", ".")), f"?{cell[-4]}"
    try:
        if "," not in cell:
            return float(cell), "." if "." in cell else ""
        if commas and "." not in cell:
            return float(cell.replace(",", ".")), ","
    except ValueError:
        pass
    if _THOUSANDS.fullmatch(cell):
        separator = next(letter for letter in cell if letter in _OTHER)
        return float(cell.replace(separator, "").replace(",", ".")), _OTHER[separator] + separator
    return _WORDS.get(cell.lower(), cell), ""


def may_hold_unclear(lines: Iterable[str]) -> bool:
    """Return whether a number with a point may be unclear in these lines; much faster than a look at every cell."""
    return any(_LIKE_UNCLEAR.search(line) for line in lines)


def shown_signs(cells: Iterable[str], *, commas: bool) -> Iterator[str]:
    """Yield what the cells with a sign show of it, as `parse_number` does."""
    return (shown for cell in cells if (shown := parse_number(cell, commas=commas)[1]))


class NumberColumn:
    """The cells of a column as numbers, with those that are unclear until the whole file is known."""

    def __init__(self, *, commas: bool) -> None:
        self._commas = commas
        self._values = array("d")
        self.decimals: set[str] = set()
        self.unclear = {sign: array("q") for sign in _OTHER}  # rows
        self.separated = dict.fromkeys(_OTHER, 0)  # numbers in which a sign separates thousands

    def add(self, cell: str) -> str | None:
        """Take the cell of the next row; return it if it is text."""
        value, shown = parse_number(cell, commas=self._commas)
        if len(shown) == 1:
            self.decimals.add(shown)
        elif shown[:1] == "?":
            self.unclear[shown[1]].append(len(self._values))
        elif shown:
            self.decimals.add(shown[0])
            self.separated[shown[1]] += 1
        if isinstance(value, str):
            self._values.append(np.nan)
            return cell
        self._values.append(value)
        return None

    def numbers(self) -> NDArray[np.float64]:
        """Return the values of all rows, NaN where a cell is empty or text."""
        return np.array(self._values)

    def suggests_thousands(self) -> bool:
        """Return whether an unclear sign is likely to separate thousands: whole numbers stop where it begins (876, 1.271)."""
        if self.unclear[","] and not self._commas:
            return True
        others = np.delete(self.numbers(), np.concatenate([np.array(rows, dtype=np.intp) for rows in self.unclear.values()]))
        largest = float(np.abs(others[np.isfinite(others)]).max(initial=0.0))
        return _LEAST_LEFT <= largest < 1000.0 and largest.is_integer()

    def read_as_thousands(self, sign: str) -> None:
        """Read the unclear cells with a sign as numbers whose thousands it separates."""
        rows, values = np.array(self.unclear[sign], dtype=np.intp), np.frombuffer(self._values)
        values[rows] = np.round(1000.0 * values[rows])
        self.separated[sign] += len(self.unclear[sign])

    def unclear_cell(self, sign: str) -> tuple[int, str]:
        """Return the row of the first unclear cell with a sign, and the cell."""
        row = self.unclear[sign][0]
        return row, f"{self._values[row]:.3f}".replace(".", sign)


def settle_unclear(columns: Mapping[str, NumberColumn], elsewhere: Callable[[], Iterator[str]]) -> None:
    """Read every unclear number by the decimal sign of its column, or else of the file; refuse it where both or none show.

    `elsewhere` yields what the cells of the other columns show, and is asked only if these tell nothing.
    """
    doubtful = {name: column for name, column in columns.items() if any(column.unclear.values())}
    if not doubtful:
        return
    decimals = {sign for column in columns.values() for sign in column.decimals}
    unclear = {sign for column in doubtful.values() for sign, rows in column.unclear.items() if rows}
    for shown in elsewhere() if not decimals else ():
        if shown[0] != "?":
            decimals = {shown[0]}
            break
        unclear.add(shown[1])
    for name, column in doubtful.items():
        shown_here = column.decimals or decimals
        if not shown_here and (len(unclear) == 2 or column.suggests_thousands()):
            _refuse(name, column, "no cell of the file tells whether the sign is a decimal one")
        if len(shown_here) == 2:
            where = "the column" if column.decimals else "the file"
            _refuse(name, column, f"{where} has decimal points and decimal commas")
        for sign in shown_here:
            column.read_as_thousands(_OTHER[sign])


def _refuse(name: str, column: NumberColumn, why: str) -> None:
    sign = next(sign for sign, rows in column.unclear.items() if rows)
    row, cell = column.unclear_cell(sign)
    decimal, whole = cell.replace(",", "."), cell.replace(sign, "")
    fix = (
        f"export it with one decimal sign and without thousands separators, and whole numbers beside decimals as `876{sign}0`"
    )
    raise UnclearNumberError(row, f"column `{name}`: `{cell}` may be {decimal} or {whole}, since {why}; {fix}")


def thousands_notes(columns: Collection[NumberColumn]) -> list[Note]:
    """Return how many numbers were read with separators of thousands."""
    counts = {sign: sum(column.separated[sign] for column in columns) for sign in _OTHER}
    read = {sign: f"read with a {_NAMES[sign]} between thousands (`1{sign}234` is 1234)" for sign in _OTHER}
    return [Count(counts[sign], f"number is {read[sign]}", f"numbers are {read[sign]}") for sign in _OTHER if counts[sign]]
