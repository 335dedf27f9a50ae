"""Offline data for a run: built from its config, processed once, packed for the device."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training import rng
from rl_training.algorithms.learner import Learner, Metrics
from rl_training.data.batch import Batch
from rl_training.data.dataset_loaders import load_dataset
from rl_training.data.environments import infer_env_spaces
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import mix_datasets
from rl_training.data.packing import RowLayout
from rl_training.data.recipes import make_dataset
from rl_training.data.returns import compute_returns_to_go
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.errors import ConfigError, DatasetError
from rl_training.rng import Draws
from rl_training.runtime.engine import Engine, chunk_length
from rl_training.runtime.settings import RunSettings


def build_offline_dataset(settings: RunSettings, check: Callable[[], None] = lambda: None) -> TransitionDataset:
    """Return the dataset a config asks for: a recipe, a file, or a weighted mixture of them."""
    parts = settings.algo_kwargs.dataset
    if not parts:
        raise ConfigError("there is no dataset: set algo_kwargs.dataset (a recipe `kind` or a file `path`), or pass one")
    datasets = []
    for part in parts:
        if part.path is not None:
            datasets.append(load_dataset(part.path, part.format))
        elif settings.env_id is None:
            raise ConfigError(f"the recipe `{part.kind}` needs an environment: set env_id, or give a file as dataset.path")
        else:
            datasets.append(make_dataset(settings.env_id, part, check))
    if len(datasets) == 1:
        return datasets[0]
    weights = None if parts[0].weight is None else [part.weight for part in parts]
    return mix_datasets(datasets, weights, seed=parts[0].seed)


@dataclass(frozen=True, eq=False)
class ProcessedDataset:
    """A dataset as learners see it: normalised, transformed, one packed row per transition."""

    rows: NDArray[np.float32]  # (rows, width): the fields of `layout`, side by side
    layout: RowLayout
    spaces: Spaces
    transforms: Transforms
    fingerprint: str
    timeouts: NDArray[np.bool_]  # (rows,)

    def replay_rows(self, layout: RowLayout) -> NDArray[np.float32]:
        """Return the rows in the layout of a replay buffer."""
        columns = self.layout.columns(torch.from_numpy(self.rows))
        arrays = {name: value.numpy() for name, value in columns.items()}
        return layout.pack({**arrays, "timeouts": self.timeouts})


def process_offline_dataset(
    dataset: TransitionDataset, settings: RunSettings, *, returns_to_go: bool = False
) -> ProcessedDataset:
    """Return the dataset normalised and packed; actions go to [-1, 1] by the environment's bounds, or the recorded ones.

    With `returns_to_go` the Monte-Carlo returns are derived from the processed rewards, with the run's `gamma`, `tail` and
    `failure_reward`; what the dataset itself may hold of them belongs to other rewards and is not used.
    """
    kwargs = settings.algo_kwargs
    spaces = dataset.spaces
    if settings.env_id is not None:
        spaces = infer_env_spaces(settings.env_id)
        if (spaces.observation_dim, spaces.action_dim) != (dataset.observation_dim, dataset.action_dim):
            raise DatasetError(
                f"the data has {dataset.observation_dim} observations and {dataset.action_dim} actions, "
                f"{settings.env_id} has {spaces.observation_dim} and {spaces.action_dim}; check env_id and the dataset"
            )
    actions = spaces.normalize_actions(dataset.actions)
    if (worst := float(np.abs(actions).max())) > 1.0 + 1e-3:
        row = int(np.abs(actions).max(axis=1).argmax())
        raise DatasetError(
            f"actions leave the bounds {spaces.action_low.tolist()} to {spaces.action_high.tolist()} "
            f"(row {row} is {worst:.3g} times the range); check env_id and the units of the actions"
        )
    transforms = Transforms.fit(dataset, normalize_observations=kwargs.normalize_observations, reward=kwargs.reward)
    columns = {
        "observations": transforms.observations(dataset.observations),
        "actions": np.clip(actions, -1.0, 1.0),
        "rewards": transforms.rewards(dataset.rewards),
        "next_observations": transforms.observations(dataset.next_observations),
        "terminals": dataset.terminals,
    }
    if dataset.next_actions is not None:
        columns["next_actions"] = np.clip(spaces.normalize_actions(dataset.next_actions), -1.0, 1.0)
    for name, value in columns.items():
        if not np.isfinite(value).all():
            raise DatasetError(f"`{name}` overflows to inf once transformed; check the units, or set algo_kwargs.reward.clip")
    if returns_to_go:
        ends = (columns["rewards"], dataset.terminals, dataset.timeouts)
        columns["returns_to_go"] = compute_returns_to_go(*ends, kwargs.gamma, kwargs.tail, kwargs.failure_reward)
    layout = RowLayout.of_columns(columns)
    return ProcessedDataset(layout.pack(columns), layout, spaces, transforms, dataset.fingerprint, dataset.timeouts)


class DatasetSource:
    """Batches of a processed dataset on the training device: each a function of (seed, step) alone."""

    def __init__(
        self, data: ProcessedDataset, seeds: Tensor, batch_size: int, device: torch.device, *, prior: bool = False
    ) -> None:
        self.rows = torch.from_numpy(data.rows).to(device)
        self._prior = torch.ones(len(seeds), batch_size, device=device) if prior else None
        self.layout = data.layout
        self.seeds = seeds
        self.batch_size = batch_size

    @property
    def steps_per_epoch(self) -> int:
        """Gradient steps that see as many rows as the dataset has."""
        return -(-len(self.rows) // self.batch_size)

    def indices(self, first_step: int, count: int) -> Tensor:
        """Return the row numbers of a chunk of steps, (members, count, batch)."""
        steps = torch.arange(first_step, first_step + count, device=self.seeds.device)
        return rng.integers(self.seeds, "batches", steps, (self.batch_size,), high=len(self.rows))

    def batch(self, indices: Tensor) -> Batch:
        """Return the transitions at (members, batch) row numbers: one gather, then views."""
        batch = self.layout.batch(self.rows.index_select(0, indices.reshape(-1)).view(*indices.shape, -1))
        return batch if self._prior is None else replace(batch, prior=self._prior)


class OfflineEngine(Engine):
    """Gradient steps on a fixed dataset; a position is a gradient step."""

    def __init__(
        self,
        learner: Learner[Any, Any],
        source: DatasetSource,
        schedules: Mapping[str, str],
        total: int,
        span: int | None = None,
    ) -> None:
        super().__init__(learner, schedules, total, chunk_length(learner, source.batch_size), span)
        self.source = source

    def run(self, first: int, count: int) -> Metrics:
        """Take `count` gradient steps and return the metrics of the last."""
        indices = self.source.indices(first, count)
        draws = Draws.of_steps(self.source.seeds, first, count)
        metrics: Metrics = {}
        for offset in range(count):
            batch, rates = self.source.batch(indices[:, offset]), self.rates(first + offset)
            metrics = self.learner.train_step(batch, draws.at(offset), rates, report=offset == count - 1)
        return metrics
