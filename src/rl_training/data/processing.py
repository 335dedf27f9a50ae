"""Data as learners see it: normalised, transformed, one packed row per transition; in memory, or packed as it is read."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.config.blocks import OfflineKwargs
from rl_training.data.n_step import NStep
from rl_training.data.packing import OPTIONAL, RowLayout, row_layout
from rl_training.data.reading.guards import memory_limit
from rl_training.data.returns import compute_returns_to_go
from rl_training.data.row_blocks import blocks, spread_evenly
from rl_training.data.row_view import RowView
from rl_training.data.spaces import Spaces
from rl_training.data.store.records import RecordFile
from rl_training.data.transforms import Transforms
from rl_training.errors import ConfigError, DatasetError

_VARIANCE_ROWS = 50_000

Read = Callable[[NDArray[np.int64]], Callable[[str], NDArray[Any]]]
"""Reads rows of a view: their numbers in, then raw fields by name."""


@dataclass(frozen=True, eq=False)
class Processing:
    """How raw transitions become packed rows: a function of the row and its episode, so it may be applied at any time."""

    view: RowView
    spaces: Spaces
    transforms: Transforms
    layout: RowLayout
    n_step: NStep
    sums: Mapping[str, NDArray[np.float32]]  # fields that add up rows, computed beforehand

    def pack(self, rows: NDArray[np.int64], read: Read) -> NDArray[np.float32]:
        """Return packed rows by number."""
        first = final = read(rows)
        final_rows = rows
        if self.n_step.steps > 1:
            final_rows = np.minimum(rows + self.n_step.steps - 1, self.view.last_rows(rows))
            final = read(final_rows)
        columns: dict[str, NDArray[Any]] = {
            "observations": self.transforms.observations(first("observations")),
            "actions": self._actions(first("actions")),
            "rewards": self.transforms.rewards(first("rewards")),
            "next_observations": self.transforms.observations(final("next_observations")),
            "terminals": final("terminals"),
        }
        if self.layout.has("next_actions"):
            columns["next_actions"] = self._next_actions(final_rows, read)
        if self.layout.has("discounts"):
            columns["discounts"] = self.n_step.discounts(final_rows - rows + 1)
        return self.layout.pack({**columns, **{name: values[rows] for name, values in self.sums.items()}})

    def _actions(self, actions: NDArray[Any]) -> NDArray[np.float32]:
        return np.clip(self.spaces.normalize_actions(actions), -1.0, 1.0)

    def _next_actions(self, rows: NDArray[np.int64], read: Read) -> NDArray[np.float32]:
        """The stored next actions, else those of the following rows; NaN, which is unknown, where an episode was cut."""
        if self.view.dataset.next_actions is not None:
            return self._actions(read(rows)("next_actions"))
        last = self.view.last_rows(rows)
        actions = self._actions(read(np.minimum(rows + 1, last))("actions"))
        actions[(rows == last) & ~read(rows)("terminals")] = np.nan
        return actions


@dataclass(frozen=True, eq=False)
class ProcessedDataset:
    """Packed rows in memory."""

    rows: NDArray[np.float32]  # (rows, width): the fields of `layout`, side by side
    layout: RowLayout
    spaces: Spaces
    transforms: Transforms
    fingerprint: str
    timeouts: NDArray[np.bool_]  # (rows,)

    def __len__(self) -> int:
        return len(self.rows)

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return packed rows by number."""
        return self.rows[rows]

    def replay_rows(self, layout: RowLayout) -> NDArray[np.float32]:
        """Return the rows in the layout of a replay buffer."""
        columns = self.layout.columns(torch.from_numpy(self.rows))
        arrays = {name: value.numpy() for name, value in columns.items()}
        return layout.pack({**arrays, "timeouts": self.timeouts})


