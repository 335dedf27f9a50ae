"""How much of a spread over seeds is luck of the episodes in which each was evaluated."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from rl_training.analysis.scores.groups import Evaluated

_MOSTLY = 0.5  # share of a spread from which on it is said where it comes from
_SEEDS_WITH_SPREAD = 3  # of fewer nothing can be said


def mostly_luck(evaluated: Sequence[Evaluated]) -> Iterator[str]:
    """Where the spread over seeds is mostly that of the few episodes in which each was evaluated, a line for each task."""
    found: dict[str, dict[str, list[Evaluated]]] = defaultdict(lambda: defaultdict(list))
    for one in evaluated:
        if one.seed is None:  # equal episodes are no luck of a seed
            found[one.task][one.group].append(one)
    for task, groups in found.items():
        shares = {name: _share_of_luck(parts) for name, parts in groups.items()}
        if lucky := {name: share for name, share in shares.items() if share is not None and share > _MOSTLY}:
            counts = sorted({one.episodes for name in lucky for one in groups[name]})
            told = ", ".join(f"{share:.0%} of {name}" for name, share in lucky.items())
            few = f"{' and '.join(map(str, counts))} evaluation episodes, of which each seed has its own ({told})"
            yield f"{task}: most of the spread over seeds is luck of {few}; {_way_out(groups.values(), counts[-1])}"


def _way_out(groups: Iterable[Sequence[Evaluated]], episodes: int) -> str:
    """How to compare with less luck of episodes than so many leave."""
    if any(len(parts) > 1 for parts in groups):
        return "more eval_episodes tell as much as more seeds would"
    more = max(100, 4 * episodes)
    return f"compare what `rl-training evaluate RUN --episodes {more} --seed 1 --json > NAME.json` gives: equal episodes"


def _share_of_luck(parts: Sequence[Evaluated]) -> float | None:
    """The share of a variance over seeds that is expected of their episodes alone; None where either is not known."""
    values, noise = np.concatenate([one.means for one in parts]), np.concatenate([one.noise for one in parts])
    known = ~np.isnan(values + noise)
    if known.sum() < _SEEDS_WITH_SPREAD or (spread := values[known].var(ddof=1)) == 0.0:
        return None
    return min(1.0, float(noise[known].mean() / spread))
