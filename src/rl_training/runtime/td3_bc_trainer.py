"""The trainer of TD3+BC: how its learner is made; everything else is the shared loop."""

from pathlib import Path

from rl_training.algorithms.td3_bc import TD3BC
from rl_training.models.td3_model import MLPTD3Model
from rl_training.runtime.loop import TrainingResult
from rl_training.runtime.settings import RunSettings
from rl_training.runtime.trainer import TrainOptions, builder, train_offline

build_td3_bc = builder(TD3BC, MLPTD3Model)


def train_td3_bc(settings: RunSettings, run_dir: str | Path, options: TrainOptions | None = None) -> TrainingResult:
    """Train TD3+BC from a fixed dataset; `total_timesteps` counts gradient steps."""
    return train_offline(settings, build_td3_bc, Path(run_dir), options or TrainOptions())
