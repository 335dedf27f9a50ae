"""Counter-based random streams: every draw is a pure function of (seed, stream, step), never of a state.

The generator is Threefry-2x64 with 20 rounds (Salmon, Moraes, Dror, Shaw: "Parallel random numbers: as easy as 1, 2, 3",
2011), written on int64 tensors, whose arithmetic wraps. The key is (seed, stream) and the counter (step, position), so

* nothing has to be saved to resume exactly;
* member k of a population draws what a solo run with its seed draws;
* CPU and GPU draw the same integers and uniforms bit for bit.

In eager mode a draw costs a hundred small operations whatever its size: draw the steps of a whole chunk at once by passing
`step` as a tensor of steps, or through `Draws`. A longer draw begins with the shorter one of the same stream and step.
"""

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from math import pi, prod
from typing import Self

import torch
from torch import Tensor

_ROTATIONS = ((16, 42, 12, 31), (16, 32, 24, 21))
_PARITY = 0x1BD11BDAA9FC1A22
_LOW_32 = 0xFFFFFFFF

Seeds = Tensor | Sequence[int]
Steps = Tensor | int


@lru_cache(maxsize=1024)
def _hashed(name: str) -> int:
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "little", signed=True)


def stream_key(name: str) -> int:
    """Return the 64-bit key of a named stream, the same on every machine; a constant inside a compiled graph."""
    return _hashed(name)


# What `torch.compiler.assume_constant_result` sets; calling it would import the compiler, a second on every command.
stream_key._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _shift_right(x: Tensor, bits: int) -> Tensor:
    """Logical right shift of int64 (torch's own is arithmetic)."""
    return x.bitwise_right_shift(bits).bitwise_and_((1 << (64 - bits)) - 1)


