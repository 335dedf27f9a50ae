"""Logged episodes as the estimators use them: whole episodes, columns without units, policies as columns of actions."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.returns import RewardRange
from rl_training.data.row_view import RowView
from rl_training.data.transforms import OBSERVATION_LIMIT, center_and_spread
from rl_training.errors import DatasetError

Act = Callable[[NDArray[np.float32]], NDArray[np.float32]]
"""A policy: real actions (rows, action_dim) for real observations (rows, observation_dim)."""

FEWEST = 30  # episodes; fewer are cut into parts
_SHORTEST = 20  # rows of a part
_BLOCK = 16_384  # rows that a policy acts on at once


@dataclass(frozen=True, eq=False)
class Scaling:
    """Columns without units: mean 0, deviation 1, bounded where nothing is known; one that never changes is 0."""

    mean: NDArray[np.float32]
    std: NDArray[np.float32]  # inf for a column that never changes

    def __call__(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return columns without units."""
        scaled = ((values - self.mean) / self.std).astype(np.float32)
        return np.clip(scaled, -OBSERVATION_LIMIT, OBSERVATION_LIMIT)

    def real(self, values: NDArray[np.float32]) -> NDArray[np.float32]:
        """Return columns in their own units."""
        spread = np.where(np.isfinite(self.std), self.std, 0.0)
        return np.asarray(values * spread + self.mean, dtype=np.float32)


@dataclass(frozen=True, eq=False)
class Episodes:
    """Whole episodes of a dataset in memory, and how their columns lose their units."""

    observations: NDArray[np.float32]  # (rows, observation_dim), real
    actions: NDArray[np.float32]  # (rows, action_dim), real
    rewards: NDArray[np.float64]
    next_observations: NDArray[np.float32]
    terminals: NDArray[np.bool_]
    lengths: NDArray[np.int64]  # of each episode
    numbers: NDArray[np.int64]  # of each in the dataset; parts of one episode have its number
    of_observations: Scaling
    of_actions: Scaling

    @classmethod
    def of(cls, dataset: TransitionDataset, most_rows: int) -> "Episodes":
        """Return at most about `most_rows` rows: all episodes, or some that are spread evenly over the data.

        A few long episodes are cut into parts, which count as episodes: as many as statistics over them need.
        """
        chosen, sizes = _chosen(dataset, most_rows)
        view, own = RowView(dataset, chosen), np.concatenate(sizes)
        if len(own) < 2:
            raise DatasetError(f"the data has {len(view)} rows of one episode, too few to estimate values from; log more")
        fields = {name: view.whole(name).astype(np.float32) for name in ("observations", "actions", "next_observations")}
        return cls(
            **fields,
            rewards=view.whole("rewards").astype(np.float64),
            terminals=view.whole("terminals"),
            lengths=own,
            numbers=np.repeat(chosen, [len(one) for one in sizes]),
            of_observations=Scaling(*center_and_spread(fields["observations"])),
            of_actions=Scaling(*center_and_spread(fields["actions"])),
        )

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def whole(self) -> int:
        """The number of episodes of the dataset, of which parts may count as episodes here."""
        return len(np.unique(self.numbers))

    @cached_property
    def starts(self) -> NDArray[np.int64]:
        """The first row of each episode."""
        return np.append(0, np.cumsum(self.lengths)[:-1]).astype(np.int64)

    @cached_property
    def episode(self) -> NDArray[np.int64]:
        """The episode of each row, counted from 0."""
        return np.repeat(np.arange(len(self.lengths)), self.lengths)

    @cached_property
    def step(self) -> NDArray[np.int64]:
        """The number of each row in its episode, counted from 0."""
        return np.arange(len(self)) - np.repeat(self.starts, self.lengths)

    @cached_property
    def cut(self) -> NDArray[np.bool_]:
        """Whether each episode was cut, so that it would have gone on."""
        ended: NDArray[np.bool_] = self.terminals[self.starts + self.lengths - 1]
        return ~ended

    def possible_values(self, gamma: float) -> tuple[float, float]:
        """Return the lowest and the highest discounted return that the rewards allow."""
        return RewardRange.of(self.rewards, self.terminals).values(gamma)

    def whole_returns(self) -> NDArray[np.float64]:
        """Return the return of each episode of the dataset, of which parts may count as episodes here."""
        own = np.unique(self.numbers[self.episode], return_inverse=True)[1]
        return np.asarray(np.bincount(own, weights=self.rewards), dtype=np.float64)

    def returns(self, gamma: float = 1.0) -> NDArray[np.float64]:
        """Return the return of each episode, as far as it was logged."""
        return np.add.reduceat(self.rewards * gamma**self.step, self.starts)


@dataclass(frozen=True, eq=False)
class Behaviour:
    """What a policy does in logged episodes, as unitless actions: at every observation and at every next one."""

    here: Tensor  # (rows, action_dim)
    following: Tensor  # (rows, action_dim)

    @classmethod
    def of(cls, act: Act, episodes: Episodes) -> "Behaviour":
        """Return what a policy does."""
        return cls(*(_acting(act, episodes, rows) for rows in (episodes.observations, episodes.next_observations)))

    @classmethod
    def logged(cls, episodes: Episodes) -> "Behaviour":
        """Return what was logged; after the last row of an episode, where nothing was, what was done before."""
        here = torch.from_numpy(episodes.of_actions(episodes.actions))
        following = here.roll(-1, 0)
        last = torch.from_numpy(episodes.starts + episodes.lengths - 1)
        following[last] = here[last]
        return cls(here, following)


def _acting(act: Act, episodes: Episodes, observations: NDArray[np.float32]) -> Tensor:
    parts = [act(observations[first : first + _BLOCK]) for first in range(0, len(observations), _BLOCK)]
    return torch.from_numpy(episodes.of_actions(np.concatenate(parts)))


def episodes_and_parts(dataset: TransitionDataset, most_rows: int) -> tuple[int, int]:
    """Return how many episodes `Episodes.of` uses, and how many parts of them it counts; equal where none is cut."""
    sizes = _chosen(dataset, most_rows)[1]
    return len(sizes), sum(map(len, sizes))


def _chosen(dataset: TransitionDataset, most_rows: int) -> tuple[NDArray[np.int64], list[NDArray[np.int64]]]:
    """The numbers of the episodes that are used, and the sizes of the parts of each."""
    lengths = dataset.episode_spans[1]
    chosen = np.arange(len(lengths))
    if len(dataset) > most_rows:
        count = max(1, int(len(lengths) * most_rows / len(dataset)))
        chosen = np.unique(np.linspace(0, len(lengths) - 1, count).round().astype(np.int64))
    rows = int(lengths[chosen].sum())
    part = max(_SHORTEST, rows // FEWEST) if len(chosen) < FEWEST else rows
    return chosen, [_sizes(int(length), part) for length in lengths[chosen]]


def _sizes(length: int, part: int) -> NDArray[np.int64]:
    """The sizes of about equal parts of an episode."""
    ends = np.linspace(0, length, max(1, round(length / part)) + 1).round().astype(np.int64)
    return np.diff(ends)
