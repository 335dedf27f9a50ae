"""Running a project written in JAX: in float64, without compilation, with given noise, and its losses and gradients seen."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from importlib.metadata import version
from typing import Any, TypeVar
from unittest.mock import patch

import jax
import jax.numpy as jnp
import numpy as np

from tools.references.common import STEPS, Array, Recording, coarse

jax.config.update("jax_enable_x64", True)
jax.config.update("jax_disable_jit", True)  # compiled code would keep the random numbers of its first call
if not hasattr(jax, "tree_multimap"):  # an old name that two projects use
    jax.tree_multimap = jax.tree_util.tree_map

VERSIONS = {name: version(name) for name in ("jax", "flax", "optax")}
_ADAM_BETA1 = 0.9

Tree = Any
"""Nested mappings of arrays, as JAX has them."""
View = Callable[[Any], Tree]
"""What to read of a train state: its parameters, or their gradients."""
AgentT = TypeVar("AgentT")


def redraw(recording: Recording, tree: Tree) -> Tree:
    """Return new values for every parameter, so that no two that a formula could confuse are equal."""

    def draw(path: Sequence[Any], leaf: Any) -> Any:
        shape = np.shape(leaf)
        bound = 2.0 / shape[-2] ** 0.5 if "kernel" in str(path[-1]) else 0.5
        return jnp.asarray(coarse(recording.rng.uniform(-bound, bound, shape)))

    return jax.tree_util.tree_map_with_path(draw, tree)


def perceptron(name: str, *parts: Tree) -> dict[str, Any]:
    """Return the dense layers of a network, part after part, and their LayerNorms, by our names."""
    dense = [layer for part in parts for layer in _numbered(part, "Dense")]
    norms = [layer for part in parts for layer in _numbered(part, "LayerNorm")]
    found = {}
    for number, layer in enumerate(dense):
        found[f"{name}/{number}/weight"], found[f"{name}/{number}/bias"] = layer["kernel"], layer["bias"]
    for number, layer in enumerate(norms):
        found[f"{name}/{number}/scale"], found[f"{name}/{number}/offset"] = layer["scale"], layer["bias"]
    return found


def _numbered(tree: Tree, kind: str) -> list[Tree]:
    return [tree[f"{kind}_{number}"] for number in range(len(tree)) if f"{kind}_{number}" in tree]


def joined(layers: Sequence[Tree]) -> Tree:
    """Return the heads of a network as one layer, joined along the outputs."""
    return {part: jnp.concatenate([layer[part] for layer in layers], axis=-1) for part in ("kernel", "bias")}


def ensemble(critics: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Return the parameters of separate critics with an ensemble axis."""
    return {name: jnp.stack([critic[name] for critic in critics]) for name in critics[0]}


def parameters(state: Any) -> Tree:
    """Return the parameters of a train state."""
    return state.params


def first_gradients(state: Any) -> Tree:
    """Return the gradients of a state that was updated once, from Adam's running mean; NaN before and after."""
    (adam,) = [part for part in jax.tree_util.tree_leaves(state.opt_state, is_leaf=_is_adam) if _is_adam(part)]
    factor = 1.0 / (1.0 - _ADAM_BETA1) if adam.count == 1 else np.nan
    return jax.tree_util.tree_map(lambda mean: factor * mean, adam.mu)


def _is_adam(state: Any) -> bool:
    return hasattr(state, "mu")


def _replaced(original: Callable[..., Any], sampler: Callable[..., Any]) -> Callable[..., Any]:
    """Return a sampler that needs no key; Flax checks the shapes of parameters by abstract draws, which stay as they are."""

    def draw(key: Any, *args: Any, **kwargs: Any) -> Any:
        return original(key, *args, **kwargs) if isinstance(key, jax.core.Tracer) else sampler(*args, **kwargs)

    return draw


class Noise:
    """The random numbers that the other code is given, in the order in which it asks for them."""

    def __init__(self) -> None:
        self._waiting: list[Array] = []

    def give(self, *arrays: Array) -> None:
        """Queue arrays in the shapes that the other code asks for."""
        self._waiting += arrays

    def _take(self, shape: Sequence[int]) -> Any:
        values = self._waiting.pop(0)
        if values.shape != tuple(shape):
            raise ValueError(f"the code draws {tuple(shape)} where {values.shape} was prepared")
        return jnp.asarray(values)

    def _normal(self, shape: Sequence[int] = (), dtype: Any = None) -> Any:
        del dtype
        return self._take(shape)

    def _uniform(self, shape: Sequence[int] = (), dtype: Any = None, minval: float = 0.0, maxval: float = 1.0) -> Any:
        """Uniforms in a range; those given are in [0, 1)."""
        del dtype
        return minval + (maxval - minval) * self._take(shape)

    def _choice(self, a: Any, shape: Sequence[int], replace: bool) -> Any:
        """A choice without replacement; one uniform per element is given, as to ours."""
        if replace:
            raise ValueError("only draws without replacement are expected")
        return a[jnp.argsort(self._take(a.shape))[: shape[0]]]

    @contextmanager
    def replacing_samplers(self) -> Iterator[None]:
        """Replace JAX's samplers inside the block; every number given must be used."""
        given: dict[str, Callable[..., Any]] = {"normal": self._normal, "uniform": self._uniform, "choice": self._choice}
        with ExitStack() as stack:
            for name, sampler in given.items():
                stack.enter_context(patch.object(jax.random, name, _replaced(getattr(jax.random, name), sampler)))
            yield
        if self._waiting:
            raise ValueError(f"the code left {len(self._waiting)} prepared arrays unused")


def run(
    recording: Recording,
    agent: AgentT,
    update: Callable[[AgentT, int, Noise], tuple[AgentT, Mapping[str, Any]]],
    trained: Callable[[AgentT, View], Mapping[str, Any]],
    targets: Callable[[AgentT], Mapping[str, Any]],
) -> Recording:
    """Record ten updates; `update` returns the next agent and its losses, `trained` and `targets` parameters by our names."""

    def values() -> dict[str, Any]:
        return {**trained(agent, parameters), **{f"target/{name}": value for name, value in targets(agent).items()}}

    recording.initial(values())
    gradients: dict[str, Any] = {}
    noise = Noise()
    with noise.replacing_samplers():
        for step in range(STEPS):
            agent, losses = update(agent, step, noise)
            recording.losses(step, losses)
            found = trained(agent, first_gradients)
            gradients |= {name: value for name, value in found.items() if np.isfinite(value).all()}
    recording.gradients(gradients)
    recording.final(values())
    return recording
