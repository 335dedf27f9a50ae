"""The trainer of XQL: how its learner is made; everything else is the shared loop."""

from pathlib import Path

from rl_training.algorithms.xql import XQL
from rl_training.models.iql_model import MLPIQLModel
from rl_training.runtime.loop import TrainingResult
from rl_training.runtime.settings import RunSettings
from rl_training.runtime.trainer import TrainOptions, builder, train_offline

build_xql = builder(XQL, MLPIQLModel)


def train_xql(settings: RunSettings, run_dir: str | Path, options: TrainOptions | None = None) -> TrainingResult:
    """Train XQL from a fixed dataset; `total_timesteps` counts gradient steps."""
    return train_offline(settings, build_xql, Path(run_dir), options or TrainOptions())
