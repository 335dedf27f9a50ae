"""Episodes of a behaviour, generated side by side and returned in order: the same bytes however many run at once."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.config.environment import EnvLike
from rl_training.envs.collecting.behaviours import LANES, Behaviour
from rl_training.envs.environments import check_fits, infer_env_spaces, reset_seeds
from rl_training.envs.workers.count import open_batch

Fields = dict[str, NDArray[Any]]
"""The rows of one episode by field."""

_AHEAD = 256  # steps of an episode whose random numbers are drawn at once


@dataclass
class _Running:
    """An episode that has not ended yet."""

    number: int
    observations: list[NDArray[np.float32]]  # one more than actions
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    drawn: NDArray[np.float32] = field(default_factory=lambda: np.empty((0, 0), dtype=np.float32))

    def __len__(self) -> int:
        return len(self.rewards)

    def fields(self, *, terminal: bool) -> Fields:
        """Return the rows; an end that is not a true one is a time limit."""
        seen, ends = np.stack(self.observations), np.zeros((2, len(self)), dtype=bool)
        ends[0 if terminal else 1, -1] = True
        return {
            "observations": seen[:-1],
            "actions": np.stack(self.actions),
            "rewards": np.array(self.rewards, dtype=np.float32),
            "next_observations": seen[1:],
            "terminals": ends[0],
            "timeouts": ends[1],
        }


class EpisodeStream:
    """Episodes 0, 1, 2, ... of a behaviour: number e is a function of the environment, the behaviour, seed, stream and e.

    `workers` processes step the environments, or none. At most `most_rows` rows are needed; an episode that would begin
    after them is not started, and a longer one is cut. Episodes begin in order, number e once e - 32 has been returned, so
    that it always has lane e % 32 to itself, and so that few are held in memory.
    """

    def __init__(
        self,
        env: EnvLike,
        behaviour: Behaviour,
        *,
        seed: int,
        stream: str,
        most_rows: int,
        side_by_side: int = 1,
        workers: int | Literal["auto"] = 0,
        timeout: float = 60.0,
    ) -> None:
        self._behaviour, self._seed, self._stream = behaviour, seed, stream
        self._most_rows = most_rows
        check_fits(behaviour.spaces, infer_env_spaces(env), env)
        self._envs = open_batch(env, side_by_side, workers, timeout)
        self._running: dict[int, _Running] = {}  # by environment
        self._finished: dict[int, Fields] = {}  # by number, until their turn
        self._begun = self._returned = self._steps = 0

    def __iter__(self) -> Iterator[Fields]:
        """Yield the episodes in order, as long as they may be needed."""
        while self._begin() or self._running:
            self._step()
            while self._returned in self._finished:
                episode = self._finished.pop(self._returned)
                self._returned += 1
                yield episode

    def _begin(self) -> bool:
        """Begin episodes in free environments; return whether any began."""
        begun = self._begun
        for index in np.flatnonzero(~self._envs.running).tolist():
            if self._steps >= self._most_rows or self._begun >= self._returned + LANES:
                break
            self._envs.reset(index, reset_seeds(self._seed, self._stream, self._begun, 1)[0])
            self._running[index] = _Running(self._begun, [self._envs.observations[index].copy()])
            self._begun += 1
        return self._begun > begun

    def _step(self) -> None:
        indices = list(self._running)
        lanes = np.array([self._running[index].number % LANES for index in indices])
        numbers = np.stack([self._numbers(self._running[index]) for index in indices])
        actions = np.zeros((len(self._envs.running), self._behaviour.spaces.action_dim), dtype=np.float32)
        actions[indices] = self._behaviour.actions(self._envs.observations[indices], numbers, lanes)
        rewards, terminals, _ = self._envs.step(actions)
        self._steps += len(indices)
        for index in indices:
            episode = self._running[index]
            episode.observations.append(self._envs.observations[index].copy())
            episode.actions.append(actions[index])
            episode.rewards.append(float(rewards[index]))
            if not self._envs.running[index] or len(episode) >= self._most_rows:
                self._finished[episode.number] = episode.fields(terminal=bool(terminals[index]))
                self._envs.running[index] = False
                del self._running[index]

    def _numbers(self, episode: _Running) -> NDArray[np.float32]:
        """The random numbers of the next step of an episode: those of a counter that holds its number and the step."""
        offset = len(episode) % _AHEAD
        if offset == 0:
            steps = (episode.number << 32) + len(episode) + torch.arange(_AHEAD)
            episode.drawn = self._behaviour.draw(self._seed, self._stream, steps)
        return np.asarray(episode.drawn[offset])

    def close(self) -> None:
        """Close the environments."""
        self._envs.close()
