"""Data as learners see it: normalised, transformed, one packed row per transition; in memory, or packed as it is read."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.config.blocks import OfflineKwargs
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.packing import RowLayout
from rl_training.data.reading.guards import memory_limit
from rl_training.data.returns import compute_returns_to_go
from rl_training.data.row_blocks import blocks, spread_evenly
from rl_training.data.row_view import RowView
from rl_training.data.spaces import Spaces
from rl_training.data.store.records import RecordFile
from rl_training.data.transforms import Transforms
from rl_training.errors import ConfigError, DatasetError

_VARIANCE_ROWS = 50_000


@dataclass(frozen=True)
class Processing:
    """How a raw transition becomes a packed row: a function of the row alone, so it may be applied at any time."""

    spaces: Spaces
    transforms: Transforms
    layout: RowLayout

    def pack(self, raw: Mapping[str, NDArray[Any]], returns: NDArray[np.float32] | None = None) -> NDArray[np.float32]:
        """Return packed rows of raw fields (rows, ...), with their returns if the layout has them."""
        columns: dict[str, NDArray[Any]] = {
            "observations": self.transforms.observations(raw["observations"]),
            "actions": np.clip(self.spaces.normalize_actions(raw["actions"]), -1.0, 1.0),
            "rewards": self.transforms.rewards(raw["rewards"]),
            "next_observations": self.transforms.observations(raw["next_observations"]),
            "terminals": raw["terminals"],
        }
        if "next_actions" in raw:
            columns["next_actions"] = np.clip(self.spaces.normalize_actions(raw["next_actions"]), -1.0, 1.0)
        if returns is not None:
            columns["returns_to_go"] = returns
        return self.layout.pack(columns)


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

    view: RowView
    records: RecordFile
    processing: Processing
    returns: NDArray[np.float32] | None
    limit: int  # bytes beyond which the data stays on disk

    def __len__(self) -> int:
        return len(self.view)

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
        records = self.records.fetch(self.view.absolute(rows))
        raw = {name: records[name] for name in records.dtype.names or ()}
        return self.processing.pack(raw, None if self.returns is None else self.returns[rows])


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
    returns_to_go: bool = False,
    like: RunData | Fitted | None = None,
) -> RunData:
    """Return rows of a dataset, normalised and packed; actions are mapped to [-1, 1] by the bounds of `spaces`.

    With `returns_to_go` the Monte-Carlo returns are derived from the processed rewards, with the run's `gamma`, `tail` and
    `failure_reward`; any stored in the dataset belong to other rewards and are ignored. `like` reuses the spaces and
    transforms of data processed before. Mapped data that would take more memory than `max_dataset_bytes` stay on disk and
    yield the same rows.
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
    returns = _returns(view, transforms, kwargs) if returns_to_go else None
    processing = Processing(spaces, transforms, _layout(dataset, spaces, returns_to_go=returns_to_go))
    limit = memory_limit(kwargs.max_dataset_bytes)
    streamed = dataset.records is not None and len(view) * processing.layout.width * 4 > limit
    rows = np.empty((0 if streamed else len(view), processing.layout.width), dtype=np.float32)
    for part in blocks(len(view)):
        raw = {name: view.read(name, part) for name in _fields(dataset)}
        _check_actions(raw["actions"], spaces, part.start)
        packed = processing.pack(raw, None if returns is None else returns[part])
        _check_finite(packed, processing.layout)
        if not streamed:
            rows[part] = packed
    if dataset.records is not None and streamed:
        return StreamedDataset(view, dataset.records, processing, returns, limit)
    return ProcessedDataset(
        rows, processing.layout, spaces, transforms, dataset.fingerprint, view.ends & ~view.whole("terminals")
    )


def _returns(view: RowView, transforms: Transforms, kwargs: Any) -> NDArray[np.float32]:
    """The returns-to-go of the processed rewards."""
    rewards, terminals = transforms.rewards(view.whole("rewards")), view.whole("terminals")
    rules = (kwargs.gamma, kwargs.tail, kwargs.failure_reward)
    return compute_returns_to_go(rewards, terminals, view.ends & ~terminals, *rules)


def in_memory(data: RunData, what: str) -> ProcessedDataset:
    """Return data that is in memory, or raise a ConfigError that `what` needs it there."""
    if isinstance(data, StreamedDataset):
        raise ConfigError(f"{what} needs its prior data in memory; raise algo_kwargs.max_dataset_bytes (now {data.limit:,})")
    return data


def _fields(dataset: TransitionDataset) -> list[str]:
    return [name for name in dataset.fields() if name not in ("timeouts", "returns_to_go")]


def _layout(dataset: TransitionDataset, spaces: Spaces, *, returns_to_go: bool) -> RowLayout:
    """The layout of a packed row, in the order of `Processing.pack`."""
    wide = {"observations": dataset.observation_dim, "next_observations": dataset.observation_dim}
    wide |= {"actions": spaces.learned_dim, "next_actions": spaces.learned_dim}
    names = ["observations", "actions", "rewards", "next_observations", "terminals"]
    names += ["next_actions"] * (dataset.next_actions is not None) + ["returns_to_go"] * returns_to_go
    return RowLayout(tuple((name, wide.get(name, 1)) for name in names))


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
        if name != "returns_to_go" and not bool(torch.isfinite(values).all()):  # -inf there means no floor
            raise DatasetError(f"`{name}` overflows to inf once transformed; check the units, or set algo_kwargs.reward.clip")
