"""What is doubtful in a policy that was learned from data alone: each concern has its evidence and a way out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import hypot, inf
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from rl_training.config.shared_knobs import LearnerKnobs

_MORE_AT_BOUND = 0.10  # the policy may be at a bound this much more often than the data
_FLAT = 0.10  # a policy whose spread is below this share of the data's hardly reacts to the state
_RISE = 0.1  # of a held-out loss, above its lowest so far
_GAP = 0.5  # of the training loss, by which the held-out one exceeds it
_SURGE = 0.5  # of what a held-out loss is, by which it rose: that is no chance, also if seen once
_SMALL = 0.1  # a training loss that is nearer to 0 counts as this
_TINY = 1e-12
_WORSE = 1.2  # times the distance of a plain regression, from which on a clone is a poor one
_SURE = 2.5  # standard errors of a difference that is hardly chance
SETTLED = 0.8  # of the way from 0, up to which values say more of the number of steps than of the policy
WHOLE = 0.995  # of the way, from where on values count as there
_FAR = 0.5  # of what episodes return, that values may lie above all of them even where all return the same
_SLACK = 0.05  # of the possible returns, by which values may leave them
_WITHIN = 1.5  # times the distance of a plain regression, up to which actions are among those that chance tried
_HARDLY = 0.25  # of the rows where the log is at an end of the range: a policy that is there less often misses it
_OPEN = 0.01  # of the range, by which it must be farther from that end than the log is: what is nearer counts as there
_REPEATED = 0.9  # of what observations tell of commands that move: repeating the one before is nearer than that

_LONGER = "Train longer (total_timesteps)"
_FEWER = "Train for fewer steps (total_timesteps), with smaller hidden_sizes, or with more data"
_BOTH = (
    "More steps are needed, and with more steps the networks memorise the data: use smaller hidden_sizes or more data, then "
    "train longer (total_timesteps)"
)

# of concerns that follow from the figures of one evaluation, and so from what is logged of it
CODES = (
    *("impossible-values", "unsettled-values", "unseen-values"),
    *("saturated-policy", "missed-bound", "constant-policy", "far-from-data", "poor-clone", "hidden-memory"),
)
_DISTANCE = "action_distance"
RISING = "rising-losses"  # follows from several evaluations, and from losses on training rows that are not logged


@dataclass(frozen=True)
class Concern:
    """Something that makes a policy doubtful."""

    code: str
    seen: str  # and why
    remedy: str = ""
    fleeting: bool = False  # seen once it may be chance, even at the last evaluation

    @property
    def text(self) -> str:
        """What was seen, why, and what to do."""
        return f"{self.seen}. {self.remedy}" if self.remedy else self.seen

    @property
    def needs_steps(self) -> bool:
        """Whether it is said to go away with longer training."""
        return self.remedy.startswith(_LONGER)


def concerns(figures: Mapping[str, float], knobs: LearnerKnobs) -> list[Concern]:
    """Return what is doubtful in the figures of a member (`PolicyCheck.figures`), the worst first."""
    checks = (_values, _saturation, _bounds, _flatness, _distance)
    found = [concern for check in checks for concern in check(figures, knobs.more_cloning)]
    far = any(one.code == "far-from-data" for one in found)
    clone = _cloning(figures, knobs.more_cloning) if knobs.only_clones and not far else []
    return [*found, *clone, *_memory(figures)]


def predictable(figures: Mapping[str, float]) -> bool:
    """Return whether the logged actions follow from the observations, as cloning or the policy shows; random ones do not."""
    nearest = min(figures["cloning_distance"], figures.get("action_distance", inf))
    return nearest < 0.95 * figures["constant_distance"]


def settled_share(updates: float, tau: float, ahead: float | NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the share of the way from 0 to the values of a policy that critics have gone, after so many of their targets.

    Every update of the targets moves them by tau towards rewards and the value after these, if the critics follow at once.
    Of a value these rewards are the share `ahead`, 1 - gamma without end: what is missing shrinks by 1 - tau * ahead.
    """
    return np.asarray(-np.expm1(updates * np.log1p(-tau * np.asarray(ahead))), dtype=np.float64)


def settled_text(share: float) -> str:
    """Return how settled values are, in words that keep those on their way from being read as returns; empty if they are."""
    if share < SETTLED:
        return f"about {share:.0%} settled, no measure of returns yet"
    return f"about {share:.0%} settled" if share < WHOLE else ""


Gathered = dict[str, tuple[Concern, list[str]]]
"""Concerns by their codes, each with the labels of the members it is about; none for one about all together."""


def gathered(own: Mapping[int, Sequence[Concern]], labels: Mapping[int, str], shared: Sequence[Concern] = ()) -> Gathered:
    """Return the concerns about members and those about all together, each code once, with the figures of the first.

    Where some need more steps and others fewer, all of these have the one remedy that does for both.
    """
    found: Gathered = {one.code: (one, []) for one in shared}
    for member, listed in own.items():
        for one in listed:
            found.setdefault(one.code, (one, []))[1].append(labels[member])
    if RISING not in found or not any(one.needs_steps for one, _ in found.values()):
        return found
    torn = {code for code, (one, _) in found.items() if code == RISING or one.needs_steps}
    return {code: (replace(one, remedy=_BOTH) if code in torn else one, whose) for code, (one, whose) in found.items()}