def threefry2x64(key: tuple[Tensor, Tensor], counter: tuple[Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    """Return the two 64-bit words of Threefry-2x64-20 for int64 tensors that broadcast together."""
    keys = (key[0], key[1], key[0] ^ key[1] ^ _PARITY)
    x0, x1 = counter[0] + keys[0], counter[1] + keys[1]
    for block in range(5):
        for rotation in _ROTATIONS[block % 2]:
            x0 = x0 + x1
            x1 = x1.bitwise_left_shift(rotation).bitwise_or_(_shift_right(x1, 64 - rotation)).bitwise_xor(x0)
        x0 = x0 + keys[(block + 1) % 3]
        x1 = x1 + (keys[(block + 2) % 3] + (block + 1))
    return x0, x1


def _int64(value: Tensor | Sequence[int] | int, device: torch.device | None) -> Tensor:
    """Convert to int64; a single number is filled in on the device, since graph capture allows no copy from the host."""
    if isinstance(value, int):
        return torch.full((), value, dtype=torch.int64, device=device)
    return torch.as_tensor(value, dtype=torch.int64, device=device)


def _words(seeds: Seeds, stream: str, step: Steps, count: int, device: torch.device | None) -> tuple[Tensor, Tensor]:
    """The two words of the blocks that hold `count` draws: each (members, steps, ceil(count / 2)), or without steps."""
    if device is None:
        device = seeds.device if isinstance(seeds, Tensor) else step.device if isinstance(step, Tensor) else None
    seed, steps = _int64(seeds, device), _int64(step, device)
    member_shape = (-1, 1) if steps.ndim == 0 else (-1, 1, 1)
    step_shape = (1, 1) if steps.ndim == 0 else (1, -1, 1)
    position = torch.arange((count + 1) // 2, dtype=torch.int64, device=device)
    seed = seed.reshape(member_shape)
    # derive the stream's key from loaded data: a compiler that folded a constant into the index of `position` would
    # narrow both to 32 bits
    stream_word = seed.bitwise_and(0).bitwise_or(stream_key(stream))
    return threefry2x64((seed, stream_word), (steps.reshape(step_shape), position))


def _interleave(first: Tensor, second: Tensor, shape: Sequence[int]) -> Tensor:
    """Join the two words of each block and cut to `shape` after the leading (members[, steps]) axes."""
    flat = torch.stack((first, second), dim=-1).flatten(-2)[..., : prod(shape)]
    return flat.reshape(*first.shape[:-1], *shape)


def bits(seeds: Seeds, stream: str, step: Steps, shape: Sequence[int] = (), *, device: torch.device | None = None) -> Tensor:
    """Return 64 random bits per element as int64: (members, *shape), or (members, steps, *shape) for a range of steps."""
    return _interleave(*_words(seeds, stream, step, prod(shape), device), shape)


def _multiply_high(x: Tensor, n: Tensor) -> Tensor:
    """floor(x * n / 2^64) for unsigned 64-bit x and n < 2^63, in 32-bit pieces, exact under wrapping arithmetic."""
    x_low, x_high = x & _LOW_32, _shift_right(x, 32)
    n_low, n_high = n & _LOW_32, _shift_right(n, 32)
    middle = x_high * n_low + _shift_right(x_low * n_low, 32)
    cross = x_low * n_high + (middle & _LOW_32)
    return x_high * n_high + _shift_right(middle, 32) + _shift_right(cross, 32)


def integers(
    seeds: Seeds,
    stream: str,
    step: Steps,
    shape: Sequence[int] = (),
    *,
    high: Tensor | int,
    device: torch.device | None = None,
) -> Tensor:
    """Return int64 integers in [0, high), uniform to within high / 2^64.

    `high` is a number or a tensor that broadcasts over the leading axes: `()`, `(members,)` with one step, `(steps,)` or
    `(members, steps)` with a range of steps (a replay buffer that grows).
    """
    return bounded(bits(seeds, stream, step, shape, device=device), high, len(shape))


def bounded(words: Tensor, high: Tensor | int, axes: int) -> Tensor:
    """Map random bits (..., *shape) to integers in [0, high); `axes` is the length of shape."""
    bound = _int64(high, words.device)
    if bound.ndim > 0:
        bound = bound.reshape(*bound.shape, *(1 for _ in range(axes)))
    return _multiply_high(words, bound)


def uniforms(
    seeds: Seeds, stream: str, step: Steps, shape: Sequence[int] = (), *, device: torch.device | None = None
) -> Tensor:
    """Return float32 uniforms in [0, 1), multiples of 2^-24, bit-identical on every device."""
    return _shift_right(bits(seeds, stream, step, shape, device=device), 40).to(torch.float32) * 2.0**-24


def normals(
    seeds: Seeds, stream: str, step: Steps, shape: Sequence[int] = (), *, device: torch.device | None = None
) -> Tensor:
    """Return float32 standard normals (Box and Muller in float64), equal across devices to 1e-6."""
    first, second = _words(seeds, stream, step, prod(shape), device)
    radius = ((_shift_right(first, 11) + 1).to(torch.float64) * 2.0**-53).log_().mul_(-2.0).sqrt_()
    angle = _shift_right(second, 11).to(torch.float64) * (2.0**-53 * 2.0 * pi)
    return _interleave(radius * angle.cos(), radius * angle.sin(), shape).to(torch.float32)


DrawKey = tuple[Callable[..., Tensor], str, tuple[int, ...]]
"""The function that draws, the name of the stream, and the shape for one member and step."""


class Draws:
    """The random numbers of one step inside a chunk: each stream is drawn for the whole chunk on first use.

    What a step receives is a function of (seed, stream, step) alone; the chunk only sets what is drawn together. With a
    `part` (number, of how many) it receives the numbers of that part of a batch's rows, as they are in the whole batch.
    """

    def __init__(
        self,
        seeds: Tensor,
        steps: Tensor,
        *,
        offset: int = 0,
        drawn: dict[DrawKey, Tensor] | None = None,
        part: tuple[int, int] = (0, 1),
    ) -> None:
        self._seeds, self._steps, self._offset, self._part = seeds, steps, offset, part
        self._drawn = {} if drawn is None else drawn

    @classmethod
    def of_steps(cls, seeds: Tensor, first: int, count: int = 1, part: tuple[int, int] = (0, 1)) -> Self:
        """Return the draws of the first of `count` steps, for all rows of a batch or a part of them."""
        return cls(seeds, torch.arange(first, first + count, device=seeds.device), part=part)

    @classmethod
    def given(cls, seeds: Tensor, streams: Sequence[DrawKey], values: Sequence[Tensor]) -> Self:
        """Return draws of one step with these numbers, (members, *shape) per stream; other streams are not available."""
        drawn = {key: value.unsqueeze(1) for key, value in zip(streams, values, strict=True)}
        return cls(seeds, torch.empty(0), drawn=drawn)

    @property
    def streams(self) -> tuple[DrawKey, ...]:
        """The streams drawn so far, in order of first use."""
        return tuple(self._drawn)

    def values_of_step(self, streams: Sequence[DrawKey]) -> list[Tensor]:
        """Return this step's numbers of some streams, (members, *shape) each."""
        return [self._chunk(*key) for key in streams]

    def at(self, offset: int) -> "Draws":
        """Return the draws of another step of the same chunk."""
        return Draws(self._seeds, self._steps, offset=offset, drawn=self._drawn, part=self._part)

    def _chunk(self, draw: Callable[..., Tensor], stream: str, shape: Sequence[int]) -> Tensor:
        """This step's part of a stream, (members, *shape)."""
        return self._whole(draw, stream, shape)[:, self._offset]

    def _whole(self, draw: Callable[..., Tensor], stream: str, shape: Sequence[int]) -> Tensor:
        """A stream of all steps of the chunk, (members, steps, *shape)."""
        key = (draw, stream, tuple(shape))
        if key not in self._drawn:
            self._drawn[key] = draw(self._seeds, stream, self._steps, shape)
        return self._drawn[key]

    def _own(self, draw: Callable[..., Tensor], stream: str, shape: Sequence[int]) -> Tensor:
        """This step's numbers for the own rows, which are on axis -2; a shape of one axis has none, and is for all."""
        number, parts = self._part
        if parts == 1 or len(shape) < 2:
            return self._chunk(draw, stream, shape)
        rows = shape[-2]
        return self._chunk(draw, stream, (*shape[:-2], parts * rows, shape[-1])).narrow(-2, number * rows, rows)

    def normals(self, stream: str, shape: Sequence[int]) -> Tensor:
        """Return standard normals (members, *shape) of this step."""
        return self._own(normals, stream, shape)

    def uniforms(self, stream: str, shape: Sequence[int]) -> Tensor:
        """Return uniforms in [0, 1), (members, *shape), of this step."""
        return self._own(uniforms, stream, shape)

    def bits(self, stream: str, shape: Sequence[int], offset: int, count: int) -> Tensor:
        """Return random bits of `count` steps of the chunk, (members, count, *shape)."""
        return self._whole(bits, stream, shape)[:, offset : offset + count]


class DrawnAhead:
    """Draws of consecutive steps, (members, steps, *shape), many of them at once; for the CPU."""

    STEPS, NUMBERS = 100, 2**20  # the most that is drawn at once, per stream

    def __init__(self, seeds: Tensor) -> None:
        self._seeds = seeds
        self._kept: dict[DrawKey, tuple[int, Tensor]] = {}

    def __call__(self, key: DrawKey, steps: Tensor) -> Tensor:
        """Return the numbers of some steps."""
        draw, stream, shape = key
        first, count = int(steps[0]), len(steps)
        start, values = self._kept.get(key, (0, torch.empty(0, 0)))
        if not start <= first <= start + values.shape[1] - count:
            many = max(count, min(self.STEPS, self.NUMBERS // (len(self._seeds) * prod(shape))))
            start, values = first, draw(self._seeds, stream, torch.arange(first, first + many), shape)
            self._kept[key] = (start, values)
        return values[:, first - start : first - start + count]
