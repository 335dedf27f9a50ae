"""What a finished run returns."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rl_training.algorithms.learner import Learner
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.evaluation import Evaluation
from rl_training.runtime.population import Combination, MemberRecord, combinations


@dataclass(frozen=True)
class TrainingResult:
    """The outcome of a finished run."""

    step: int  # gradient steps
    env_step: int | None  # environment steps of an online run
    checkpoint: Path
    members: list[MemberRecord]
    evaluation: Evaluation | None
    final_evaluation: Evaluation | None  # of a sweep, on other episodes than the evaluations during training
    learner: Learner[Any, Any]  # on several ranks, with the members of this one
    spaces: Spaces
    transforms: Transforms
    held_out: list[dict[str, float]] = field(default_factory=list)  # of each member on held-out rows, if any

    @property
    def combinations(self) -> list[Combination]:
        """The results of each combination of a sweep over its seeds, by the final evaluation; empty without a sweep."""
        return combinations(self.members, self.final_evaluation.member_means if self.final_evaluation else None)
