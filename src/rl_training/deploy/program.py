"""A policy as plain numbers, from an observation in real units to an action in real units: what every format writes down."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from rl_training.config.shared_knobs import Activation
from rl_training.data.spaces import Names, Spaces
from rl_training.data.transforms import Transforms
from rl_training.models.base import StackedModel
from rl_training.models.mlp.layout import Norm
from rl_training.models.mlp.network import StackedMLP

Floats = NDArray[np.float32]
LARGEST = 1e38  # an observation beyond it counts as infinite: a difference from it might be
LARGEST_UNBOUNDED = 1e15  # the same where normalised observations are not bounded: float32 overflows in the networks


@dataclass(frozen=True, eq=False)
class Layer:
    """One layer of a perceptron; scale and offset are those of its LayerNorm."""

    weight: Floats  # (inputs, outputs)
    bias: Floats
    scale: Floats | None = None
    offset: Floats | None = None


@dataclass(frozen=True, eq=False)
class Network:
    """A perceptron: LayerNorm before or after each activation, or none; the last layer has neither."""

    layers: tuple[Layer, ...]
    norm: Norm


@dataclass(frozen=True, eq=False)
class Safety:
    """What an exported policy does beyond computing an action, in this order.

    If an observation is NaN, infinite or beyond `largest`, or an action is not finite, every action is replaced: by
    `fallback`, or if that is None by the last action. Then no action changes by more than `change` since the last one; a
    last action that is not finite is not known, and limits nothing. Then it is inside `low` and `high`. `seen` is the range
    of each observation in the data; how many columns of a row are outside, or NaN, is a second output.
    """

    low: Floats
    high: Floats
    fallback: Floats | None
    change: Floats | None = None
    seen: tuple[Floats, Floats] | None = None
    largest: float = LARGEST

    @property
    def uses_last(self) -> bool:
        """Whether the last action is an input."""
        return self.change is not None or self.fallback is None

    def applied(self, actions: Floats, observations: Floats, last: Floats) -> Floats:
        """Return what becomes of computed actions (rows, actions): the rules in numpy, for comparisons."""
        good = self.usable(observations)[:, None] & np.isfinite(actions).all(axis=1, keepdims=True)
        last = np.where(np.isfinite(last), last, np.float32(np.nan))
        result = np.where(good, actions, last if self.fallback is None else self.fallback)
        if self.change is not None:
            near = np.clip(result, last - self.change, last + self.change)
            result = np.where(np.isnan(last), result, near)
        return np.clip(result, self.low, self.high)

    def usable(self, observations: Floats) -> NDArray[np.bool_]:
        """Return which rows have numbers that the policy can compute with."""
        return np.asarray((np.abs(observations) <= np.float32(self.largest)).all(axis=1))

    def outside(self, observations: Floats) -> NDArray[np.int64] | None:
        """Return how many columns of each row are outside the range of the data; None without a range."""
        if self.seen is None:
            return None
        low, high = self.seen
        return np.asarray((~((observations >= low) & (observations <= high))).sum(axis=1), dtype=np.int64)


@dataclass(frozen=True, eq=False)
class Program:
    """One member's deterministic policy with everything before and after its network."""

    observation_names: Names
    action_names: Names
    mean: Floats
    std: Floats  # inf for a column that never changed in the data: it becomes 0
    limit: float
    actor: Network
    activation: Activation
    squashed: bool
    middle: Floats
    half_range: Floats
    free: NDArray[np.bool_]  # actions that are not held at one value
    safety: Safety
    candidates: Floats | None = None
    critics: tuple[Network, ...] = ()

    @property
    def place(self) -> Floats:
        """Where each learned action stands among all, (learned, actions)."""
        return np.eye(len(self.free), dtype=np.float32)[self.free]

    def arrays(self) -> dict[str, NDArray[Any]]:
        """Return the numbers by the names that `standalone.Policy` reads."""
        safety, actions = self.safety, len(self.middle)
        any_value = np.full(len(self.mean), np.inf, dtype=np.float32)
        seen_low, seen_high = (-any_value, any_value) if safety.seen is None else safety.seen
        no_limit = np.full(actions, np.inf, dtype=np.float32)
        found: dict[str, Any] = {
            **{"mean": self.mean, "std": self.std, "limit": np.float32(self.limit), "activation": self.activation},
            **{"squashed": self.squashed, "middle": self.middle, "half_range": self.half_range, "place": self.place},
            **{"low": safety.low, "high": safety.high, "fallback": safety.fallback, "uses_last": safety.uses_last},
            **{"change": no_limit if safety.change is None else safety.change, "largest": np.float32(safety.largest)},
            **{"flag": safety.seen is not None, "seen_low": seen_low, "seen_high": seen_high},
            **{"observation_names": self.observation_names, "action_names": self.action_names},
            **{"candidates": self.candidates, "critics": len(self.critics), **_network_arrays("actor", self.actor)},
        }
        for number, critic in enumerate(self.critics):
            found |= _network_arrays(f"critic{number}", critic)
        return {name: np.asarray(value) for name, value in found.items() if value is not None}


