"""A view of some episodes of a dataset: nothing is copied, so it works for data larger than memory."""

from collections.abc import Iterator, Sequence
from functools import cached_property
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.row_blocks import blocks

PART = 500_000  # rows copied at a time when a view is written


class Column:
    """A field of a view: it has a length and slices, which is all that a pass in blocks needs."""

    def __init__(self, view: "RowView", name: str) -> None:
        self._view, self._name = view, name

    def __len__(self) -> int:
        return len(self._view)

    def __getitem__(self, part: slice) -> NDArray[Any]:
        return self._view.read(self._name, part)


class RowView:
    """Rows of chosen episodes in the order given; all episodes by default."""

    def __init__(self, dataset: TransitionDataset, episodes: Sequence[int] | NDArray[np.intp] | None = None) -> None:
        self.dataset = dataset
        starts, lengths = dataset.episode_spans
        self.episodes = np.arange(len(starts)) if episodes is None else np.asarray(episodes, dtype=np.intp)
        self._starts = None if episodes is None else starts[self.episodes]
        self._offsets = np.append(0, np.cumsum(lengths[self.episodes]))

    def __len__(self) -> int:
        return int(self._offsets[-1])

    def absolute(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the row numbers in the dataset of row numbers in the view."""
        if self._starts is None:
            return rows
        episode = self._episode(rows)
        return np.asarray(self._starts[episode] + (rows - self._offsets[episode]), dtype=np.int64)

    def _episode(self, rows: NDArray[np.int64]) -> NDArray[np.intp]:
        return np.searchsorted(self._offsets, rows, side="right") - 1

    def last_rows(self, rows: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return the last row of the episode that each row belongs to."""
        return np.asarray(self._offsets[self._episode(rows) + 1] - 1, dtype=np.int64)

    def take(self, name: str, rows: NDArray[np.int64]) -> NDArray[Any]:
        """Return some rows of a field."""
        values: NDArray[Any] = getattr(self.dataset, name)
        return values[self.absolute(rows)]

    def read(self, name: str, part: slice) -> NDArray[Any]:
        """Return a slice of a field."""
        values: NDArray[Any] = getattr(self.dataset, name)
        if self._starts is None:
            return values[part]
        return values[self.absolute(np.arange(*part.indices(len(self)), dtype=np.int64))]

    def column(self, name: str) -> Column:
        """Return a field for passes in blocks."""
        return Column(self, name)

    def whole(self, name: str) -> NDArray[Any]:
        """Return a whole field in memory; meant for fields with one number per row."""
        return self.read(name, slice(0, len(self)))

    @cached_property
    def ends(self) -> NDArray[np.bool_]:
        """True on the last row of each episode."""
        ends = self.whole("terminals") | self.whole("timeouts")
        ends[-1] = True
        return np.asarray(ends)

    def episode_returns(self) -> NDArray[np.float64]:
        """Return the undiscounted return of each episode."""
        return self.dataset.episode_returns()[self.episodes]

    def parts(self, rows: int = PART) -> "Iterator[RowView]":
        """Yield views of whole episodes in order, of about `rows` rows each."""
        lengths = self.dataset.episode_spans[1][self.episodes]
        numbers = np.append(0, np.cumsum(lengths)[:-1]) // rows
        for group in np.split(self.episodes, np.flatnonzero(np.diff(numbers)) + 1):
            yield RowView(self.dataset, group)

    def copy(self) -> TransitionDataset:
        """Return the rows as a dataset of their own, in memory."""
        data = self.dataset
        fields = {name: np.concatenate([self.read(name, part) for part in blocks(len(self))]) for name in data.fields()}
        fields["timeouts"] = fields["timeouts"] | (self.ends & ~fields["terminals"])
        bounds = {"action_low": data.action_low, "action_high": data.action_high}
        names = {"observation_names": data.observation_names, "action_names": data.action_names}
        parts = None if data.cut_from is None else data.cut_from[self.episodes]
        unseen = None if data.unseen_rewards is None else self.whole("unseen_rewards")
        texts = {"origin": data.origin, "origin_in_short": data.origin_in_short}
        known = {**bounds, **names, **texts, "cut_from": parts, "unseen_rewards": unseen}
        return TransitionDataset(**fields, **known)  # type: ignore[arg-type]
