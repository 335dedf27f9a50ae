"""Offline data for a run: built from its config, processed once, packed for the device."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training import rng
from rl_training.data.batch import Batch
from rl_training.data.dataset_loaders import load_dataset
from rl_training.data.environments import infer_env_spaces
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import mix_datasets
from rl_training.data.recipes import make_dataset
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.errors import ConfigError, DatasetError
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

    rows: NDArray[np.float32]  # (rows, width): the columns of `layout`, side by side
    layout: tuple[tuple[str, int], ...]  # (field, width)
    spaces: Spaces
    transforms: Transforms
    fingerprint: str


def process_offline_dataset(dataset: TransitionDataset, settings: RunSettings) -> ProcessedDataset:
    """Return the dataset normalised and packed; actions go to [-1, 1] by the environment's bounds, or the recorded ones."""
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
        "rewards": transforms.rewards(dataset.rewards)[:, None],
        "next_observations": transforms.observations(dataset.next_observations),
        "terminals": dataset.terminals[:, None],
    }
    if dataset.next_actions is not None:
        columns["next_actions"] = np.clip(spaces.normalize_actions(dataset.next_actions), -1.0, 1.0)
    rows = np.concatenate(list(columns.values()), axis=1, dtype=np.float32)
    for name, value in columns.items():
        if not np.isfinite(value).all():
            raise DatasetError(f"`{name}` overflows to inf once transformed; check the units, or set algo_kwargs.reward.clip")
    layout = tuple((name, value.shape[1]) for name, value in columns.items())
    return ProcessedDataset(rows, layout, spaces, transforms, dataset.fingerprint)


class DatasetSource:
    """Batches of a processed dataset on the training device: each a function of (seed, step) alone."""

    def __init__(self, data: ProcessedDataset, seeds: Tensor, batch_size: int, device: torch.device) -> None:
        self.rows = torch.from_numpy(data.rows).to(device)
        self._names = [name for name, _ in data.layout]
        self._widths = [width for _, width in data.layout]
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
        rows = self.rows.index_select(0, indices.reshape(-1)).view(*indices.shape, -1)
        pieces: dict[str, Any] = dict(zip(self._names, torch.split_with_sizes(rows, self._widths, dim=-1), strict=True))
        for name in ("rewards", "terminals"):
            pieces[name] = pieces[name].squeeze(-1)
        return Batch(**pieces)
