"""The matrix products of each algorithm: its network passes per gradient step, over one period of its delayed updates.

A pass without gradients counts its forward products; one that trains its weights also the weight gradients, and the input
gradients of all layers but the first; one that only passes a gradient on to its inputs also the input gradients, in the
first layer those of the inputs that need it (the actions). One that is also trained through its gradient at these inputs
("twice") counts forward products, input gradients, a pass through the linearised network and weight gradients; its last
layer, which has one output, the forward product alone.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import Any, Final, Literal

Gradient = Literal["none", "weights", "inputs", "twice"]


@dataclass(frozen=True)
class Pass:
    """One network, stacked `stack` times, evaluated on a batch of rows."""

    stack: int
    widths: tuple[int, ...]  # inputs, hidden layers, outputs
    rows: int
    gradient: Gradient = "none"
    wanted: int = 0  # number of inputs, the last ones, that need a gradient


Update = tuple[Pass, ...]
"""The passes of one gradient step, in the order of the update."""


@dataclass(frozen=True)
class Shapes:
    """The sizes that determine an algorithm's passes; `kwargs` are its `algo_kwargs`."""

    observations: int
    actions: int
    kwargs: Any

    def critics(self, gradient: Gradient = "none", rows: int = 1, stack: int | None = None) -> Pass:
        """The ensemble of critics (or `stack` of them), with `rows` actions per transition."""
        kwargs = self.kwargs
        widths = (self.observations + self.actions, *kwargs.critic_widths, 1)
        wanted = self.actions if gradient in ("inputs", "twice") else 0
        return Pass(kwargs.num_critics if stack is None else stack, widths, rows * kwargs.batch_size, gradient, wanted)

    def policy(self, outputs: int, gradient: Literal["none", "weights"] = "none", more_inputs: int = 0) -> Pass:
        """The policy, of observations and `more_inputs` others."""
        widths = (self.observations + more_inputs, *self.kwargs.actor_widths, outputs)
        return Pass(1, widths, self.kwargs.batch_size, gradient)

    def value(self, gradient: Literal["none", "weights"] = "none") -> Pass:
        """The value network."""
        return Pass(1, (self.observations, *self.kwargs.critic_widths, 1), self.kwargs.batch_size, gradient)


def _iql(shapes: Shapes) -> list[Update]:
    """Target critics, next value; value, critics and policy trained."""
    scored = (shapes.critics(), shapes.value())
    trained = (shapes.value("weights"), shapes.critics("weights"))
    return [(*scored, *trained, shapes.policy(shapes.actions, "weights"))]


def _awac(shapes: Shapes) -> list[Update]:
    """Next policy, target critics, critics at the policy's action; critics and policy trained."""
    scored = (shapes.policy(shapes.actions), shapes.critics(), shapes.critics())
    return [(*scored, shapes.critics("weights"), shapes.policy(shapes.actions, "weights"))]


def _td3(shapes: Shapes, leading: int = 1) -> list[Update]:
    """Target policy, target critics, critics trained; when due, the policy trained through the `leading` first critics."""
    critic = (shapes.policy(shapes.actions), shapes.critics(), shapes.critics("weights"))
    actor = (shapes.policy(shapes.actions, "weights"), shapes.critics("inputs", stack=leading))
    return _delayed(critic, actor, shapes.kwargs.actor_interval)


def _rebrac(shapes: Shapes) -> list[Update]:
    """As TD3, but the policy is trained through all critics."""
    return _td3(shapes, shapes.kwargs.num_critics)


def _sac(shapes: Shapes, trained: Gradient = "weights") -> list[Update]:
    """Next policy, target critics, critics trained on all their rows; when due, the policy trained through the ensemble."""
    knobs, outputs = shapes.kwargs, 2 * shapes.actions
    target = (shapes.policy(outputs), shapes.critics(rows=knobs.backup_actions))
    critic = (*target, shapes.critics(trained, rows=knobs.rows_per_transition))
    actor = (shapes.policy(outputs, "weights"), shapes.critics("inputs"))
    return _delayed(critic, actor, knobs.actor_interval or knobs.round_length)


def _edac(shapes: Shapes) -> list[Update]:
    """SAC's, with critics that are trained through their gradients at the actions too."""
    return _sac(shapes, "twice")


def _fql(shapes: Shapes) -> list[Update]:
    """Next policy, target critics; critics and flow trained; the policy trained through the ensemble, towards the flow."""
    actions = shapes.actions
    target = (shapes.policy(actions, more_inputs=actions), shapes.critics())
    cloned = (shapes.policy(actions, more_inputs=actions + 1),) * shapes.kwargs.flow_steps
    trained = (shapes.critics("weights"), shapes.policy(actions, "weights", actions + 1))
    return [(*target, *trained, *cloned, shapes.policy(actions, "weights", actions), shapes.critics("inputs"))]


def _delayed(always: Update, due: Update, interval: int) -> list[Update]:
    return [*[always] * (interval - 1), (*always, *due)]


def _policy_alone(shapes: Shapes) -> list[Update]:
    """Only the policy, trained."""
    return [(shapes.policy(shapes.actions, "weights"),)]


PASSES: Final[Mapping[str, Callable[[Shapes], list[Update]]]] = MappingProxyType(
    {
        **dict.fromkeys(("iql", "xql"), _iql),
        **dict.fromkeys(("td3", "td3_bc"), _td3),
        **dict.fromkeys(("sac", "redq", "rlpd", "cql", "cal_ql", "sac_n"), _sac),
        "awac": _awac,
        "rebrac": _rebrac,
        "edac": _edac,
        "fql": _fql,
    }
)


def updates_of(algo: str, shapes: Shapes, members: int = 1) -> list[Update]:
    """Return the passes of every step in an algorithm's pattern, with all members stacked."""
    pattern = PASSES.get(algo, _policy_alone)(shapes)
    widened = {update: tuple(replace(one, stack=members * one.stack) for one in update) for update in set(pattern)}
    return [widened[update] for update in pattern]
