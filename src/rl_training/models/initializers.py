"""Initial values of parameters, drawn on the CPU from a member's seed so that every device and population starts equal."""

from math import prod, sqrt
from typing import Literal

import torch
from torch import Tensor

from rl_training import rng
from rl_training.models.parameters import Initializer

Initialization = Literal["orthogonal", "xavier", "uniform"]

_CPU = torch.device("cpu")


def zeros(shape: tuple[int, ...], _seed: int, _stream: str) -> Tensor:
    """Return zeros, for biases and other parameters that start at 0."""
    return torch.zeros(shape)


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


def weight_initializer(kind: Initialization, fan_in: int, fan_out: int) -> Initializer:
    """Return the initializer of a weight matrix (in, out)."""
    if kind == "orthogonal":
        return orthogonal(sqrt(2.0))
    if kind == "xavier":
        return uniform(sqrt(6.0 / (fan_in + fan_out)))
    return uniform(1.0 / sqrt(fan_in))