def warning_text(concern: Concern, whose: Sequence[str], asked: int, members: int) -> str:
    """Return a concern as a warning, with the members it is about, of those asked, where a run has several."""
    if not whose or members == 1:
        return f"{concern.code}: {concern.text}"
    who = "all members" if len(whose) == asked else f"seed {', '.join(whose)}"
    who += ", with the figures of the first" if len(whose) > 1 else ""
    return f"{concern.code}: {who}: {concern.text}"


def _values(figures: Mapping[str, float], closer: str) -> list[Concern]:
    if "q_policy" not in figures:
        return []
    low, high, seen = figures["possible_lowest"], figures["possible_highest"], figures["q_policy"]
    span = high - low
    allowed = (
        f"the rewards allow {low:z.4g} to {high:z.4g} (reward / (1 - gamma), at true ends the reward), and episodes reached "
    )
    allowed += f"{figures['reached_lowest']:z.4g} to {figures['reached_highest']:z.4g}"
    if high + _SLACK * span < seen <= 0.0 or 0.0 <= seen < low - _SLACK * span:
        text = f"the values of its actions are {seen:.4g} on average, but {allowed}: they begin at 0 and are not there yet"
        return [Concern("impossible-values", text, _LONGER)]
    if seen > high + _SLACK * span:
        text = (
            f"the values of its actions are {seen:.4g} on average, but {allowed}: the critics overestimate actions that are "
        )
        text += "not in the data"
        remedy = "Lower algo_kwargs.critic_learning_rate or gamma, and check the ends with the doctor"
        return [Concern("impossible-values", text, remedy)]
    if seen < low - span:
        text = f"the values of its actions are {seen:.4g} on average, but {allowed}: the critics diverge, or a penalty "
        text += "is too strong for such rewards"
        return [Concern("impossible-values", text, "Lower algo_kwargs.cql_alpha or critic_learning_rate")]
    return _claims(figures, closer)


def _claims(figures: Mapping[str, float], closer: str) -> list[Concern]:
    """Values above all that logged episodes could have returned: not settled yet, or far beyond what anybody saw."""
    claimed, best, reached = figures["start_value"], figures["start_possible"], figures["start_highest"]
    if claimed <= best:
        return []
    seen = f"where logged episodes begin its values are {claimed:.4g} on average. These episodes returned "
    if figures["start_lowest"] == reached:  # as a single one does
        seen += f"{reached:.4g}, discounted alike"
    else:
        seen += f"{figures['start_return']:.4g} on average and {reached:.4g} at most, discounted alike"
    if f"{best:.4g}" != f"{reached:.4g}":
        seen += f", up to where they were cut; gone on from there with the best reward in the data, at most {best:.4g}"
    settled = figures["values_settled"]
    if settled < SETTLED:
        text = f"{seen}. Values begin at 0 and by now have gone about {settled:.0%} of the way to where they settle (by tau "
        text += "and gamma), so they tell nothing of whether the policy is good or bad"
        return [Concern("unsettled-values", text, f"{_LONGER}, or lower algo_kwargs.gamma")]
    if claimed > best + max(best - figures["start_lowest"], _FAR * abs(figures["start_return"])):
        text = f"{seen}. Nobody saw anything like it, and the critics may overestimate"
        return [Concern("unseen-values", text, f"Let `rl-training ope` judge it. {closer}")]
    return []


def _saturation(figures: Mapping[str, float], closer: str) -> list[Concern]:
    own, logged = figures["at_bound"], figures["at_bound_data"]
    if own <= logged + _MORE_AT_BOUND:
        return []
    text = f"{own:.0%} of its actions are at a bound, {logged:.0%} of the logged ones: it follows values beyond what the "
    return [Concern("saturated-policy", f"{text}data supports", closer)]


def _bounds(figures: Mapping[str, float], closer: str) -> list[Concern]:
    """An end of a range that a policy hardly ever commands where the observations tell that the log does: never quite off."""
    found = []
    for side, end in (("low", "lowest"), ("high", "highest")):
        for name in (one for one in figures if one.startswith(f"{side}_rows/")):
            label = name.partition("/")[2]
            rows, logged, own, reached = (
                figures[f"{side}_{what}/{label}"] for what in ("rows", "data", "distance", "reached")
            )
            if reached < _HARDLY and own > logged + _OPEN:
                text = f"the log has action `{label}` at its {end} value ({rows:.0%} of the rows), its own is there in "
                text += f"{reached:.0%} and {own:.1%} of the range away on average (the logged one {logged:.1%})"
                found.append((rows * (own - logged), text))
    if not found:
        return []
    text = f"where the observations tell that {max(found)[1]}: what is never quite off or full adds up over an episode"
    return [Concern("missed-bound", text, f"{_LONGER}; if it stays so: {closer}")]


