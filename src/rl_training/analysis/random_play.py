"""What random actions earned before a run that learns in an environment alone: the least that its policy should."""

from dataclasses import dataclass

from rl_training.analysis.logged_run import LoggedRun
from rl_training.output import return_text


@dataclass(frozen=True)
class RandomPlay:
    """The mean return of some episodes of random actions."""

    mean: float
    episodes: int

    def __str__(self) -> str:
        """Say what they earned."""
        return f"random actions before the run returned {return_text(self.mean)} ({self.episodes} episodes)"


def random_play(run: LoggedRun) -> RandomPlay | None:
    """Return what random actions earned before a run; None where none were taken, or where hardly an episode ended."""
    found = run.record.get("random_play")
    try:
        return found and RandomPlay(float(found["return_mean"]), int(found["episodes"]))
    except (KeyError, TypeError, ValueError):  # a run.json of another version, or of a stranger
        return None
