"""A trained policy from a checkpoint alone: predict and evaluate, without data and without the run directory."""

import operator
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal, TypedDict

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.algorithms.learner import Learner
from rl_training.api.inputs import Familiar, RowsLike, rows_of
from rl_training.config.environment import EnvSource
from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Ends, Transforms
from rl_training.envs.evaluation import FINAL_EPISODES, Evaluation, evaluate_policy
from rl_training.envs.given import EnvGiven, given_source
from rl_training.envs.rendering import DrawnEpisodes, Rendering, render_policy
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.manager import find_checkpoint
from rl_training.models.threads import acting_threads
from rl_training.runtime.build_learner import build_learner
from rl_training.runtime.checkpoints.checkpoint import Checkpoint
from rl_training.runtime.execution.mode import resolve_device
from rl_training.runtime.population import Combination, MemberRecord, combinations, restored_records


class RenderOptions(TypedDict, total=False):
    """The optional arguments of `Policy.render`."""

    episodes: int
    seed: int | None
    members: int | Sequence[int] | Literal["all"] | None
    env_id: EnvGiven | None
    fps: float | None
    max_steps: int
    width: int | None
    overwrite: bool


@dataclass
class Policy:
    """A learner with the maps from raw observations and to real actions."""

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
        target = resolve_device(device)
        try:
            config = make_config(state["config"], where)
            spaces = Spaces.from_json(state["spaces"])
            seeds = [int(seed) for seed in state["seeds"]]
            learner = build_learner(state["algo"], spaces, seeds, target, config.algo_kwargs, config.member_knobs)
            learner.load_state_dict(checkpoint.learner_tensors)
            learner.step = checkpoint.step
            transforms = Transforms.from_tensors(checkpoint.tensors)
            members = restored_records(state["members"], learner.member_knobs)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"{where}: does not describe a run of this package: {error}") from error
        return cls(config, learner, spaces, transforms, members, checkpoint)

    @property
    def combinations(self) -> list[Combination]:
        """The result of each combination of a sweep over its seeds at the last evaluation; empty without a sweep."""
        return combinations(self.members)

    def best_member(self) -> int:
        """Return the member with the highest last return, or score by `select_by` where there are no returns; otherwise 0."""
        scores = [member.last_return if self.evaluated else member.last_score for member in self.members]
        return int(np.argmax([-np.inf if score is None else score for score in scores]))

    @property
    def evaluated(self) -> bool:
        """Whether any member was evaluated in an environment."""
        return any(member.last_return is not None for member in self.members)

    @property
    def best_by(self) -> str | None:
        """Return what the best member is the best by; None if nothing tells, and it is only the first."""
        if self.evaluated:
            return "last evaluation"
        scored = any(member.last_score is not None for member in self.members)
        return f"last score (select_by: {self.config.select_by})" if scored else None

    def predict(
        self, observations: RowsLike, *, deterministic: bool = True, member: int | None = None, step: int = 0
    ) -> NDArray[np.float32]:
        """Return real actions inside the bounds for one observation (dim,) or a batch (batch, dim).

        Where the data had names, an observation may also be a mapping or a table: `{"T1": 60.0, ...}` in any order.
        """
        rows = self._observations(observations)
        stacked = self._stacked(self.transforms.observations(rows))
        with acting_threads(self.learner.model, stacked.shape[1]):
            actions = self.learner.act(stacked, deterministic=deterministic, step=step)
        real = self.spaces.denormalize_actions(actions[self.chosen_member(member)].cpu().numpy())
        return real.reshape(*rows.shape[:-1], self.spaces.action_dim)

    def value(self, observations: RowsLike, *, member: int | None = None) -> np.float64 | NDArray[np.float64]:
        """Return V(s) in the units of the logged rewards: the discounted return that the critics expect from here on.

        It is the value network's where the algorithm has one (IQL, XQL), otherwise `q` of the policy's mean action.
        `Transforms.real_values` says when undoing the reward transform is exact.
        """
        rows = self._observations(observations)
        values = self.learner.state_values(self._stacked(self.transforms.observations(rows)))
        return self._real_values(values, member, rows.shape[:-1])

    def q(self, observations: RowsLike, actions: RowsLike, *, member: int | None = None) -> np.float64 | NDArray[np.float64]:
        """Return Q(s, a) of real actions in the units of the logged rewards: the smallest of the trained critics.

        One observation may be given with many actions, and one action with many observations. For SAC, CQL and their
        variants it includes the entropy bonus if their targets do (`backup_entropy`).
        """
        rows = self._observations(observations)
        chosen = rows_of(actions, "action", self.spaces.action_dim, self.spaces.action_names)
        self._check_inside(chosen)
        if rows.ndim == chosen.ndim == 2 and len(rows) != len(chosen):
            raise ConfigError(f"there are {len(rows)} observations and {len(chosen)} actions; pass equally many, or one")
        shape = np.broadcast_shapes(rows.shape[:-1], chosen.shape[:-1])
        seen = self.transforms.observations(np.broadcast_to(rows, (*shape, rows.shape[-1])))
        unit = np.clip(self.spaces.normalize_actions(np.broadcast_to(chosen, (*shape, chosen.shape[-1]))), -1.0, 1.0)
        return self._real_values(self.learner.q_values(self._stacked(seen), self._stacked(unit)), member, shape)

    @property
    def recorded_range(self) -> Ends | None:
        """The range of the observations that it learned from; None for one that learned in an environment, or is older."""
        online = self.checkpoint is None or self.checkpoint.env_step
        return None if online else self.transforms.observation_range

    @cached_property
    def _familiar(self) -> Familiar:
        return Familiar(self.transforms, self.recorded_range)

    def unfamiliar(self, observations: RowsLike) -> dict[str, str]:
        """Return a line for each column that is outside of what the policy was trained on, as far as that is known."""
        rows = self._observations(observations).reshape(-1, self.spaces.observation_dim)
        columns = self._familiar.outside(rows)
        if not columns:
            return {}
        names = self.spaces.observation_names or [f"observation {column}" for column in range(rows.shape[1])]
        return {names[column]: f"`{names[column]}` = {told}" for column, told in columns.items()}

    def _observations(self, given: RowsLike) -> NDArray[np.float32]:
        return rows_of(given, "observation", self.spaces.observation_dim, self.spaces.observation_names)

    def _stacked(self, rows: NDArray[np.float32]) -> Tensor:
        """The rows on the learner's device, the same for every member."""
        flat = torch.from_numpy(rows.reshape(-1, rows.shape[-1]))
        return flat.to(self.learner.model.device).expand(self.learner.model.members, -1, -1)

    def chosen_member(self, member: int | None) -> int:
        """Return the number of a member, by default of the best one (`best_by`); one that is not there is refused."""
        chosen = self.best_member() if member is None else member
        return whole_number("member", chosen, 0, self.learner.model.members - 1)

    def _check_inside(self, actions: NDArray[np.float32]) -> None:
        outside = self.spaces.outside(actions)
        if outside.any():
            *row, column = (int(place[0]) for place in np.nonzero(outside))
            low, high = self.spaces.action_low[column], self.spaces.action_high[column]
            raise ConfigError(
                f"`{self.spaces.action_name(column)}` = {actions[(*row, column)]:g} is outside the range that the critics "
                f"were trained with, {low:g} to {high:g}"
            )

    def _real_values(
        self, values: Tensor | None, member: int | None, shape: tuple[int, ...]
    ) -> np.float64 | NDArray[np.float64]:
        if values is None:
            raise ConfigError(f"{self.config.algo} has no critics, so it has no values; train iql, for example")
        if self.transforms.reward_scale == 0.0:
            raise ConfigError("rewards were scaled by 0 (algo_kwargs.reward.scale), so values have no real units")
        chosen = self.chosen_member(member)
        gamma = self.members[chosen].knobs.get("gamma", self.config.algo_kwargs.gamma)
        real = self.transforms.real_values(values[chosen].cpu().numpy(), gamma).reshape(shape)
        return real if shape else np.float64(real)

    def evaluate(self, episodes: int = 10, seed: int | None = None, env_id: EnvGiven | None = None) -> Evaluation:
        """Return seeded evaluation episodes of every member; never those by which training selected checkpoints.

        `env_id` is by default the environment in which the run ended. The actions stay within the bounds of training.
        """
        environment = self._environment(
            env_id, "evaluate in", ", or compare with logged actions by --data PATH (in Python evaluate_on)"
        )
        chosen = self._episodes(episodes, seed) | {"workers": self.config.workers, "timeout": self.config.env_timeout}
        return evaluate_policy(self.learner, environment, **chosen, stream=FINAL_EPISODES)

    def render(
        self,
        path: str | Path,
        *,
        episodes: int = 1,
        seed: int | None = None,
        members: int | Sequence[int] | Literal["all"] | None = None,
        env_id: EnvGiven | None = None,
        fps: float | None = None,
        max_steps: int = 1000,
        width: int | None = None,
        overwrite: bool = False,
    ) -> Rendering:
        """Write a .gif or .mp4 of the first episodes of `evaluate`, by default of the best member; return what is in it.

        `evaluate` with as many episodes has the same returns. Several members are drawn side by side, with their seeds. `fps`
        counts environment steps per second; an episode is left after `max_steps`; `width` is that of the picture in pixels.
        """
        shown = self._shown(members)
        drawn = DrawnEpisodes(
            self.learner,
            self._environment(env_id, "draw"),
            shown,
            **self._episodes(episodes, seed),
            max_steps=whole_number("max_steps", max_steps, 1, 10_000_000),
        )
        if fps is not None and not 0.1 <= fps <= 10_000:
            raise ConfigError(f"fps = {fps!r} is not legal: must be a number from 0.1 to 10000")
        width = None if width is None else whole_number("width", width, 32, 8192)
        labels = [f"seed {self.members[member].label}" for member in shown] if len(shown) > 1 else []
        with acting_threads(self.learner.model, episodes):  # as in `evaluate`
            return render_policy(drawn, Path(path), labels=labels, fps=fps, width=width, overwrite=overwrite)

    def _shown(self, members: int | Sequence[int] | Literal["all"] | None) -> tuple[int, ...]:
        """The members asked for; by default the best one."""
        count = self.learner.model.members
        if members is None or not isinstance(members, Sequence):
            return (self.chosen_member(members),)
        shown = tuple(range(count) if members == "all" else (whole_number("member", one, 0, count - 1) for one in members))
        if not shown or len(set(shown)) < len(shown):
            raise ConfigError(f"members = {members!r} is not legal: must be `all`, or different members, 0 to {count - 1}")
        return shown

    def _environment(self, env_id: EnvGiven | None, purpose: str, otherwise: str = "") -> EnvSource:
        """The environment asked for, or the one in which the run ended."""
        environment = self.config.final_environment if env_id is None else given_source(env_id)
        if environment is None:
            raise ConfigError(
                f"the run has no environment (env_id is null), so there is nothing to {purpose}; name one with --env ID "
                f"(in Python env_id){otherwise}"
            )
        return environment

    def _episodes(self, episodes: int, seed: int | None) -> dict[str, Any]:
        """The arguments that say which episodes the policy acts in, and how."""
        episodes = whole_number("episodes", episodes, 1, 10_000_000)
        seed = None if seed is None else whole_number("seed", seed, 0, 2**63 - 1)
        seeds = self.learner.model.seeds if seed is None else (seed,) * self.learner.model.members
        return {"episodes": episodes, "seeds": seeds, "transforms": self.transforms, "spaces": self.spaces}


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    """Return an integer inside its range, numpy's included, or a ConfigError with name, value and range."""
    legal = not isinstance(value, bool | np.bool_) and hasattr(type(value), "__index__")
    if not legal or not low <= operator.index(value) <= high:
        raise ConfigError(f"{name} = {value!r} is not legal: must be an integer from {low} to {high}")
    return operator.index(value)
