"""The draws of `rng.py` as a Triton kernel, for compiled steps on a GPU.

One launch draws a stream for all steps of a block. As operations of torch, the twenty rounds of Threefry would be most of
what the compiler has to compile; here they are inside an operator that is opaque to it.
"""

from math import pi, prod

import torch
import triton
import triton.language as tl
from torch import Tensor

from rl_training import rng

_BLOCK = 256
_PARITY = tl.constexpr(rng._PARITY)
_TO_UNIT_24, _TO_UNIT_53 = tl.constexpr(2.0**-24), tl.constexpr(2.0**-53)
_TO_ANGLE = tl.constexpr(2.0**-53 * 2.0 * pi)


def drawn(seeds: Tensor, key: rng.DrawKey, steps: Tensor) -> Tensor:
    """Return a stream's numbers of some steps, (members, steps, *shape): bits and uniforms are those of `rng.py` exactly.

    In memory the steps come first.
    """
    function, stream, shape = key
    found: Tensor = draw(seeds, steps, function.__name__, rng.stream_key(stream), prod(shape))
    return found.view(-1, len(seeds), *shape).transpose(0, 1)


def _empty(seeds: Tensor, steps: Tensor, kind: str, stream: int, count: int) -> Tensor:
    del stream
    dtype = torch.int64 if kind == "bits" else torch.float32
    return torch.empty(len(steps), len(seeds), count, dtype=dtype, device=seeds.device)


@torch.library.custom_op("rl_training::draw", mutates_args=())
def draw(seeds: Tensor, steps: Tensor, kind: str, stream: int, count: int) -> Tensor:
    """Launch the draw of `count` numbers for each step and member, (steps, members, count)."""
    result = _empty(seeds, steps, kind, stream, count)
    grid = (len(steps) * len(seeds), triton.cdiv(count, 2 * _BLOCK))
    draw_kernel[grid](seeds, steps, result, stream, len(seeds), count, KIND=kind, BLOCK=_BLOCK)
    return result


draw.register_fake(_empty)


@triton.jit(do_not_specialize=["stream", "members", "count"])
def draw_kernel(seeds, steps, result, stream: tl.int64, members, count, KIND: tl.constexpr, BLOCK: tl.constexpr):
    """Write the numbers of one member and step; a program computes BLOCK blocks of Threefry, two numbers each.

    `stream` is the signed 64-bit key of the stream. Arithmetic is unsigned, so that it wraps and shifts are logical.
    """
    row = tl.program_id(0)
    seed = tl.load(seeds + row % members).to(tl.uint64)
    step = tl.load(steps + row // members).to(tl.uint64)
    pair = tl.program_id(1) * BLOCK + tl.arange(0, BLOCK)
    first, second = threefry2x64(seed, stream.to(tl.int64).to(tl.uint64), step, pair.to(tl.uint64))
    if KIND == "normals":
        radius = tl.sqrt(tl.log(((first >> 11) + 1).to(tl.float64) * _TO_UNIT_53) * -2.0)
        angle = (second >> 11).to(tl.float64) * tl.full((1,), _TO_ANGLE, tl.float64)
        one, other = (radius * tl.cos(angle)).to(tl.float32), (radius * tl.sin(angle)).to(tl.float32)
    elif KIND == "uniforms":
        one, other = (first >> 40).to(tl.float32) * _TO_UNIT_24, (second >> 40).to(tl.float32) * _TO_UNIT_24
    else:
        tl.static_assert(KIND == "bits")
        one, other = first.to(tl.int64), second.to(tl.int64)
    own = result + row.to(tl.int64) * count + 2 * pair
    tl.store(own, one, mask=2 * pair < count)
    tl.store(own + 1, other, mask=2 * pair + 1 < count)


@triton.jit
def threefry2x64(seed, stream, step, position):
    """Return the two words of Threefry-2x64-20 for the key (seed, stream) and the counter (step, position)."""
    third = seed ^ stream ^ _PARITY
    x0, x1 = step + seed, position + stream
    x0, x1 = _rounds(x0, x1, 16, 42, 12, 31)
    x0, x1 = _rounds(x0 + stream, x1 + (third + 1), 16, 32, 24, 21)
    x0, x1 = _rounds(x0 + third, x1 + (seed + 2), 16, 42, 12, 31)
    x0, x1 = _rounds(x0 + seed, x1 + (stream + 3), 16, 32, 24, 21)
    x0, x1 = _rounds(x0 + stream, x1 + (third + 4), 16, 42, 12, 31)
    return x0 + third, x1 + (seed + 5)


@triton.jit
def _rounds(x0, x1, A: tl.constexpr, B: tl.constexpr, C: tl.constexpr, D: tl.constexpr):
    """Return the words after four rounds with these rotations."""
    x0, x1 = _round(x0, x1, A)
    x0, x1 = _round(x0, x1, B)
    x0, x1 = _round(x0, x1, C)
    return _round(x0, x1, D)


@triton.jit
def _round(x0, x1, ROTATION: tl.constexpr):
    x0 += x1
    return x0, ((x1 << ROTATION) | (x1 >> (64 - ROTATION))) ^ x0
