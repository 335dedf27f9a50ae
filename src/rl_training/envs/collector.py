"""Collection in the environment: one per member, every episode reset with its own seed, rebuilt exactly on resume."""

from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.config.environment import EnvLike
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.current_episodes import CurrentEpisodes
from rl_training.envs.environments import EnvBatch, reset_seeds
from rl_training.errors import CheckpointError, ConfigError

STREAM = "training"  # of the reset seeds


class Collector:
    """Steps one environment per member; those of frozen members are not stepped."""

    def __init__(
        self, env: EnvLike, seeds: Sequence[int], spaces: Spaces, transforms: Transforms, envs: EnvBatch | None = None
    ) -> None:
        self.env, self.seeds, self.spaces, self.transforms = env, tuple(seeds), spaces, transforms
        self.envs = EnvBatch(env, len(self.seeds)) if envs is None else envs
        self.episodes = CurrentEpisodes(len(self.seeds), spaces.action_dim)
        self.frozen: set[int] = set()
        self._trained = np.ones(len(self.seeds), dtype=bool)  # members that are not frozen
        self._waiting = list(range(len(self.seeds)))  # members whose next episode has not begun
        self._seen = transforms.observations(self.envs.observations)

    def begin_episodes(self) -> None:
        """Begin the next episode of every member whose last has ended; until then it is not stepped."""
        if self._waiting:
            self._seen = self._seen.copy()  # the other is part of a transition
        while self._waiting:
            self._reset(self._waiting[0])
            self._waiting.pop(0)

    def observations(self) -> NDArray[np.float32]:
        """Return what the learner sees now, (members, observation_dim)."""
        return self._seen

    def step(self, actions: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """Take actions in [-1, 1], (members, action_dim); return the transition.

        Where an episode ends, `next_observations` is its true last observation, and `begin_episodes` begins the next.
        """
        known = actions if np.isfinite(actions).all() else np.nan_to_num(actions)  # a diverged member is soon frozen
        real = self.spaces.denormalize_actions(known)
        self.envs.running &= self._trained
        before, kept = self._seen, self.envs.observations.copy()
        try:
            rewards, terminals, timeouts = self.envs.step(real)
            transformed = self._transformed(rewards)
        except ConfigError:
            self.envs.observations[:] = kept  # as before the step, which may be saved
            raise
        self._seen = self.transforms.observations(self.envs.observations)
        self._waiting += self.episodes.add(real, rewards, terminals | timeouts, self._trained)
        return {
            "observations": before,
            "actions": actions,
            "rewards": transformed,
            "next_observations": self._seen,
            "terminals": terminals,
            "timeouts": timeouts,
        }

    def _transformed(self, rewards: NDArray[np.float64]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):
            seen = self.transforms.rewards(rewards)
        if not np.isfinite(seen).all():
            raise ConfigError(f"a reward of {self.env} overflows once transformed; check algo_kwargs.reward")
        return seen

    def _reset(self, member: int) -> None:
        seed = reset_seeds(self.seeds[member], STREAM, int(self.episodes.numbers[member]), 1)[0]
        self.envs.reset(member, seed)
        self._see(member)

    def _see(self, member: int) -> None:
        self._seen[member] = self.transforms.observations(self.envs.observations[member])

    def metrics(self, member: int) -> dict[str, float]:
        """Return the number of complete episodes of a member, and the return and length of the last."""
        return self.episodes.metrics(member)

    def tensors(self) -> dict[str, Tensor]:
        """Return observations and the actions of the current episodes by logical name; frozen members need no actions."""
        observations = self.envs.observations.copy()
        observations[self._waiting] = np.nan  # of an episode that could not begin
        actions = {
            f"online/actions/{member}": torch.from_numpy(
                np.empty((0, self.spaces.action_dim), dtype=np.float32) if frozen else self.episodes.actions(member)
            )
            for member, frozen in enumerate(~self._trained)
        }
        return {"online/observations": torch.from_numpy(observations), **actions}

    def state(self) -> list[dict[str, Any]]:
        """Return plain values of the episodes."""
        return self.episodes.state()

    def restore(
        self, state: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor], warn: Callable[[str], None]
    ) -> list[int]:
        """Rebuild every environment by replaying its episode; warn about and return the members that begin a new one."""
        if len(state) != len(self.episodes):
            raise CheckpointError(f"the checkpoint holds {len(state)} environments, the run has {len(self.episodes)}")
        try:
            actions = [tensors[f"online/actions/{member}"].numpy() for member in range(len(self.episodes))]
            self.episodes.restore(state, actions)
        except (KeyError, TypeError, ValueError) as error:
            raise CheckpointError(f"the checkpoint does not describe the episodes of its members ({error})") from error
        self._waiting, lost = [], []
        for member, own in enumerate(actions):
            expected = tensors["online/observations"][member].numpy()
            if not self._trained[member]:  # it will not step again
                self.envs.observations[member] = expected
            elif reason := self._replay(member, own, expected):
                warn(f"seed {self.seeds[member]}: {reason}; a new episode begins, so the run is not bit-exact from here")
                self.episodes.begin_next(member)
                self._reset(member)
                lost.append(member)
            self._see(member)
        return lost

    def begin_anew(self, state: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor]) -> None:
        """Begin a new episode in every environment, after those that a checkpoint has counted."""
        self.episodes.restore(state, [np.empty((0, self.spaces.action_dim), dtype=np.float32)] * len(self.episodes))
        self._waiting = []
        for member, trained in enumerate(self._trained.tolist()):
            if trained:
                self.episodes.begin_next(member)
                self._reset(member)
            else:
                self.envs.observations[member] = tensors["online/observations"][member].numpy()
                self._see(member)

    def _replay(self, member: int, actions: NDArray[np.float32], expected: NDArray[np.float32]) -> str:
        """Replay an environment to its saved state; return why that failed, or an empty string."""
        if self.episodes.too_long(member):
            return f"its episode of {self.episodes.lengths[member]:,} steps is too long to replay"
        self._reset(member)
        if np.isnan(expected).all():  # it had not begun
            return ""
        others = self.envs.running.copy()
        self.envs.running[:] = False
        self.envs.running[member] = True
        all_actions = np.zeros((len(self.seeds), self.spaces.action_dim), dtype=np.float32)
        fault, total = "", 0.0
        try:
            for action in actions:
                all_actions[member] = action
                total += float(self.envs.step(all_actions)[0][member])
        except ConfigError as error:
            fault = f"its episode cannot be replayed ({error})"
        alive = bool(self.envs.running[member])
        self.envs.running[:] = others
        if fault:
            return fault
        if not alive or self.envs.observations[member].tobytes() != expected.tobytes():
            return f"{self.env} does not repeat: replaying the episode led to another state"
        if total != self.episodes.total_reward(member):
            return f"{self.env} does not repeat: replaying the episode gave other rewards"
        return ""

    def freeze(self, members: Collection[int]) -> None:
        """Stop stepping members from now on."""
        self.frozen = set(members)
        self._trained[:] = True
        self._trained[list(self.frozen)] = False

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
