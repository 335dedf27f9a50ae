"""What a user can do about a verdict of `rl-training ope`."""

from rl_training.config.shared_knobs import LearnerKnobs
from rl_training.ope.episodes import FEWEST
from rl_training.ope.evaluation import MANY_BEYOND, Estimated

_SHORTER = 0.95  # a discount by which few errors add up: what is twenty steps away counts a third


def advice(found: Estimated, episodes: int, gamma: float, knobs: LearnerKnobs, *, parts: bool = False) -> str:
    """Return in a line what would make a verdict better; empty where it is trusted.

    `episodes` are those of the log, before any is cut into `parts`, which then count as episodes.
    """
    if found.joint.verdict == "trust":
        return ""
    wanted = []
    if found.support.beyond > MANY_BEYOND:
        closer = knobs.more_cloning
        also = "" if knobs.only_clones else "; or `bc`"
        wanted.append(f"train nearer to the data ({closer[0].lower()}{closer[1:]}{also})")
    if episodes < FEWEST:
        few = f"parts of {episodes} are no {FEWEST} episodes, " if parts else f"of {episodes} little is sure, "
        wanted.append(f"judge by more episodes: {few}{FEWEST} {'whole ones ' if parts else ''}or more are better")
    if gamma > _SHORTER and found.estimates["fqe"].verdict != "trust":
        wanted.append(f"judge a shorter horizon, over which fewer errors add up (--gamma {_SHORTER})")
    return "; ".join(wanted or ["judge by more episodes like those that the policy will meet"])
