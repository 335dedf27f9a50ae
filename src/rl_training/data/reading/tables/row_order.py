"""Order the rows of a table by episode and time, and find where one episode stops and the next begins."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.reading.clocks import skipped_samples
from rl_training.data.reading.notes import Count, Note
from rl_training.data.reading.source_rows import SourceRows
from rl_training.data.reading.tables.dates import date_seconds, is_empty
from rl_training.errors import DatasetError

GAP = 5.0  # a time step this many times the usual one of its episode cuts the episode
_SHUFFLED = 1 / 3  # share of rows that are earlier than the row above them, beyond which the rows count as unordered
_ENOUGH_STEPS = 5  # needed to estimate the usual time step of an episode from itself

Named = tuple[str, NDArray[Any]]


def row_order(
    places: SourceRows, episode: Named | None, time: Named | None, source: str, notes: list[Note], *, cut_gaps: bool = False
) -> tuple[NDArray[np.intp], NDArray[np.int64], NDArray[np.bool_], NDArray[np.bool_]]:
    """Return row numbers in order with their episodes, a flag before each break, and one where the time skips samples.

    Without a time the rows are in order, and a new value of the episode column is a new episode. With both, rows with the
    same value belong together, ordered by time. With a time alone, a step back in time is a new episode; very many of them
    may mean that the rows are unordered, which only the user can tell. With `cut_gaps` skipped samples are breaks.
    """
    rows = len(places.rows)
    moments = None if time is None else _moments(*time, source, places)
    ids = None if episode is None else _identifiers(*episode, source, places)
    order = np.arange(rows)
    if ids is None:
        ids = np.zeros(rows, dtype=np.int64)
        falls = np.zeros(rows, dtype=bool) if moments is None else np.append(False, np.diff(moments) <= 0)
        if falls.sum() > _SHUFFLED * rows and time is not None:
            raise DatasetError(
                f"{source}: `{time[0]}` steps back in {int(falls.sum())} of {rows} rows: the rows are out of order, or "
                "episodes very short; sort them, or name an `episode` column"
            )
        if falls.any():
            ids = np.cumsum(falls)
            where = f"back in `{time[0] if time else ''}`, where a new episode begins"
            notes.append(Count(int(falls.sum()), f"step {where}", f"steps {where}"))
    if moments is not None:
        order = np.lexsort((moments, ids))
        if (order != np.arange(rows)).any():
            named = " and ".join(f"`{column[0]}`" for column in (episode, time) if column is not None)
            notes.append(f"rows are put in the order of {named}")
    ids = ids[order]
    cuts = np.append(ids[1:] != ids[:-1], True)
    skips = np.zeros(rows, dtype=bool)
    if moments is not None and time is not None:
        cuts = cuts | _gaps(moments[order], cuts, places.take(order), time[0], source, notes)
        inside = np.flatnonzero(~cuts)
        skips[inside] = skipped_samples(moments[order][inside], moments[order][inside + 1])
    if cut_gaps and skips.any():
        most = f"of at most {GAP:g} usual time steps"
        notes.append(
            Count(int(skips.sum()), f"gap {most} cuts an episode (cut_gaps)", f"gaps {most} cut episodes (cut_gaps)")
        )
        cuts, skips = cuts | skips, np.zeros_like(skips)
    return order, ids, cuts, skips


def _identifiers(name: str, values: NDArray[Any], source: str, places: SourceRows) -> NDArray[np.int64]:
    """Episodes numbered as they first appear."""
    empty = np.isnan(values) if values.dtype.kind == "f" else np.array([is_empty(value) for value in values.tolist()])
    if empty.any():
        first = int(np.flatnonzero(empty)[0])
        where = f"{int(empty.sum())} rows (first: {places.place(first)})"
        raise DatasetError(f"{source}: column `{name}` is empty in {where}; set an episode for each")
    if values.dtype.kind not in "fiub":  # as one array, every text would take the room of the longest
        numbers: dict[str, int] = {}
        return np.array([numbers.setdefault(str(value), len(numbers)) for value in values.tolist()], dtype=np.int64)
    _, first_rows, inverse = np.unique(values, return_index=True, return_inverse=True)
    return np.asarray(np.argsort(np.argsort(first_rows))[inverse.reshape(-1)], dtype=np.int64)


def _gaps(
    moments: NDArray[np.float64], cuts: NDArray[np.bool_], places: SourceRows, name: str, source: str, notes: list[Note]
) -> NDArray[np.bool_]:
    """Rows followed by a gap in time, compared with the usual step of their own episode."""
    steps = np.diff(moments, append=moments[-1])
    if (repeated := np.flatnonzero((steps <= 0) & ~cuts)).size:
        where = f"{repeated.size} rows (first: {places.place(int(repeated[0]))})"
        raise DatasetError(
            f"{source}: `{name}` repeats inside an episode in {where}; is an `episode` column missing from the column map?"
        )
    if not (~cuts).any():
        return np.zeros_like(cuts)
    overall = float(np.median(steps[~cuts]))
    last = np.flatnonzero(cuts)
    usual = np.empty(len(moments))
    for start, stop in zip(np.append(0, last[:-1] + 1), last + 1, strict=True):
        inside = steps[start : stop - 1]
        own = float(np.median(inside)) if len(inside) else overall
        usual[start:stop] = own if len(inside) >= _ENOUGH_STEPS else max(own, overall)
    gaps = (steps > GAP * usual) & ~cuts
    if gaps.any():
        least = f"of more than {GAP:g} usual time steps"
        notes.append(Count(int(gaps.sum()), f"gap {least} cuts an episode", f"gaps {least} cut episodes"))
    return gaps


def _moments(name: str, values: NDArray[Any], source: str, places: SourceRows) -> NDArray[np.float64]:
    """Times as numbers: numbers themselves, dates in seconds."""
    if values.dtype.kind in "fiub":
        moments = values.astype(np.float64)
    else:
        try:
            moments = np.array([float(str(value).replace(",", ".")) for value in values.tolist()])
        except (TypeError, ValueError):
            moments = date_seconds(values, f"{source}: column `{name}`", places)
    if not np.isfinite(moments).all():
        first = int(np.flatnonzero(~np.isfinite(moments))[0])
        raise DatasetError(f"{source}: column `{name}` is empty in {places.place(first)}, so the rows cannot be ordered")
    return moments
