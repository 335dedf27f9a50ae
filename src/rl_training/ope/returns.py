"""From values to returns: what a policy would return in a real episode, by its value and by the logged episodes.

A value is discounted, and time limits do not end it; a return is not discounted, and stops where the log does. So the line

    return = mean logged return + slope * (value - value of the log)

maps the log's own value, which goes on past the cuts as those of the policies do, to what the log returned. Its slope has two
factors. Let D and R be the discounted and the plain sum of an episode's rewards as far as it was logged, L its length.

* How R changes with D, both of which stop at the cut. From episode to episode that is a regression, which knows that policies
  make episodes end sooner or later. But episodes also differ by where they begin, which fades, while policies differ in every
  step. A policy that earns d more in each step has d * (1 - gamma^L) / (1 - gamma) more in D and d * L in R. Where all
  episodes are cut the factor is at least the ratio of the two, and less so the more of them truly end.
* How D changes with the value. The value of an episode that truly ends is D, and that of a cut one D + gamma^L * the value
  where it is cut. A policy that is as much better there as where episodes begin has of its advantage the part
  1 - gamma^L, averaged over episodes with 1 for those that truly end, before the cuts.

With cuts after L steps and steady differences the slope is L * (1 - gamma). Where parts count as episodes, an episode returns
the sum of its parts.
"""

from dataclasses import dataclass

import numpy as np

from rl_training.ope.episodes import Episodes


@dataclass(frozen=True)
class Line:
    """The return that each value stands for: offset + slope * value; without a slope above 0, values say nothing of it."""

    slope: float
    offset: float

    @classmethod
    def of(cls, episodes: Episodes, value: float | None, gamma: float) -> "Line":
        """Return the line that maps `value`, that of the log, to the mean logged return; without one, its slope is 0."""
        returned = episodes.whole_returns()
        if value is None:
            return cls(0.0, float(returned.mean()))
        parts = len(episodes.lengths) / len(returned)
        slope = parts * _of_sums(episodes, gamma) * _before_cuts(episodes, gamma)
        return cls(slope, float(returned.mean()) - slope * value)


def _of_sums(episodes: Episodes, gamma: float) -> float:
    """How the plain sum of an episode's rewards changes with the discounted one."""
    discounted, plain = episodes.returns(gamma), episodes.returns()
    steady = float(episodes.lengths.sum() / ((1.0 - gamma**episodes.lengths) / (1.0 - gamma)).sum())
    if len(plain) < 3 or np.ptp(discounted) == 0.0:
        return steady
    seen = float(np.polyfit(discounted, plain, 1)[0]) if np.ptp(plain) > 0.0 else 0.0
    return max(seen, steady * float(episodes.cut.mean())) if seen > 0.0 else seen


def _before_cuts(episodes: Episodes, gamma: float) -> float:
    """The part of a difference of values that is earned before the cuts."""
    return 1.0 - float((gamma**episodes.lengths * episodes.cut).mean())
