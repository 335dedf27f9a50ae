"""Episodes of several behaviours in one order that depends on their shares and lengths alone."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import cached_property
from typing import Literal

import numpy as np

from rl_training.config.environment import EnvSource
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.row_blocks import BLOCK
from rl_training.data.spaces import Spaces
from rl_training.envs.collecting.behaviours import Behaviour
from rl_training.envs.collecting.episodes import EpisodeStream, Fields
from rl_training.envs.environments import infer_env_spaces


@dataclass(eq=False)
class Source:
    """A behaviour and its share of the rows; and what it has contributed so far."""

    name: str  # with everything that the behaviour depends on
    behaviour: Behaviour
    share: float
    rows: int = 0
    episodes: int = 0
    returns: list[float] = field(default_factory=list)  # of its whole episodes

    def add(self, episode: Fields, *, whole: bool) -> None:
        """Count an episode; one that the end of the data cut has rows, but no return."""
        self.rows += len(episode["rewards"])
        self.episodes += 1
        if whole:
            self.returns.append(float(episode["rewards"].sum(dtype=np.float64)))


@dataclass(frozen=True)
class Mixture:
    """Transitions of some sources in one environment: a function of them, their shares and the seed.

    The next episode is always of the source that is furthest behind its share, so that a longer mixture begins with the
    shorter one. `side_by_side` episodes of a source are generated at once; nothing depends on how many.
    """

    env: EnvSource
    sources: Sequence[Source]
    seed: int = 0
    side_by_side: int = 1
    workers: int | Literal["auto"] = 0  # processes that step the environments of a source
    timeout: float = 60.0  # seconds that a step may take in one
    progress: Callable[[int], None] = lambda _: None  # receives the rows so far

    @property
    def origin(self) -> str:
        """What each source has contributed, in one line."""
        parts = [f"{one.name}: {one.rows:,} rows in {one.episodes:,} episodes" for one in self.sources]
        return f"collected in {_described(self.env)}, seed {self.seed}; {'; '.join(parts)}"

    def episodes(self, rows: int) -> Iterator[Fields]:
        """Yield episodes of `rows` rows in all; the end of the data cuts the last."""
        done = 0
        with ExitStack() as stack:
            streams = []
            for position, source in enumerate(self.sources):
                stream = EpisodeStream(
                    self.env,
                    source.behaviour,
                    seed=self.seed,
                    stream=f"collect/{position}",
                    most_rows=rows + 1,  # one more tells whether an episode ended with the data
                    side_by_side=self.side_by_side,
                    workers=self.workers,
                    timeout=self.timeout,
                )
                streams.append((source, iter(stack.enter_context(closing(stream)))))
            while done < rows:
                source, stream_episodes = min(streams, key=lambda entry: entry[0].rows / entry[0].share)
                found = next(stream_episodes)
                episode = _first_rows(found, rows - done)
                source.add(episode, whole=episode is found)
                done += len(episode["rewards"])
                self.progress(done)
                yield episode

    def parts(self, rows: int) -> Iterator[TransitionDataset]:
        """Yield `rows` transitions as datasets of whole episodes, each of about 65,536 rows."""
        held, size = list[Fields](), 0
        for episode in self.episodes(rows):
            held.append(episode)
            size += len(episode["rewards"])
            if size >= BLOCK:
                yield self._dataset(held)
                held, size = [], 0
        if held:
            yield self._dataset(held)

    def _dataset(self, episodes: Sequence[Fields]) -> TransitionDataset:
        joined = {name: np.concatenate([episode[name] for episode in episodes]) for name in episodes[0]}
        spaces = self._spaces
        return TransitionDataset.from_dict(
            joined,
            action_low=spaces.action_low,
            action_high=spaces.action_high,
            observation_names=spaces.observation_names,
            source=str(self.env),
            find_cuts=False,
        )

    @cached_property
    def _spaces(self) -> Spaces:
        return infer_env_spaces(self.env)


def _described(env: EnvSource) -> str:
    """An environment with what it is made with."""
    settings = [f"{name}={value!r}" for name, value in env.kwargs.items()]
    settings += [f"max_episode_steps={env.max_episode_steps}"] if env.max_episode_steps else []
    settings += [one.name for one in env.wrappers]
    return f"{env} ({', '.join(settings)})" if settings else str(env)


def _first_rows(episode: Fields, rows: int) -> Fields:
    """An episode cut after some rows, which is a time limit; whole if it has no more."""
    if len(episode["rewards"]) <= rows:
        return episode
    cut = {name: values[:rows] for name, values in episode.items()}
    return {**cut, "timeouts": np.arange(rows) == rows - 1}
