"""What each algorithm must multiply: its network passes per gradient step, as many steps as its delayed updates repeat after.

A pass that nobody differentiates counts its forward products; one that trains its weights counts them, the weight
gradients, and the input gradients of all layers but the first; one that only carries a gradient to its inputs counts the
input gradients, in the first layer those of the inputs that lead on (the actions).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal


@dataclass(frozen=True)
class Pass:
    """One network, `stack` copies side by side, evaluated on a batch of rows."""

    stack: int
    inputs: int
    outputs: int
    rows: int
    gradient: Literal["none", "weights", "inputs"] = "none"
    wanted: int = 0  # inputs, the last ones, that a gradient goes on to


Update = tuple[Pass, ...]
"""The passes of one gradient step, in the order of the update."""


@dataclass(frozen=True)
class Shapes:
    """The sizes that an algorithm's passes follow from; `kwargs` are its settings."""

    observations: int
    actions: int
    kwargs: Any

    def critics(
        self, gradient: Literal["none", "weights", "inputs"] = "none", rows: int = 1, stack: int | None = None
    ) -> Pass:
        """The ensemble (or `stack` of it), with `rows` actions per transition."""
        width, kwargs = self.observations + self.actions, self.kwargs
        wanted = self.actions if gradient == "inputs" else 0
        return Pass(kwargs.num_critics if stack is None else stack, width, 1, rows * kwargs.batch_size, gradient, wanted)

    def on_observations(self, outputs: int, gradient: Literal["none", "weights"] = "none") -> Pass:
        """A network of the observations alone."""
        return Pass(1, self.observations, outputs, self.kwargs.batch_size, gradient)


def _iql(shapes: Shapes) -> list[Update]:
    """Target critics, next value; value, critics and policy trained."""
    scored = (shapes.critics(), shapes.on_observations(1))
    trained = (shapes.on_observations(1, "weights"), shapes.critics("weights"))
    return [(*scored, *trained, shapes.on_observations(shapes.actions, "weights"))]


def _td3(shapes: Shapes) -> list[Update]:
    """Target policy, target critics, critics trained; the policy through the first critic when it is due."""
    critic = (shapes.on_observations(shapes.actions), shapes.critics(), shapes.critics("weights"))
    actor = (shapes.on_observations(shapes.actions, "weights"), shapes.critics("inputs", stack=1))
    return _delayed(critic, actor, shapes.kwargs.actor_interval)


def _sac(shapes: Shapes) -> list[Update]:
    """Next policy, target critics, critics trained on all their rows; the policy through the ensemble when it is due."""
    knobs, outputs = shapes.kwargs, 2 * shapes.actions
    target = (shapes.on_observations(outputs), shapes.critics(rows=knobs.backup_actions))
    critic = (*target, shapes.critics("weights", rows=knobs.rows_per_transition))
    actor = (shapes.on_observations(outputs, "weights"), shapes.critics("inputs"))
    return _delayed(critic, actor, knobs.actor_interval)


def _delayed(always: Update, due: Update, interval: int) -> list[Update]:
    return [*[always] * (interval - 1), (*always, *due)]


def _policy_alone(shapes: Shapes) -> list[Update]:
    """The policy trained, and nothing else."""
    return [(shapes.on_observations(shapes.actions, "weights"),)]


PASSES: Final[Mapping[str, Callable[[Shapes], list[Update]]]] = MappingProxyType(
    {"iql": _iql, "xql": _iql, "td3_bc": _td3} | dict.fromkeys(("sac", "redq", "rlpd", "cql", "cal_ql"), _sac)
)


def updates_of(algo: str, shapes: Shapes, members: int = 1) -> list[Update]:
    """Return the passes of every step of an algorithm's pattern, all members side by side."""
    pattern = PASSES.get(algo, _policy_alone)(shapes)
    widened = {update: tuple(replace(one, stack=members * one.stack) for one in update) for update in set(pattern)}
    return [widened[update] for update in pattern]
