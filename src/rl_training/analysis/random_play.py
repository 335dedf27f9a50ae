"""What random actions earned in a run that began with them: the least that its policy should."""

from dataclasses import dataclass

import numpy as np

from rl_training.analysis.logged_run import LoggedRun
from rl_training.output import return_text

_EPISODE, _COUNT = "data/episode_return", "data/episodes"
_FEWEST = 3  # episodes from which on their mean says something


@dataclass(frozen=True)
class RandomPlay:
    """The mean return of the episodes of random actions that a run has logged."""

    mean: float
    episodes: int

    def __str__(self) -> str:
        """Say what they earned."""
        return f"random actions at the start returned {return_text(self.mean)} ({self.episodes} episodes)"


def random_play(run: LoggedRun) -> RandomPlay | None:
    """Return what random actions earned before the first update; None where a run has none, or too few whole episodes."""
    starts = getattr(run.config.algo_kwargs, "learning_starts", 0)
    if getattr(run.config.algo_kwargs, "dataset", ()) or _EPISODE not in run.history:
        return None
    history = run.history
    known = ~np.isnan(history[_EPISODE]) & (history["env_step"] <= starts)
    members, numbers = history["member"][known], history[_COUNT][known]
    _, first = np.unique(np.stack([members, numbers]), axis=1, return_index=True)  # a row repeats the last episode
    returns = history[_EPISODE][known][first]
    return RandomPlay(float(returns.mean()), len(returns)) if len(returns) >= _FEWEST else None
