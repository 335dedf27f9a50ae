"""A trained policy from a checkpoint alone: predict and evaluate, without data and without the run directory."""

import operator
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from rl_training.algorithms.learner import Learner
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.config import RunConfig, make_config
from rl_training.experiment.manager import find_checkpoint
from rl_training.experiment.registry import get_spec
from rl_training.runtime.callbacks import Evaluation
from rl_training.runtime.checkpoint import Checkpoint
from rl_training.runtime.engine import resolve_device
from rl_training.runtime.evaluation import evaluate_policy
from rl_training.runtime.members import Combination, MemberRecord, combinations, restored_records


@dataclass
class Policy:
    """A learner with everything between raw observations and real actions."""

    config: RunConfig[Any]
    learner: Learner[Any, Any]
    spaces: Spaces
    transforms: Transforms
    members: list[MemberRecord]
    checkpoint: Checkpoint | None = None

    @classmethod
    def load(cls, run: str | Path, *, device: str = "auto", which: str = "latest") -> "Policy":
        """Return the policy of a run directory or of one checkpoint, verified; nothing in a file is executed."""
        return cls.from_checkpoint(find_checkpoint(run, which), device=device)

    @classmethod
    def from_checkpoint(cls, checkpoint: Checkpoint, *, device: str = "auto") -> "Policy":
        """Return the policy of a checkpoint in memory."""
        where, state = str(checkpoint.path), checkpoint.state
        place = resolve_device(device)
        try:
            config = make_config(state["config"], where)
            spaces = Spaces.from_json(state["spaces"])
            seeds = [int(seed) for seed in state["seeds"]]
            build = get_spec(state["algo"]).build()
            learner = build(spaces, seeds, place, config.algo_kwargs, config.member_knobs)
            learner.load_state_dict(checkpoint.learner_tensors)
            learner.step = checkpoint.step
            transforms = Transforms.from_tensors(checkpoint.tensors)
            members = restored_records(learner, state["members"])
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{where}: does not describe a run of this package: {error}") from error
        return cls(config, learner, spaces, transforms, members, checkpoint)

    @property
    def combinations(self) -> list[Combination]:
        """What each combination of a sweep has reached over its seeds by the last evaluation; empty without a sweep."""
        return combinations(self.members)

    def best_member(self) -> int:
        """Return the member with the highest last evaluation; 0 where none was evaluated."""
        scores = [-np.inf if member.last_return is None else member.last_return for member in self.members]
        return int(np.argmax(scores))

    def predict(
        self, observations: ArrayLike, *, deterministic: bool = True, member: int | None = None, step: int = 0
    ) -> NDArray[np.float32]:
        """Return real actions inside the bounds for one observation (dim,) or a batch (batch, dim)."""
        try:
            values = np.asarray(observations, dtype=np.float32)
        except (TypeError, ValueError, OverflowError) as error:
            raise ConfigError(f"observations are not an array of numbers: {error}") from None
        dim = self.spaces.observation_dim
        if values.ndim not in (1, 2) or values.shape[-1] != dim or values.size == 0:
            raise ConfigError(f"observations have shape {values.shape}; ({dim},) or (batch, {dim}) is needed")
        if not np.isfinite(values).all():
            raise ConfigError("observations hold NaN or inf")
        members = self.learner.model.members
        chosen = self.best_member() if member is None else member
        chosen = whole_number("member", chosen, 0, members - 1)
        inputs = torch.from_numpy(self.transforms.observations(values.reshape(-1, dim)))
        stacked = inputs.to(self.learner.model.device).expand(members, -1, -1)
        actions = self.learner.act(stacked, deterministic=deterministic, step=step)[chosen].cpu().numpy()
        return self.spaces.denormalize_actions(actions).reshape(*values.shape[:-1], self.spaces.action_dim)

    def evaluate(self, episodes: int = 10, seed: int | None = None, env_id: str | None = None) -> Evaluation:
        """Return seeded evaluation episodes of every member, by default the very ones that training looks at."""
        environment = env_id or self.config.env_id
        if environment is None:
            raise ConfigError("the run has no environment (env_id is null), so there is nothing to evaluate in")
        episodes = whole_number("episodes", episodes, 1, 10_000_000)
        seed = None if seed is None else whole_number("seed", seed, 0, 2**63 - 1)
        seeds = self.learner.model.seeds if seed is None else (seed,) * self.learner.model.members
        return evaluate_policy(self.learner, environment, episodes=episodes, seeds=seeds, transforms=self.transforms)


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    """Return an integer inside its range, numpy's included, or a ConfigError with name, value and range."""
    legal = not isinstance(value, bool | np.bool_) and hasattr(type(value), "__index__")
    if not legal or not low <= operator.index(value) <= high:
        raise ConfigError(f"{name} = {value!r} is not legal: must be an integer from {low} to {high}")
    return operator.index(value)


def evaluation_report(evaluation: Evaluation, members: Sequence[MemberRecord], member: int | None = None) -> dict[str, Any]:
    """Return the plain values of an evaluation: over all episodes, for each member, and a 95 % interval of the mean.

    Diverged members say so and count in no mean, unless there is no other. The members of a sweep have `knobs`, and there are
    `combinations` of them where more than one member is asked for.
    """
    chosen = range(len(members)) if member is None else [member]
    if member is not None and not 0 <= member < len(members):
        raise ConfigError(f"member {member} is not there: the checkpoint has members 0 to {len(members) - 1}")
    counted = [index for index in chosen if members[index].status != "diverged"] or list(chosen)
    returns, lengths = evaluation.returns[counted], evaluation.lengths[counted]
    rows = [
        {
            "member": index,
            "seed": members[index].seed,
            **({"knobs": members[index].knobs} if members[index].knobs else {}),
            **({"diverged_at": members[index].status_step} if members[index].status == "diverged" else {}),
            "return_mean": float(evaluation.returns[index].mean()),
            "return_std": float(evaluation.returns[index].std()),
        }
        for index in chosen
    ]
    spread = returns.mean(axis=1) if len(returns) > 1 else returns[0]
    found = combinations(members, evaluation.member_means) if member is None else []
    return {
        "return_mean": float(returns.mean()),
        "return_std": float(returns.std()),
        "return_interval": bootstrap_interval(spread),
        "returns": [float(value) for value in returns.reshape(-1)],
        "lengths": [int(value) for value in lengths.reshape(-1)],
        "members": rows,
        **({"combinations": [asdict(one) for one in found]} if found else {}),
    }


def bootstrap_interval(values: NDArray[np.float64], repetitions: int = 2000) -> list[float]:
    """Return the 95 % bootstrap interval of the mean over members (or over the episodes of a solo run)."""
    draws = np.random.Generator(np.random.Philox(0)).integers(0, len(values), (repetitions, len(values)))
    low, high = np.quantile(values[draws].mean(axis=1), (0.025, 0.975))
    return [float(low), float(high)]
