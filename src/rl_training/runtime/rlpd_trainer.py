"""The trainer of RLPD: how its learner is made; everything else is the shared loop."""

from pathlib import Path

from rl_training.algorithms.rlpd import RLPD
from rl_training.models.sac_model import MLPSACModel
from rl_training.runtime.loop import TrainingResult
from rl_training.runtime.settings import RunSettings
from rl_training.runtime.trainer import TrainOptions, builder, train_with_prior_data

build_rlpd = builder(RLPD, MLPSACModel)


def train_rlpd(settings: RunSettings, run_dir: str | Path, options: TrainOptions | None = None) -> TrainingResult:
    """Train RLPD in its environment on mixed batches; `total_timesteps` counts environment steps."""
    return train_with_prior_data(settings, build_rlpd, Path(run_dir), options or TrainOptions())
