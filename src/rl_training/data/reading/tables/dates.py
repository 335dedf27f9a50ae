"""Dates as loggers write them, in seconds: ISO, German, with slashes, with the name of a month, or the time of day alone."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rl_training.data.reading.source_rows import SourceRows
from rl_training.errors import DatasetError

_CLOCK = r"(?P<h>\d{1,2}):(?P<min>\d{2})(?::(?P<s>\d{2}(?:[.,]\d+)?))?(?:\s*(?P<half>[AaPp])\.?[Mm]\.?)?"
_AFTER_DATE = rf"(?:(?:\s*,\s*|\s+|T){_CLOCK})?"
_MONTHS: Final = ("jan", "feb", "mar", "apr", "may", "jun", "jul", "aug", "sep", "oct", "nov", "dec")
_FORMS: Final[dict[str, re.Pattern[str]]] = {
    "German": re.compile(rf"(?P<d>\d{{1,2}})\.(?P<m>\d{{1,2}})\.(?P<y>\d{{4}}|\d{{2}}){_AFTER_DATE}"),
    "year first": re.compile(rf"(?P<y>\d{{4}})[/.](?P<m>\d{{1,2}})[/.](?P<d>\d{{1,2}}){_AFTER_DATE}"),
    "named month": re.compile(rf"(?P<d>\d{{1,2}})[-. ](?P<m>[A-Za-z]{{3}})[-. ](?P<y>\d{{4}}){_AFTER_DATE}"),
    "slashes": re.compile(rf"(?P<a>\d{{1,2}})[/-](?P<b>\d{{1,2}})[/-](?P<y>\d{{4}}){_AFTER_DATE}"),
    "time of day": re.compile(_CLOCK),
}


def is_empty(value: Any) -> bool:
    """Return whether a cell of a column of dates or identifiers holds nothing."""
    return value is None or str(value).strip() in ("", "nan", "NaN", "NaT", "None", "<NA>")


def date_seconds(values: NDArray[Any], what: str, places: SourceRows) -> NDArray[np.float64]:
    """Return the seconds of a column of dates, all written in one form; NaN where a cell is empty.

    Zones are applied where they are written. Whether 3/4/2025 is in March or in April must follow from the whole column.
    """
    if values.dtype.kind == "M":
        dates = values.astype("datetime64[ns]")
        return np.where(np.isnat(dates), np.nan, dates.astype(np.int64) / 1e9)
    cells = values.tolist()
    first = next((cell for cell in cells if not is_empty(cell)), "")
    read = _iso if isinstance(first, datetime) or _is_iso(str(first)) else _reader(cells, str(first).strip(), what)
    seconds = np.full(len(cells), np.nan)
    for row, cell in enumerate(cells):
        if not is_empty(cell):
            try:
                seconds[row] = read(cell)
            except (TypeError, ValueError, OverflowError):
                raise DatasetError(
                    f"{what} holds {str(cell)[:40]!r} in {places.place(row)}, which is not a date like {str(first)[:40]!r}"
                ) from None
    return seconds


def _is_iso(text: str) -> bool:
    try:
        _iso(text)
    except ValueError:
        return False
    return True


def _iso(cell: Any) -> float:
    moment = cell if isinstance(cell, datetime) else datetime.fromisoformat(str(cell).strip().replace(" UTC", "+00:00"))
    return moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()


def _reader(cells: Sequence[Any], first: str, what: str) -> Callable[[Any], float]:
    """The function that reads a cell written in the form of the first one."""
    form = next((pattern for pattern in _FORMS.values() if pattern.fullmatch(first)), None)
    if form is None:
        raise DatasetError(
            f"{what} holds neither numbers nor dates ({first[:40]!r}); known are 2025-12-31 23:59:58, 31.12.2025 23:59:58, "
            "2025/12/31, 12/31/2025 and 23:59:58"
        )
    day_first = "a" in form.groupindex and _day_first(cells, form, what)

    def read(cell: Any) -> float:
        found = form.fullmatch(str(cell).strip())
        if found is None:
            raise ValueError
        return _seconds({name: text for name, text in found.groupdict().items() if text is not None}, day_first=day_first)

    return read


def _day_first(cells: Sequence[Any], form: re.Pattern[str], what: str) -> bool:
    """Whether day or month stands first in 12/31/2025: decided by a number above 12, anywhere in the column."""
    found = [match for cell in cells if (match := form.fullmatch(str(cell).strip()))]
    first, second = (any(int(match[part]) > 12 for match in found) for part in ("a", "b"))
    if first == second:
        why = "both orders of day and month occur" if first else "day and month cannot be told apart"
        raise DatasetError(f"{what}: {why} ({found[0][0][:40]!r}); write dates as 2025-12-31 or 31.12.2025")
    return first


def _seconds(parts: dict[str, str], *, day_first: bool) -> float:
    hour = int(parts.get("h", 0))
    if "half" in parts:
        if not 1 <= hour <= 12:
            raise ValueError
        hour = hour % 12 + 12 * (parts["half"] in "pP")
    minute, second = int(parts.get("min", 0)), float(parts.get("s", "0").replace(",", "."))
    if hour > 23 or minute > 59 or second >= 61.0:
        raise ValueError
    clock = 3600.0 * hour + 60.0 * minute + second
    if "y" not in parts:
        return clock
    if "a" in parts:
        parts |= {"d": parts["a"], "m": parts["b"]} if day_first else {"d": parts["b"], "m": parts["a"]}
    month = int(parts["m"]) if parts["m"].isdigit() else _MONTHS.index(parts["m"].lower()) + 1
    year = int(parts["y"]) + 2000 * (len(parts["y"]) == 2)
    return datetime(year, month, int(parts["d"]), tzinfo=UTC).timestamp() + clock
