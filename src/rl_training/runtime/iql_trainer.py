"""IQL's trainer: how its learner is made; everything else is the shared loop."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from rl_training.algorithms.iql import IQL
from rl_training.data.spaces import Spaces
from rl_training.knobs import IQLKnobs, IQLNetworkKnobs
from rl_training.models.iql_model import MLPIQLModel
from rl_training.runtime.loop import TrainingResult
from rl_training.runtime.settings import RunSettings
from rl_training.runtime.trainer import TrainOptions, train_offline


def build_iql(spaces: Spaces, seeds: Sequence[int], device: torch.device, kwargs: Any) -> IQL:
    """Return an IQL learner for these spaces, one member per seed."""
    shape = {name: getattr(kwargs, name) for name in IQLNetworkKnobs.model_fields}
    knobs = {name: getattr(kwargs, name) for name in IQLKnobs.model_fields}
    return IQL(MLPIQLModel(spaces.observation_dim, spaces.action_dim, seeds=seeds, device=device, **shape), **knobs)


def train_iql(settings: RunSettings, run_dir: str | Path, options: TrainOptions | None = None) -> TrainingResult:
    """Train IQL from a fixed dataset; `total_timesteps` counts gradient steps."""
    return train_offline(settings, build_iql, Path(run_dir), options or TrainOptions())
