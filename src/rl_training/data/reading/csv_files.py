"""CSV: text with a header line, separated by comma, semicolon, tab or bar."""

import csv
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import ReadOptions
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.guards import check_size
from rl_training.data.reading.reading import Reading
from rl_training.data.reading.tables import Columns, table_reading
from rl_training.errors import DatasetError

_SEPARATORS = ",;\t|"
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_EMPTY = ("", "na", "n/a", "#n/a", "nan", "null", "none", "-")
_WORDS = {**dict.fromkeys(_EMPTY, np.nan), "true": 1.0, "false": 0.0, "yes": 1.0, "no": 0.0}


class CSVReader(Reader):
    """One row per time step; lines that begin with # before the header are skipped."""

    name = "csv"
    title = "CSV"
    takes_columns = True

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether the file begins with a line of several cells."""
        if candidate.head[:2] in _MARKS:
            return True
        lines = [line for line in candidate.head.splitlines() if line.strip() and not line.startswith(b"#")]
        first = lines[0].decode("latin-1") if lines else ""
        return any(mark in first for mark in _SEPARATORS) and all(letter.isprintable() or letter == "\t" for letter in first)

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the mapped columns."""
        check_size(str(path), 4 * path.stat().st_size, options.max_bytes)
        file = _CSVFile(path, _encoding(path))
        file.check_cells()
        reading = table_reading(file.header, file.columns, options.columns, str(path), self.title)
        reading.notes += ["it is not UTF-8, so it is read as Latin-1"] * (file.encoding == "latin-1")
        return reading


def _encoding(path: Path) -> str:
    """UTF-8 or UTF-16 by the first bytes, UTF-8 if the whole file decodes, Latin-1 otherwise."""
    with path.open("rb") as stream:
        head = stream.read(3)
    for mark, name in _MARKS.items():
        if head.startswith(mark):
            return name
    try:
        with path.open(encoding="utf-8") as text:
            while text.read(2**22):
                pass
    except UnicodeDecodeError:
        return "latin-1"
    return "utf-8"


@dataclass(frozen=True)
class _CSVFile:
    """A CSV file and its detected layout."""

    path: Path
    encoding: str

    def _lines(self) -> Iterator[str]:
        """The lines of the file from the header on."""
        with self.path.open(encoding=self.encoding, newline="") as stream:
            for number, line in enumerate(stream):
                if number >= self.preamble:
                    yield line

    @cached_property
    def preamble(self) -> int:
        """Lines before the header: comments and empty ones."""
        with self.path.open(encoding=self.encoding, newline="") as stream:
            return next((number for number, line in enumerate(stream) if line.strip() and not line.startswith("#")), 0)

    @cached_property
    def separator(self) -> str:
        """The character between cells."""
        first = next(self._lines(), "")
        return max(_SEPARATORS, key=first.count)

    @cached_property
    def header(self) -> list[str]:
        """The names of the columns; some may be empty."""
        names = [name.strip() for name in next(csv.reader(self._lines(), delimiter=self.separator), [])]
        twice = [name for name, count in Counter(names).items() if count > 1 and name]
        if twice:
            raise DatasetError(f"{self.path}: has two columns named `{twice[0][:60]}`")
        return names

    def check_cells(self) -> None:
        """Refuse rows that have more or fewer cells than the header: their columns would be shifted."""
        width, quoted = len(self.header), False
        rows = self._lines()
        next(rows, None)
        for number, line in enumerate(rows):
            quoted = quoted or '"' in line  # a separator may be inside quotes
            if not quoted and line.strip():
                self._check_width(number, line.count(self.separator) + 1, width)
        if quoted:
            for number, row in enumerate(csv.reader(self._lines(), delimiter=self.separator)):
                if row:
                    self._check_width(number - 1, len(row), width)

    def _check_width(self, number: int, cells: int, width: int) -> None:
        if cells != width:
            hint = "; is the decimal mark a comma too?" if self.separator == "," and cells > width else ""
            raise DatasetError(f"{self.path}: row {number} has {cells} cells, the header has {width}{hint}")

    def columns(self, numbers: Sequence[str], text: Sequence[str]) -> Columns:
        """Return the columns `numbers` as numbers and the columns `text` as written."""
        return {**self._numbers(numbers), **self._text(text)}

    def _numbers(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        """Parse fast if every cell is a number; otherwise cell by cell, with NaN for empty cells."""
        options: dict[str, Any] = {"delimiter": self.separator, "quotechar": '"', "encoding": self.encoding, "comments": None}
        try:
            positions = [self.header.index(name) for name in names]
            table = np.loadtxt(self.path, usecols=positions, ndmin=2, skiprows=self.preamble + 1, **options)
            return {name: table[:, i] for i, name in enumerate(names)}
        except (ValueError, IndexError):
            return {name: self._parsed(cells) for name, cells in self._text(names).items()}

    def _text(self, names: Sequence[str]) -> dict[str, NDArray[Any]]:
        columns: dict[str, list[str]] = {name: [] for name in names}
        if not names:
            return {}
        targets = [(columns[name], self.header.index(name)) for name in names]
        rows = csv.reader(self._lines(), delimiter=self.separator)
        next(rows, None)
        for row in rows:
            for cells, index in targets if row else ():
                cells.append(sys.intern(row[index].strip()))
        return {name: np.array(cells, dtype=object) for name, cells in columns.items()}

    def _parsed(self, cells: NDArray[Any]) -> NDArray[Any]:
        """Numbers if every cell is a number, a boolean or empty; the text itself otherwise."""
        decimal_comma = self.separator != ","
        try:
            return np.array([_number(cell, decimal_comma=decimal_comma) for cell in cells.tolist()])
        except ValueError:
            return cells


def _number(cell: str, *, decimal_comma: bool) -> float:
    word = cell.lower()
    if word in _WORDS:
        return _WORDS[word]
    return float(cell.replace(",", ".") if decimal_comma and cell.count(",") == 1 and "." not in cell else cell)