@dataclass(frozen=True, eq=False)
class StreamedDataset:
    """Rows on disk, packed when they are fetched: exactly the numbers that `ProcessedDataset` holds."""

    records: RecordFile
    processing: Processing
    limit: int  # bytes beyond which the data stays on disk

    def __len__(self) -> int:
        return len(self.processing.view)

    @property
    def layout(self) -> RowLayout:
        """The fields of a packed row."""
        return self.processing.layout

    @property
    def spaces(self) -> Spaces:
        """Sizes and action bounds."""
        return self.processing.spaces

    @property
    def transforms(self) -> Transforms:
        """Observation and reward transforms."""
        return self.processing.transforms

    def fetch(self, rows: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return packed rows by number, read from disk."""
        view = self.processing.view
        return self.processing.pack(rows, lambda wanted: self.records.fetch(view.absolute(wanted)).__getitem__)


RunData = ProcessedDataset | StreamedDataset


@dataclass(frozen=True, eq=False)
class Fitted:
    """The spaces and transforms of a run that continues."""

    spaces: Spaces
    transforms: Transforms


def spread_rows(data: RunData, most: int) -> torch.Tensor:
    """Return at most `most` packed rows, spread evenly over the data."""
    return torch.from_numpy(np.ascontiguousarray(data.fetch(spread_evenly(len(data), most))))


def action_variance(data: RunData) -> float:
    """Return the variance of the actions as learners see them, averaged over the columns."""
    actions = data.layout.columns(spread_rows(data, _VARIANCE_ROWS))["actions"]
    return float(actions.double().var(dim=0, correction=0).mean())


def process_dataset(
    view: RowView,
    kwargs: OfflineKwargs,
    spaces: Spaces,
    *,
    needs: Collection[str] = (),
    like: RunData | Fitted | None = None,
) -> RunData:
    """Return rows of a dataset, normalised and packed; actions are mapped to [-1, 1] by the bounds of `spaces`.

    `needs` are the optional fields of a batch to include. `returns_to_go` are derived from the processed rewards, with the
    run's `gamma`, `tail` and `failure_reward`; any stored in the dataset belong to other rewards and are ignored.
    `next_actions` are the stored ones, else those of the following rows, NaN where an episode was cut. With an `n_step` above
    1 a row spans that many steps, and has `discounts`. `like` reuses the spaces and transforms of data processed before.
    Mapped data that would take more memory than `max_dataset_bytes` stay on disk and yield the same rows.
    """
    dataset = view.dataset
    if not spaces.learned_dim:
        raise DatasetError("no action column ever changes, so there is nothing to learn; check the action columns")
    if like is None:
        normalize, reward = kwargs.normalize_observations is not False, kwargs.reward_transform  # here is data to fit it on
        transforms = Transforms.fit(view, normalize_observations=normalize, reward=reward)
    else:
        spaces, transforms = like.spaces, like.transforms
        if (spaces.observation_dim, spaces.action_dim) != (dataset.observation_dim, dataset.action_dim):
            raise DatasetError("the validation data differs from the training data in its observations or actions")
    n_step = NStep.of(kwargs)
    sums = {"returns_to_go": _returns(view, transforms, kwargs)} if "returns_to_go" in needs else {}
    if n_step.steps > 1:
        needs, sums["rewards"] = {*needs, "discounts"}, _n_step_rewards(view, transforms, n_step)
    layout = row_layout(spaces.observation_dim, spaces.learned_dim, needs)
    processing = Processing(view, spaces, transforms, layout, n_step, sums)
    limit = memory_limit(kwargs.max_dataset_bytes)
    streamed = dataset.records is not None and len(view) * processing.layout.width * 4 > limit
    rows = np.empty((0 if streamed else len(view), processing.layout.width), dtype=np.float32)
    for part in blocks(len(view)):
        _check_actions(view.read("actions", part), spaces, part.start)
        packed = processing.pack(np.arange(part.start, part.stop), lambda wanted: lambda name: view.take(name, wanted))
        _check_finite(packed, processing.layout)
        if not streamed:
            rows[part] = packed
    if dataset.records is not None and streamed:
        return StreamedDataset(dataset.records, processing, limit)
    return ProcessedDataset(
        rows, processing.layout, spaces, transforms, dataset.fingerprint, view.ends & ~view.whole("terminals")
    )


def _returns(view: RowView, transforms: Transforms, kwargs: Any) -> NDArray[np.float32]:
    """The returns-to-go of the processed rewards."""
    rewards, terminals = transforms.rewards(view.whole("rewards")), view.whole("terminals")
    rules = (kwargs.gamma, kwargs.tail, kwargs.failure_reward)
    return compute_returns_to_go(rewards, terminals, view.ends & ~terminals, *rules)


def _n_step_rewards(view: RowView, transforms: Transforms, n_step: NStep) -> NDArray[np.float32]:
    """The discounted processed rewards of the steps from each row."""
    result = np.empty(len(view), dtype=np.float32)
    for part in blocks(len(view)):
        window = slice(part.start, min(part.stop + n_step.steps - 1, len(view)))
        sums, _ = n_step.sums(transforms.rewards(view.read("rewards", window)), view.ends[window])
        result[part] = sums[: part.stop - part.start]
    return result


def in_memory(data: RunData, what: str) -> ProcessedDataset:
    """Return data that is in memory, or raise a ConfigError that `what` needs it there."""
    if isinstance(data, StreamedDataset):
        raise ConfigError(f"{what} needs its prior data in memory; raise algo_kwargs.max_dataset_bytes (now {data.limit:,})")
    return data


def _check_actions(actions: NDArray[Any], spaces: Spaces, first_row: int) -> None:
    outside = np.argwhere(spaces.outside(actions))
    if len(outside):
        row, column = (int(place) for place in outside[0])
        name, low, high = spaces.action_name(column), spaces.action_low[column], spaces.action_high[column]
        raise DatasetError(
            f"actions leave the bounds: `{name}` is {actions[row, column]:.6g} in row {first_row + row}, "
            f"outside {low:.6g} to {high:.6g}; check env_id and the units of the actions, or run `rl-training data doctor`"
        )


def _check_finite(packed: NDArray[np.float32], layout: RowLayout) -> None:
    if np.isfinite(packed).all():
        return
    for name, values in layout.columns(torch.from_numpy(packed)).items():
        # an unknown next action is NaN, and a return of -inf is no floor
        if name not in OPTIONAL and not bool(torch.isfinite(values).all()):
            raise DatasetError(f"`{name}` overflows to inf once transformed; check the units, or set algo_kwargs.reward.clip")
