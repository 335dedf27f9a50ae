"""Triton kernels that add up partial gradients, always in the same order."""

import triton
import triton.language as tl

from rl_training.models.mlp.triton.jobs import pick, pick_pointer, which


@triton.jit
def add_parts_kernel(parts, result, size, COUNT: tl.constexpr, BLOCK: tl.constexpr):
    """Write the sum of COUNT partial results, which are stored one after another, added in order."""
    place = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = place < size
    total = tl.load(parts + place, mask=mask)
    for part in tl.static_range(1, COUNT):
        total += tl.load(parts + size.to(tl.int64) * part + place, mask=mask)
    tl.store(result + place, total, mask=mask)


@triton.jit
def add_ranges_kernel(parts, results, members, META: tl.constexpr, PIECES: tl.constexpr, BLOCK: tl.constexpr):
    """Write the sums of partial results (parts, members, size), added in order, for some ranges of columns.

    A piece is (first program, column, columns, size, parts).
    """
    piece = which(META, PIECES)
    place = (tl.program_id(0) - pick(piece, META, 0, PIECES)) * BLOCK + tl.arange(0, BLOCK)
    live = place < pick(piece, META, 2, PIECES)
    place += pick(piece, META, 1, PIECES)
    size, count = pick(piece, META, 3, PIECES), pick(piece, META, 4, PIECES)
    own = tl.program_id(1).to(tl.int64) * size
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for start in range(0, count, 8):
        part = start + tl.arange(0, 8)
        address = pick_pointer(piece, parts, PIECES) + own + (part.to(tl.int64) * members * size)[:, None] + place[None, :]
        total += tl.sum(tl.load(address, mask=(part < count)[:, None] & live[None, :], other=0.0), 0)
    tl.store(pick_pointer(piece, results, PIECES) + own + place, total, mask=live)
