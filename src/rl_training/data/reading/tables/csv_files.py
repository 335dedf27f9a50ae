"""CSV: text with a header line, separated by comma, semicolon, tab or bar."""

import csv
import re
from array import array
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import ReadOptions
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.guards import Allowance
from rl_training.data.reading.notes import Note
from rl_training.data.reading.reading import Reading
from rl_training.data.reading.tables.numbers import (
    NumberColumn,
    UnclearNumberError,
    may_hold_unclear,
    parse_number,
    settle_unclear,
    shown_signs,
    thousands_notes,
)
from rl_training.data.reading.tables.table import Loaded, table_reading
from rl_training.errors import DatasetError

_SEPARATORS = ",;\t|"
_MARKS = {b"\xff\xfe": "utf-16", b"\xfe\xff": "utf-16", b"\xef\xbb\xbf": "utf-8-sig"}
_MOST_COLUMNS = 2**16
_ROW_BYTES, _CELL_BYTES = 128, 24  # that a row and each of its numbers take until they are arrays of fields
_OBJECT_BYTES = 160  # of a text or a number as an object of its own, and the places that refer to it
_MOST_UNIT_ROWS = 3  # below the header: descriptions, units, kinds of averages


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
        first = _decoded(lines[0]) if lines else ""
        return any(mark in first for mark in _SEPARATORS) and all(letter.isprintable() or letter == "\t" for letter in first)

    def column_names(self, path: Path) -> Sequence[str]:
        """Return the names in the header."""
        return _CSVFile(path, _encoding(path), Allowance(str(path), None)).header

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the mapped columns."""
        allowance = Allowance(str(path), options.max_bytes)
        allowance.check(path.stat().st_size)
        file = _CSVFile(path, _encoding(path), allowance)
        return table_reading(file.header, file.load, options, str(path), self.title)


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8-sig")
    except UnicodeDecodeError:
        return line.decode("latin-1")


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
    """A CSV file and its detected layout. Lines are counted from 1, as an editor does."""

    path: Path
    encoding: str
    allowance: Allowance

    def _lines(self) -> Iterator[str]:
        """The lines of the file from the header on."""
        with self.path.open(encoding=self.encoding, newline="") as stream:
            yield from islice(stream, self.preamble, None)

    @cached_property
    def preamble(self) -> int:
        """Lines before the header: comments, empty ones, and Excel's `sep=;`."""
        with self.path.open(encoding=self.encoding, newline="") as stream:
            skipped = re.compile(r"\s*$|#|(?i:sep)=.\s*$")
            return next((number for number, line in enumerate(stream) if not skipped.match(line)), 0)

    @cached_property
    def separator(self) -> str:
        """The character between cells."""
        first = next(self._lines(), "")
        return max(_SEPARATORS, key=first.count)

    def _records(self) -> Iterator[tuple[int, list[str]]]:
        """The header and the rows that are not empty, each with the line it begins in."""
        reader, begin = csv.reader(self._lines(), delimiter=self.separator), 0
        for row in reader:
            if len(row) > 1 or any(cell.strip() for cell in row):
                yield self.preamble + begin + 1, row
            begin = reader.line_num

    @cached_property
    def header(self) -> list[str]:
        """The names of the columns; some may be empty."""
        names = [name.strip() for name in next(self._records(), (1, []))[1]]
        if len(names) > _MOST_COLUMNS:
            raise DatasetError(f"{self.path}: has {len(names):,} columns, at most {_MOST_COLUMNS:,} are read")
        twice = [name for name, count in Counter(names).items() if count > 1 and name]
        if twice:
            raise DatasetError(f"{self.path}: has two columns named `{twice[0][:60]}`")
        return names

    @cached_property
    def quoted(self) -> bool:
        """Whether any cell may be in quotes."""
        return any('"' in line for line in self._lines())

    @cached_property
    def row_lines(self) -> NDArray[np.int64]:
        """The line that each row begins in; a row with more or fewer cells than the header is refused."""
        rows: Iterable[tuple[int, int]]
        if self.quoted:  # a separator or a line break may be inside quotes
            rows = ((number, len(row)) for number, row in islice(self._records(), 1, None))
        else:
            below = enumerate(islice(self._lines(), 1, None), start=self.preamble + 2)
            rows = ((number, line.count(self.separator) + 1) for number, line in below if line.strip())
        numbers = array("q")
        for number, cells in rows:
            self._check_width(number, cells, len(self.header))
            numbers.append(number)
        return np.array(numbers, dtype=np.int64)

    def _check_width(self, line: int, cells: int, width: int) -> None:
        if cells != width:
            hint = "; is the decimal mark a comma too?" if self.separator == "," and cells > width else ""
            raise DatasetError(f"{self.path}: line {line} has {cells} cells, the header has {width}{hint}")

    def load(self, numbers: Sequence[str], as_written: Sequence[str]) -> Loaded:
        """Return the columns `numbers` as numbers and the columns `as_written` as text."""
        lines = self.row_lines
        notes: list[Note] = []
        self.allowance.check(len(lines) * (_ROW_BYTES + _CELL_BYTES * len(numbers)))
        units = self._unit_rows(numbers)
        for number, row in units:
            shown = f" {self.separator} ".join(cell.strip() for cell in row)
            notes.append(f"line {number} below the header is skipped as units ({shown[:80]})")
        if self.encoding == "latin-1":
            notes.append("it is not UTF-8, so it is read as Latin-1")
        skipped = len(units)
        columns = self._plain_numbers(numbers, skipped)
        if columns is None:
            columns, more = self._parsed_columns(numbers, as_written, skipped)
            notes += more
        return Loaded(columns, self._text(as_written, skipped), lines[skipped:], notes)

    def _unit_rows(self, names: Sequence[str]) -> list[tuple[int, list[str]]]:
        """The rows below the header that hold text in every column of numbers, where the row after them holds numbers."""
        positions = [self.header.index(name) for name in names]
        first = list(islice(self._records(), 1, _MOST_UNIT_ROWS + 2))
        count = next((k for k, (_, row) in enumerate(first) if not self._is_text([row[i] for i in positions])), 0)
        return first[:count]

    def _is_text(self, cells: Sequence[str]) -> bool:
        """Whether some cells are text and the others empty."""
        values = [parse_number(cell.strip(), commas=self._commas)[0] for cell in cells]
        return any(isinstance(value, str) for value in values) and all(isinstance(v, str) or np.isnan(v) for v in values)

    def _plain_numbers(self, names: Sequence[str], skipped: int) -> dict[str, NDArray[Any]] | None:
        """Parse fast if every cell is a number and no point may separate thousands; None if cells have to be looked at."""
        lines = self.row_lines[skipped:]
        if not len(lines):
            return {name: np.empty(0) for name in names}
        options: dict[str, Any] = {"delimiter": self.separator, "quotechar": '"', "encoding": self.encoding, "comments": None}
        try:
            positions = [self.header.index(name) for name in names]
            table = np.loadtxt(self.path, usecols=positions, ndmin=2, skiprows=int(lines[0]) - 1, **options)
        except (ValueError, IndexError):
            return None
        if len(table) != len(lines) or self._has_unclear_points(names, skipped):
            return None
        return {name: table[:, i] for i, name in enumerate(names)}

    def _has_unclear_points(self, names: Sequence[str], skipped: int) -> bool:
        """Whether points may separate thousands: some could, and none shows that it is the decimal sign."""
        if not (self._commas or self.quoted) or not may_hold_unclear(self._lines()):
            return False
        shown = shown_signs(
            (cell for cells in self._cells(names, skipped) for cell in cells if "." in cell), commas=self._commas
        )
        return next(shown, "") == "?." and "." not in shown

    @property
    def _commas(self) -> bool:
        """Whether a comma may be the decimal sign."""
        return self.separator != ","

    def _cells(self, names: Sequence[str], skipped: int) -> Iterator[Sequence[str]]:
        """The cells of some columns, row by row."""
        places = [self.header.index(name) for name in names]
        for _, row in islice(self._records(), 1 + skipped, None):
            yield [row[place].strip() for place in places]

    def _parsed_columns(
        self, names: Sequence[str], as_written: Sequence[str], skipped: int
    ) -> tuple[dict[str, NDArray[Any]], list[Note]]:
        """Columns as numbers, NaN where a cell is empty, one that holds any text as objects; and how numbers were read."""
        parsed = {name: NumberColumn(commas=self._commas) for name in names}
        texts: list[dict[int, str]] = [{} for _ in names]
        for number, cells in enumerate(self._cells(names, skipped)):
            for column, text, cell in zip(parsed.values(), texts, cells, strict=True):
                if column.add(cell) is not None:
                    self.allowance.take(_OBJECT_BYTES + len(cell))
                    text[number] = cell
        others = [name for name in self.header if name and name not in names and name not in as_written]
        try:
            settle_unclear(parsed, lambda: self._signs(others, skipped))
        except UnclearNumberError as error:
            raise DatasetError(f"{self.path}: line {self.row_lines[skipped + error.row]}, {error}") from None
        columns: dict[str, NDArray[Any]] = {name: column.numbers() for name, column in parsed.items()}
        for name, text in zip(names, texts, strict=True):
            if text:
                self.allowance.take(_OBJECT_BYTES * len(columns[name]))
                columns[name] = columns[name].astype(object)
                columns[name][list(text)] = list(text.values())
        return columns, thousands_notes(parsed.values())

    def _signs(self, names: Sequence[str], skipped: int) -> Iterator[str]:
        return shown_signs((cell for cells in self._cells(names, skipped) for cell in cells), commas=self._commas)

    def _text(self, names: Sequence[str], skipped: int) -> dict[str, NDArray[Any]]:
        """Columns as written; equal cells are one object."""
        if not names:
            return {}
        columns: list[list[str]] = [[] for _ in names]
        known: dict[str, str] = {}
        for cells in self._cells(names, skipped):
            for column, cell in zip(columns, cells, strict=True):
                if cell not in known:
                    self.allowance.take(_OBJECT_BYTES + 4 * len(cell))
                column.append(known.setdefault(cell, cell))
        return {name: np.array(cells, dtype=object) for name, cells in zip(names, columns, strict=True)}
