"""Passes over long arrays in blocks: bounded memory, and the same numbers whether the rows are in memory or on disk."""

from collections.abc import Iterator
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray


class Rows(Protocol):
    """An array, or anything else with a length and slices of rows."""

    def __len__(self) -> int: ...
    def __getitem__(self, part: slice, /) -> NDArray[Any]: ...


BLOCK = 65_536  # rows; a block of a few dozen columns stays in the processor's cache


def blocks(rows: int, first: int = 0) -> Iterator[slice]:
    """Yield slices that cover `rows` rows in order, ending at multiples of BLOCK in row numbers counted from `first`."""
    start = 0
    while start < rows:
        stop = min(start + BLOCK - (first + start) % BLOCK, rows)
        yield slice(start, stop)
        start = stop


def spread_evenly(rows: int, most: int) -> NDArray[np.int64]:
    """Return at most `most` row numbers, spread evenly over `rows` rows."""
    return np.unique(np.linspace(0, rows - 1, min(rows, most)).astype(np.int64))


def column_range(values: Rows) -> tuple[NDArray[Any], NDArray[Any]]:
    """Return the smallest and the largest value of each column of (rows, columns)."""
    parts = [(values[part].min(axis=0), values[part].max(axis=0)) for part in blocks(len(values))]
    return np.min([low for low, _ in parts], axis=0), np.max([high for _, high in parts], axis=0)


def column_moments(values: Rows) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return mean and standard deviation of each column of (rows, columns), summed in double precision."""
    rows = len(values)
    mean = sum(values[part].sum(axis=0, dtype=np.float64) for part in blocks(rows)) / rows
    square = sum(np.square(values[part] - mean).sum(axis=0, dtype=np.float64) for part in blocks(rows)) / rows
    return np.asarray(mean), np.sqrt(square)


def bad_rows(values: NDArray[Any]) -> NDArray[np.intp]:
    """Return the indices of the rows that hold NaN or inf."""
    found = []
    for part in blocks(len(values)):
        flat = values[part].reshape(-1)
        with np.errstate(over="ignore", invalid="ignore"):
            squares = np.dot(flat, flat)
        if np.isfinite(squares):  # the fastest test: only a sum of squares that is not finite needs a closer one
            continue
        finite = np.isfinite(values[part])
        if not finite.all():
            found.append(part.start + np.flatnonzero(~finite.reshape(len(finite), -1).all(axis=1)))
    return np.concatenate(found) if found else np.empty(0, dtype=np.intp)


def breaks(observations: NDArray[Any], next_observations: NDArray[Any]) -> NDArray[np.bool_]:
    """Return, for each row but the last, whether its next observation is not the observation of the row after it.

    Differences that single-precision rounding explains do not count; NaN equals nothing. Columns that differ in most rows
    while most others continue were read again, and are ignored.
    """
    with np.errstate(invalid="ignore"):
        largest = np.max(np.abs([column_range(values) for values in (observations, next_observations)]), axis=(0, 1))
    tolerance = 4e-7 * np.nan_to_num(largest, nan=0.0, posinf=0.0)

    def apart(part: slice) -> NDArray[np.bool_]:
        after = observations[part.start + 1 : part.stop + 1]
        with np.errstate(invalid="ignore"):
            return np.asarray(~(np.abs(after - next_observations[part]) <= tolerance))

    rows = len(observations) - 1
    counts = sum((apart(part).sum(axis=0) for part in blocks(rows)), np.zeros(observations.shape[1], dtype=np.int64))
    moves = np.subtract(*column_range(observations)) != 0
    continues = moves & (2 * counts <= rows)
    kept = continues if 2 * continues.sum() > moves.sum() else np.ones_like(moves)
    return np.concatenate([np.empty(0, dtype=bool), *(apart(part)[:, kept].any(axis=1) for part in blocks(rows))])
