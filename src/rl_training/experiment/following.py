"""The ranks of a run that do not own its directory: they train their members, and write nothing."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from rl_training.config.run import RunConfig
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.registry import get_spec
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, load_checkpoint
from rl_training.runtime.progress import SilentReporter
from rl_training.runtime.result import TrainingResult
from rl_training.runtime.sharing.ranks import Ranks
from rl_training.runtime.signals import SignalWatch
from rl_training.runtime.trainer import TrainOptions


def tell_start(ranks: Ranks, start: Checkpoint | None, *, ours: bool) -> None:
    """Tell the other ranks from which checkpoint the run goes on, and whether it is its own."""
    ranks.first(None if start is None else [str(start.source), str(start.path), ours])


def follow(
    config: RunConfig[Any], run_dir: Path, dataset: TransitionDataset | None, ranks: Ranks, signals: SignalWatch
) -> TrainingResult:
    """Train the members of this rank from where the first rank says."""
    told: list[Any] | None = ranks.first(None)
    options = TrainOptions(
        dataset=dataset,
        resume_from=replace(load_checkpoint(told[0]), path=Path(told[1])) if told else None,
        continue_metrics=bool(told and told[2]),
        reporter=SilentReporter(),
        signals=signals,
        ranks=ranks,
    )
    result: TrainingResult = get_spec(config.algo).train()(config, run_dir, options)
    return result
