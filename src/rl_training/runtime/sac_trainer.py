"""The trainer of SAC: how its learner is made; everything else is the shared loop."""

from pathlib import Path

from rl_training.algorithms.sac import SAC
from rl_training.models.sac_model import MLPSACModel
from rl_training.runtime.loop import TrainingResult
from rl_training.runtime.settings import RunSettings
from rl_training.runtime.trainer import TrainOptions, builder, train_online

build_sac = builder(SAC, MLPSACModel)


def train_sac(settings: RunSettings, run_dir: str | Path, options: TrainOptions | None = None) -> TrainingResult:
    """Train SAC in its environment; `total_timesteps` counts environment steps."""
    return train_online(settings, build_sac, Path(run_dir), options or TrainOptions())