def _network_arrays(name: str, network: Network) -> dict[str, Any]:
    found: dict[str, Any] = {f"{name}.layers": len(network.layers), f"{name}.norm": network.norm}
    for number, layer in enumerate(network.layers):
        found |= {f"{name}.{number}.{part}": value for part, value in vars(layer).items()}
    return found


def program_of(model: StackedModel, member: int, spaces: Spaces, transforms: Transforms, safety: Safety) -> Program:
    """Return one member's policy as plain numbers."""
    parts, values = model.acting_parts(), model.tensors()
    actor = _network(parts.actor, values, member)
    candidates: Floats | None = None
    critics: tuple[Network, ...] = ()
    if parts.candidates is not None:
        candidates = parts.candidates.cpu().numpy()
        if len(candidates) == 1:  # nothing to choose from: its part of the first product is a constant
            actor, candidates = _with_constant_inputs(actor, candidates[0]), None
        elif parts.critic is not None:
            critics = tuple(_network(parts.critic, values, member, k) for k in range(parts.critic.ensemble or 1))
    low, high = spaces.action_low, spaces.action_high
    return Program(
        observation_names=spaces.observation_names or tuple(f"observation {k}" for k in range(spaces.observation_dim)),
        action_names=tuple(spaces.action_name(k) for k in range(spaces.action_dim)),
        mean=transforms.observation_mean,
        std=transforms.observation_std,
        limit=transforms.observation_limit,
        actor=actor,
        activation=parts.actor.activation,
        squashed=parts.squashed,
        middle=(high + low) / np.float32(2.0),
        half_range=(high - low) / np.float32(2.0),
        free=spaces.free,
        safety=safety if np.isfinite(transforms.observation_limit) else replace(safety, largest=LARGEST_UNBOUNDED),
        candidates=candidates,
        critics=critics,
    )


def _network(network: StackedMLP, values: Mapping[str, Tensor], member: int, critic: int | None = None) -> Network:
    """The perceptron of a member, or one critic of it."""
    layers = []
    for number in range(network.hidden_layers + 1):
        named = {part: values.get(f"{network.name}/{number}/{part}") for part in ("weight", "bias", "scale", "offset")}
        own = {part: value[member] for part, value in named.items() if value is not None}
        if network.ensemble is not None and critic is not None:
            own = {part: value[critic] for part, value in own.items()}
        layers.append(Layer(**{part: value.cpu().numpy().copy() for part, value in own.items()}))
    return Network(tuple(layers), network.norm)


def _with_constant_inputs(network: Network, last_inputs: Floats) -> Network:
    """The network with its last inputs held at given values."""
    first, own = network.layers[0], len(network.layers[0].weight) - len(last_inputs)
    bias = first.bias + last_inputs @ first.weight[own:]
    return Network((Layer(first.weight[:own].copy(), bias, first.scale, first.offset), *network.layers[1:]), network.norm)