def _flatness(figures: Mapping[str, float], closer: str) -> list[Concern]:
    own, logged = figures["spread"], figures["spread_data"]
    if own >= _FLAT * logged or not predictable(figures):
        return []
    text = f"it hardly reacts to the observations: its actions spread over {own:.1%} of the range, the logged ones over "
    return [Concern("constant-policy", f"{text}{logged:.1%}", f"{_LONGER}; if it stays so: {closer}")]


def _distance(figures: Mapping[str, float], closer: str) -> list[Concern]:
    """Farther than a constant; where most of that is the chance in logged actions, the same action was tried as well."""
    own, constant, plain = (figures[f"{name}_distance"] for name in ("action", "constant", "cloning"))
    if own <= max(constant, _WITHIN * plain) or not predictable(figures):
        return []
    text = f"its actions are {own:.1%} of the range away from the logged ones, the best constant action {constant:.1%}: in "
    return [Concern("far-from-data", f"{text}many states it does what hardly anybody tried", closer)]


def _cloning(figures: Mapping[str, float], closer: str) -> list[Concern]:
    """A clone that is clearly farther from logged actions than a regression without any setting."""
    own, plain = figures["action_distance"], figures["cloning_distance"]
    if own <= _WORSE * plain or not predictable(figures):
        return []
    text = f"its actions are {own:.1%} of the range away from logged ones that it has not seen, those of a plain regression "
    return [Concern("poor-clone", f"{text}{plain:.1%}", closer)]


def _memory(figures: Mapping[str, float]) -> list[Concern]:
    """Commands that move, and of which the one before tells more than all observations do."""
    if "moved_persistence" not in figures:  # nothing moves, or it was not logged
        return []
    repeated, plain, own = (figures[f"moved_{name}"] for name in ("persistence", "cloning", "action"))
    if repeated > _REPEATED * min(plain, own):
        return []
    text = f"where the logged command moves, repeating the one before is {repeated:.1%} of the range away from it, a plain "
    text += f"regression on the observations {plain:.1%} and the policy {own:.1%}: the commands depend on something that is "
    text += "not observed, such as an integrated error or a filter, or hardly move from row to row. Small distances to "
    text += "logged actions then do not show that the policy controls the plant"
    remedy = "Put what the controller remembers among the observations, if it is known, and trust supervised trials alone"
    return [Concern("hidden-memory", text, remedy)]


class Loss(NamedTuple):
    """A loss on some rows, and its standard error: a few rare rows may make up most of it."""

    mean: float
    error: float = 0.0

    def since(self, before: float) -> float:
        """Return how far it rose, as a share of what it is now."""
        return (self.mean - before) / max(abs(self.mean), _TINY)

    def __str__(self) -> str:
        return f"{self.mean:.4g} +- {self.error:.2g}"


Losses = Mapping[str, Loss]


@dataclass
class RisingLosses:
    """Remembers when each loss was lowest on held-out rows, and tells which rose since, but not on training rows."""

    held_out: dict[str, float] = field(default_factory=dict)  # the lowest of each loss so far
    training: dict[str, float] = field(default_factory=dict)  # what it was then

    def observe(self, held_out: Losses, training: Losses, distance: float) -> list[Concern]:
        """Take the losses on both kinds of rows and the distance to held-out actions; return a concern where they part."""
        both = {name: (loss, training[name]) for name, loss in held_out.items() if name in training}
        rising = [name for name, losses in both.items() if self._part(name, *losses)]
        if distance <= (1.0 + _RISE) * self.held_out.get(_DISTANCE, inf):
            # a likelihood falls by a spread that is too sure; mean actions that are as near as ever memorise nothing
            rising = [name for name in rising if name != "actor_loss"]
        surge = any(held_out[name].since(self.held_out[name]) > _SURGE for name in rising)
        self.held_out[_DISTANCE] = min(distance, self.held_out.get(_DISTANCE, inf))
        for name, losses in both.items():
            if losses[0].mean < self.held_out.get(name, inf):
                self.held_out[name], self.training[name] = (loss.mean for loss in losses)
        if not rising:
            return []
        shown = "; ".join(
            f"`{name}` was {self.held_out[name]:.4g} and is {held_out[name]}, {training[name]} on training rows"
            for name in rising
        )
        text = f"held-out losses have risen, beyond those on training rows: {shown} (+- is one standard error): the networks "
        text += "memorise the data"
        return [Concern(RISING, text, _FEWER, fleeting=not surge)]

    def _part(self, name: str, held_out: Loss, training: Loss) -> bool:
        """Whether a loss is surely far above that of training rows, and rose where that one did not.

        Growing values raise both, and most where rare events are among the rows: so each is measured by itself.
        """
        if name not in self.held_out:
            return False
        rise = held_out.since(self.held_out[name])
        if rise <= _RISE or training.since(self.training[name]) >= rise / 2.0:
            return False
        chance = _SURE * hypot(held_out.error, training.error)
        return held_out.mean - training.mean > max(_GAP * max(abs(training.mean), _SMALL), chance)

    def state(self) -> dict[str, dict[str, float]]:
        """Return plain values for a checkpoint."""
        return {"held_out": self.held_out, "training": self.training}
