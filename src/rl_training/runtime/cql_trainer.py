"""The trainer of CQL: how its learner is made; everything else is the shared loop."""

from pathlib import Path

from rl_training.algorithms.cql import CQL
from rl_training.models.sac_model import MLPSACModel
from rl_training.runtime.loop import TrainingResult
from rl_training.runtime.settings import RunSettings
from rl_training.runtime.trainer import TrainOptions, builder, train_offline

build_cql = builder(CQL, MLPSACModel)


def train_cql(settings: RunSettings, run_dir: str | Path, options: TrainOptions | None = None) -> TrainingResult:
    """Train CQL from a fixed dataset; `total_timesteps` counts gradient steps."""
    return train_offline(settings, build_cql, Path(run_dir), options or TrainOptions())
