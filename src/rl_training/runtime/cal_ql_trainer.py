"""The trainer of Cal-QL: how its learner is made; everything else is the shared loop."""

from pathlib import Path

from rl_training.algorithms.cal_ql import CalQL
from rl_training.models.sac_model import MLPSACModel
from rl_training.runtime.loop import TrainingResult
from rl_training.runtime.settings import RunSettings
from rl_training.runtime.trainer import TrainOptions, builder, train_offline

build_cal_ql = builder(CalQL, MLPSACModel)


def train_cal_ql(settings: RunSettings, run_dir: str | Path, options: TrainOptions | None = None) -> TrainingResult:
    """Train Cal-QL from a fixed dataset, with returns of its processed rewards; `total_timesteps` counts gradient steps."""
    return train_offline(settings, build_cal_ql, Path(run_dir), options or TrainOptions(), returns_to_go=True)
