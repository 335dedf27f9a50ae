"""What a trainer builds and the loop runs."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.algorithms.learner import Learner
from rl_training.config.run import RunConfig
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.runtime.callbacks import CallbackLike
from rl_training.runtime.checkpoints.checkpoint import Checkpoint
from rl_training.runtime.evaluating.selecting import Selector
from rl_training.runtime.execution.steps import Executor
from rl_training.runtime.phases.base import Phase
from rl_training.runtime.progress import Reporter
from rl_training.runtime.sharing.ranks import Ranks
from rl_training.runtime.signals import SignalWatch
from rl_training.runtime.validating.validation import Validation


@dataclass
class LoopParts:
    """Everything the loop needs, built by a trainer."""

    config: RunConfig[Any]
    learner: Learner[Any, Any]
    phases: Sequence[Phase]
    executor: Executor
    spaces: Spaces
    transforms: Transforms
    dataset_fingerprint: str | None
    validation: Validation | None
    run_dir: Path
    signals: SignalWatch
    reporter: Reporter
    ranks: Ranks
    go_on: str  # the command that continues the run once it has been interrupted
    callbacks: Sequence[CallbackLike] = field(default_factory=tuple)
    resume_from: Checkpoint | None = None
    continue_metrics: bool = False
    selector: Selector | None = None  # by which the best checkpoint is chosen where there is no environment
