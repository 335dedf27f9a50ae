"""Initial values of parameters, drawn on the CPU from a member's seed so that every device and population starts equal."""

from math import prod, sqrt

import torch
from torch import Tensor

from rl_training import rng
from rl_training.config.shared_knobs import Initialization
from rl_training.models.parameters import Initializer

_CPU = torch.device("cpu")


def zeros(shape: tuple[int, ...], _seed: int, _stream: str) -> Tensor:
    """Return zeros, for biases and other parameters that start at 0."""
    return torch.zeros(shape)


def constant(value: float) -> Initializer:
    """Return an initializer that fills with one value."""

    def draw(shape: tuple[int, ...], _seed: int, _stream: str) -> Tensor:
        return torch.full(shape, value)

    return draw


def ones(shape: tuple[int, ...], _seed: int, _stream: str) -> Tensor:
    """Return ones, for the scales of LayerNorm."""
    return torch.ones(shape)


def uniform(bound: float) -> Initializer:
    """Return an initializer that draws from [-bound, bound)."""

    def draw(shape: tuple[int, ...], seed: int, stream: str) -> Tensor:
        return (rng.uniforms([seed], stream, 0, shape, device=_CPU)[0] * 2.0 - 1.0) * bound

    return draw


def orthogonal(gain: float) -> Initializer:
    """Return an initializer that makes the last two axes (in, out) orthogonal, separately for each critic."""

    def draw(shape: tuple[int, ...], seed: int, stream: str) -> Tensor:
        rows, columns = shape[-2:]
        tall, wide = max(rows, columns), min(rows, columns)
        noise = rng.normals([seed], stream, 0, (prod(shape[:-2]), tall, wide), device=_CPU)[0]
        matrices = []
        for part in noise.to(torch.float64):  # one at a time, because a batched factorisation may round differently
            q, r = torch.linalg.qr(part)
            q = q * r.diagonal().sign()
            matrices.append(q if rows >= columns else q.T)
        return (torch.stack(matrices) * gain).to(torch.float32).reshape(shape)

    return draw


def layer_initializers(
    kind: Initialization, fan_in: int, fan_out: int, gain: float | None = None, last_bound: float | None = None
) -> tuple[Initializer, Initializer]:
    """Return the initializers of a layer's weight (in, out) and of its bias.

    `gain` replaces the orthogonal gain of sqrt 2, and is a factor of the other kinds. `last_bound` is given for a last layer:
    the bound of its weights and biases in EDAC's rule, which `corl` follows too.
    """
    if kind == "orthogonal":
        return orthogonal(sqrt(2.0) if gain is None else gain), zeros
    factor = 1.0 if gain is None else gain
    if kind == "xavier":
        return uniform(factor * sqrt(6.0 / (fan_in + fan_out))), zeros
    bound = uniform(factor / sqrt(fan_in))
    if kind == "uniform":
        return bound, bound
    return (bound, constant(0.1)) if last_bound is None else (uniform(last_bound), uniform(last_bound))
