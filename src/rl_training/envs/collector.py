"""Collection in the environment: one per member, every episode reset with its own seed, rebuilt exactly on resume."""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.config.environment import EnvLike
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.envs.environments import EnvBatch, reset_seeds
from rl_training.errors import CheckpointError, ConfigError

LONGEST_REPLAY = 10_000  # most steps of an episode that a resume replays; a longer one is restarted
STREAM = "training"  # of the reset seeds


@dataclass
class Episode:
    """The current episode of a member, and the result of its last complete one."""

    number: int = 0
    length: int = 0
    total_reward: float = 0.0
    last_return: float | None = None
    last_length: int | None = None
    actions: list[NDArray[np.float32]] = field(default_factory=list)  # in real units, to replay the episode


class Collector:
    """Steps one environment per member; those of frozen members are not stepped."""

    def __init__(
        self, env: EnvLike, seeds: Sequence[int], spaces: Spaces, transforms: Transforms, envs: EnvBatch | None = None
    ) -> None:
        self.env, self.seeds, self.spaces, self.transforms = env, tuple(seeds), spaces, transforms
        self.envs = EnvBatch(env, len(self.seeds)) if envs is None else envs
        self.episodes = [Episode() for _ in self.seeds]
        self.frozen: set[int] = set()
        self._waiting = list(range(len(self.seeds)))  # members whose next episode has not begun

    def begin_episodes(self) -> None:
        """Begin the next episode of every member whose last has ended; until then it is not stepped."""
        while self._waiting:
            self._reset(self._waiting[0])
            self._waiting.pop(0)

    def observations(self) -> NDArray[np.float32]:
        """Return what the learner sees now, (members, observation_dim)."""
        return self.transforms.observations(self.envs.observations)

    def step(self, actions: NDArray[np.float32]) -> dict[str, NDArray[Any]]:
        """Take actions in [-1, 1], (members, action_dim); return the transition.

        Where an episode ends, `next_observations` is its true last observation, and `begin_episodes` begins the next.
        """
        before = self.observations()
        real = self.spaces.denormalize_actions(np.nan_to_num(actions))  # a diverged member is frozen at the next boundary
        for member in self.frozen:
            self.envs.running[member] = False
        seen = self.envs.observations.copy()
        try:
            rewards, terminals, timeouts = self.envs.step(real)
            transformed = self._transformed(rewards)
        except ConfigError:
            self.envs.observations[:] = seen  # as before the step, which may be saved
            raise
        transition = {
            "observations": before,
            "actions": actions,
            "rewards": transformed,
            "next_observations": self.observations(),
            "terminals": terminals,
            "timeouts": timeouts,
        }
        for member, episode in enumerate(self.episodes):
            if member in self.frozen:
                continue
            episode.length += 1
            episode.total_reward += float(rewards[member])
            if episode.length <= LONGEST_REPLAY:
                episode.actions.append(real[member].copy())
            if terminals[member] or timeouts[member]:
                self.episodes[member] = Episode(
                    episode.number + 1, last_return=episode.total_reward, last_length=episode.length
                )
                self._waiting.append(member)
        return transition

    def _transformed(self, rewards: NDArray[np.float64]) -> NDArray[np.float32]:
        with np.errstate(over="ignore"):
            seen = self.transforms.rewards(rewards)
        if not np.isfinite(seen).all():
            raise ConfigError(f"a reward of {self.env} overflows once transformed; check algo_kwargs.reward")
        return seen

    def _reset(self, member: int) -> None:
        seed = reset_seeds(self.seeds[member], STREAM, self.episodes[member].number, 1)[0]
        self.envs.reset(member, seed)

    def metrics(self, member: int) -> dict[str, float]:
        """Return the number of complete episodes of a member, and the return and length of the last."""
        episode = self.episodes[member]
        if episode.last_return is None or episode.last_length is None:
            return {}
        return {
            "data/episodes": episode.number,
            "data/episode_return": episode.last_return,
            "data/episode_length": episode.last_length,
        }

    def tensors(self) -> dict[str, Tensor]:
        """Return observations and the actions of the current episodes by logical name."""
        empty = np.empty((0, self.spaces.action_dim), dtype=np.float32)
        actions = {
            f"online/actions/{member}": torch.from_numpy(np.stack(episode.actions) if episode.actions else empty)
            for member, episode in enumerate(self.episodes)
        }
        observations = self.envs.observations.copy()
        observations[self._waiting] = np.nan  # of an episode that could not begin
        return {"online/observations": torch.from_numpy(observations), **actions}

    def state(self) -> list[dict[str, Any]]:
        """Return plain values of the episodes."""
        return [{name: value for name, value in asdict(e).items() if name != "actions"} for e in self.episodes]

    def restore(
        self, state: Sequence[Mapping[str, Any]], tensors: Mapping[str, Tensor], warn: Callable[[str], None]
    ) -> list[int]:
        """Rebuild every environment by replaying its episode; warn about and return the members that begin a new one."""
        if len(state) != len(self.episodes):
            raise CheckpointError(f"the checkpoint holds {len(state)} environments, the run has {len(self.episodes)}")
        self._waiting, lost = [], []
        for member, values in enumerate(state):
            try:
                actions = tensors[f"online/actions/{member}"].numpy()
                self.episodes[member] = Episode(**values, actions=list(actions))
            except (KeyError, TypeError) as error:
                raise CheckpointError(f"the checkpoint does not describe the episode of member {member} ({error})") from error
            if member in self.frozen:  # it will not step again
                self.envs.observations[member] = tensors["online/observations"][member].numpy()
                continue
            reason = self._replay(member, actions, tensors["online/observations"][member].numpy())
            if reason:
                warn(f"seed {self.seeds[member]}: {reason}; a new episode begins, so the run is not bit-exact from here")
                self.episodes[member].number += 1
                self.episodes[member].length, self.episodes[member].total_reward = 0, 0.0
                self.episodes[member].actions = []
                self._reset(member)
                lost.append(member)
        return lost

    def _replay(self, member: int, actions: NDArray[np.float32], expected: NDArray[np.float32]) -> str:
        """Replay an environment to its saved state; return why that failed, or an empty string."""
        if self.episodes[member].length > LONGEST_REPLAY:
            return f"its episode of {self.episodes[member].length:,} steps is too long to replay"
        self._reset(member)
        if np.isnan(expected).all():  # it had not begun
            return ""
        others = self.envs.running.copy()
        self.envs.running[:] = False
        self.envs.running[member] = True
        all_actions = np.zeros((len(self.seeds), self.spaces.action_dim), dtype=np.float32)
        fault = ""
        try:
            for action in actions:
                all_actions[member] = action
                self.envs.step(all_actions)
        except ConfigError as error:
            fault = f"its episode cannot be replayed ({error})"
        alive = bool(self.envs.running[member])
        self.envs.running[:] = others
        if fault:
            return fault
        if not alive or self.envs.observations[member].tobytes() != expected.tobytes():
            return f"{self.env} does not repeat: replaying the episode led to another state"
        return ""

    def freeze(self, members: Collection[int]) -> None:
        """Stop stepping members from now on."""
        self.frozen = set(members)

    def close(self) -> None:
        """Close the environments."""
        self.envs.close()
