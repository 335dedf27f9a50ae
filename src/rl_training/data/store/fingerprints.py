"""Content fingerprints: SHA-256 over every field, the same for equal data whether it is split, read or mapped."""

import hashlib
import os
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.row_blocks import BLOCK, blocks

_LANES = 2
_SUCCESSORS = ("next_observations/rows", "next_observations/values")


class Fingerprints:
    """Digests of the fields of a dataset that arrives in parts; a part ends with an episode, or with the data.

    Inside an episode the next observation is usually the observation of the following row, which is hashed already. So only
    next observations that differ from it, and those at the end of an episode, are hashed, with their row numbers.
    """

    def __init__(self) -> None:
        self._digests: dict[str, Any] = {}
        self._shapes: dict[str, tuple[str, tuple[int, ...]]] = {}
        self._rows = 0

    def add(self, fields: Mapping[str, NDArray[Any]]) -> None:
        """Add the next rows."""
        own = {name: values for name, values in fields.items() if name != "next_observations"}
        for name in (*(f"{name}/{lane}" for name in own for lane in range(_LANES)), *_SUCCESSORS):
            self._digests.setdefault(name, hashlib.sha256())
        for name, values in fields.items():
            self._shapes[name] = (values.dtype.str, values.shape[1:])
        with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
            jobs = [pool.submit(self._hash, name, values, lane) for name, values in own.items() for lane in range(_LANES)]
            self._hash_successors(fields)
            for job in jobs:
                job.result()
        self._rows += len(fields["rewards"])

    def _hash(self, name: str, values: NDArray[Any], lane: int) -> None:
        """Hash every other block of a field, so that two threads can share a wide one."""
        for part in blocks(len(values), self._rows):
            if (self._rows + part.start) // BLOCK % _LANES == lane:
                self._digests[f"{name}/{lane}"].update(np.ascontiguousarray(values[part]).data)

    def _hash_successors(self, fields: Mapping[str, NDArray[Any]]) -> None:
        observations, following = fields["observations"], fields["next_observations"]
        ends = fields["terminals"] | fields["timeouts"]
        ends[-1] = True
        for part in blocks(len(following)):
            rows = np.flatnonzero(ends[part])
            if observations.dtype == following.dtype:
                after = observations[part.start + 1 : part.stop + 1]
                rows = np.union1d(rows, _different(after, following[part.start : part.start + len(after)]))
            else:
                rows = np.arange(part.stop - part.start)
            self._digests[_SUCCESSORS[0]].update((rows + part.start + self._rows).astype("<i8").data)
            self._digests[_SUCCESSORS[1]].update(np.ascontiguousarray(following[part][rows]).data)

    def content(self) -> str:
        """Return the fingerprint of all rows added."""
        lines = [f"{name} {digest.hexdigest()}" for name, digest in self._digests.items()]
        lines += [f"{name} {kind} {(self._rows, *shape)}" for name, (kind, shape) in self._shapes.items()]
        return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def with_bounds(content: str, bounds: Mapping[str, NDArray[Any] | None]) -> str:
    """Return the fingerprint of a dataset from those of its content and its action bounds."""
    known = [f"{name} {bound.astype('<f4').tobytes().hex()}" for name, bound in bounds.items() if bound is not None]
    return hashlib.sha256("\n".join([content, *known]).encode()).hexdigest()


def _different(first: NDArray[Any], second: NDArray[Any]) -> NDArray[np.intp]:
    """The rows in which two arrays differ in any bit."""
    bits = np.dtype(f"u{first.dtype.itemsize}")
    unequal = np.ascontiguousarray(first).view(bits) != np.ascontiguousarray(second).view(bits)
    return np.unique(np.flatnonzero(unequal) // first.shape[1])
