"""Seeded, deterministic evaluation: all episodes of all members side by side."""

from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.algorithms.learner import Learner
from rl_training.config.environment import EnvLike
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.environments import EnvBatch, check_fits, reset_seeds, time_limit
from rl_training.envs.workers.count import open_batch
from rl_training.errors import ConfigError
from rl_training.models.threads import acting_threads

TRAINING_EPISODES = "evaluation"  # stream of the episodes by which training selects checkpoints
MOST_STEPS = 100_000  # of an episode in an environment without a time limit, which may never end
_LARGEST_RETURN = 1e150  # whose square, for the deviation, is still a number
FINAL_EPISODES = "final evaluation"  # stream of the episodes for final results: separate, to avoid selection bias


@dataclass(frozen=True)
class Evaluation:
    """Episode returns and lengths of every member."""

    returns: NDArray[np.float64]  # (members, episodes)
    lengths: NDArray[np.int64]  # (members, episodes)
    same_episodes: bool = False  # of all members, which are else evaluated on episodes of their own

    @property
    def member_means(self) -> list[float]:
        """Mean return of each member."""
        return [float(value) for value in self.returns.mean(axis=1)]

    def metrics(self, member: int) -> dict[str, float]:
        """Return what a metric row says of a member."""
        returns, lengths = self.returns[member : member + 1], self.lengths[member]
        return {
            "eval/return_mean": float(returns.mean(axis=1)[0]),  # bit for bit as in `member_means`
            "eval/return_std": float(returns.std()),
            "eval/length_mean": float(lengths.mean()),
        }


def evaluate_policy(
    learner: Learner[Any, Any],
    env: EnvLike,
    *,
    episodes: int,
    seeds: Sequence[int],
    transforms: Transforms,
    spaces: Spaces | None = None,
    stream: str = TRAINING_EPISODES,
    first: int = 0,
    check: Callable[[], None] = lambda: None,
    workers: int | Literal["auto"] = 0,
    timeout: float = 60.0,
    kept: EnvBatch | None = None,
) -> Evaluation:
    """Return returns and lengths of `episodes` episodes per member, from number `first` on, under the mean action.

    Episode e of a member is reset with a seed that depends on the member's entry in `seeds`, on `stream` and on e alone, so
    that the same policy always gets the same episodes. `spaces` are those the policy was trained with; by default the
    environment's own. `check` is called at every step and may raise to stop. `workers` processes step the environments, or
    `kept`, copies of it for all episodes that the caller keeps; the results are the same bits. Where there is no time limit,
    an episode is cut after `MOST_STEPS`; `cut_short` tells.
    """
    members, most = learner.model.members, time_limit(env) or MOST_STEPS
    if len(seeds) != members:
        raise ConfigError(f"{len(seeds)} evaluation seeds were given for {members} members")
    batch = nullcontext(kept) if kept is not None else open_batch(env, members * episodes, workers, timeout)
    with batch as envs, acting_threads(learner.model, episodes):
        own = acting_spaces(learner, spaces, envs)
        envs.reset_all([seed for member in seeds for seed in reset_seeds(member, stream, first, episodes)])
        returns = np.zeros(members * episodes)
        lengths = np.zeros(members * episodes, dtype=np.int64)
        while envs.running.any():
            check()
            actions = mean_actions(learner, envs.observations.reshape(members, episodes, -1), transforms, own)
            lengths += envs.running
            rewards, _, _ = envs.step(actions.reshape(members * episodes, -1))
            with np.errstate(over="ignore"):
                returns += rewards
            envs.running &= lengths < most
    if not (np.abs(returns) < _LARGEST_RETURN).all():
        raise ConfigError(f"a return in {env} overflows: its rewards are too large to be added up; scale them there")
    return Evaluation(returns.reshape(members, episodes), lengths.reshape(members, episodes), len(set(seeds)) == 1)


def cut_short(evaluation: Evaluation, env: EnvLike) -> str | None:
    """Return a warning where episodes of an evaluation did not end by themselves; None where all did."""
    cut = int((evaluation.lengths >= MOST_STEPS).sum()) if time_limit(env) is None else 0
    if not cut:
        return None
    ended = f"{cut} of {evaluation.lengths.size} episodes in {env} did not end within {MOST_STEPS:,} steps"
    return f"{ended}, and were cut there; set max_episode_steps"


def acting_spaces(learner: Learner[Any, Any], spaces: Spaces | None, envs: EnvBatch) -> Spaces:
    """Return the spaces that a policy was trained with, by default the environment's; a ConfigError where it cannot act."""
    own = spaces or replace(envs.spaces, observation_dim=learner.model.observation_dim)
    check_fits(own, envs.spaces, envs.env)
    if own.learned_dim != learner.model.action_dim:
        raise ConfigError(f"{envs.env} has {own.learned_dim} actions, the policy {learner.model.action_dim}")
    return own


def mean_actions(
    learner: Learner[Any, Any], observations: NDArray[np.float32], transforms: Transforms, spaces: Spaces
) -> NDArray[np.float32]:
    """Return the real actions (members, rows, action_dim) of the mean policy for raw observations (members, rows, dim)."""
    seen = torch.from_numpy(transforms.observations(observations)).to(learner.model.device)
    return spaces.denormalize_actions(learner.act(seen, deterministic=True).cpu().numpy())
