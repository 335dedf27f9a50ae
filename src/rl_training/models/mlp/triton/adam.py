"""Adam and polyak averaging as one Triton kernel over the flat buffers, which also rounds the new parameters."""

import triton
import triton.language as tl

from rl_training.models.mlp.triton.jobs import pick, pick_pointer, which


@triton.jit
def adam_kernel(
    parameters,
    first,
    second,
    targets,
    gradients,
    factors,
    tau,
    decays,
    rounded,
    rounded_targets,
    META: tl.constexpr,
    SEGMENTS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROW: tl.constexpr,
    TARGET_ROW: tl.constexpr,
    GROUPS: tl.constexpr,
    DECAY: tl.constexpr,
    ROUND: tl.constexpr,
    BETA1: tl.constexpr,
    BETA2: tl.constexpr,
):
    """Apply Adam to some segments of the flat buffers, and polyak averaging to their targets, in one pass over memory.

    A segment is (first program, column, size, group, column of its target or less than 0); `factors` holds the factor of
    m / (sqrt(v) + e), e, and the share of decaying weights that remains, for each member and group; with DECAY, `decays`
    says which columns decay; with ROUND, the new values are also stored rounded.
    """
    segment = which(META, SEGMENTS)
    member = tl.program_id(1)
    offset = (tl.program_id(0) - pick(segment, META, 0, SEGMENTS)) * BLOCK + tl.arange(0, BLOCK)
    size = pick(segment, META, 2, SEGMENTS)
    live = offset < size
    gradient = tl.load(pick_pointer(segment, gradients, SEGMENTS) + member.to(tl.int64) * size + offset, mask=live, other=0.0)
    column = member.to(tl.int64) * ROW + pick(segment, META, 1, SEGMENTS) + offset
    m = tl.load(first + column, mask=live, other=0.0)
    v = tl.load(second + column, mask=live, other=0.0)
    p = tl.load(parameters + column, mask=live, other=0.0)
    m += (gradient - m) * (1.0 - BETA1)
    v = v * BETA2 + gradient * gradient * (1.0 - BETA2)
    own = factors + (member * GROUPS + pick(segment, META, 3, SEGMENTS)) * 3
    if DECAY:
        decaying = tl.load(decays + pick(segment, META, 1, SEGMENTS) + offset, mask=live, other=0.0) > 0.0
        p *= tl.where(decaying, tl.load(own + 2), 1.0)
    p += tl.load(own) * m / (tl.sqrt(v) + tl.load(own + 1))
    tl.store(first + column, m, mask=live)
    tl.store(second + column, v, mask=live)
    tl.store(parameters + column, p, mask=live)
    if ROUND:
        tl.store(rounded + column, p, mask=live)
    target_column = pick(segment, META, 4, SEGMENTS)
    if target_column >= 0:
        followed = member.to(tl.int64) * TARGET_ROW + target_column + offset
        old = tl.load(targets + followed, mask=live, other=0.0)
        new = old + tl.load(tau + member) * (p - old)
        tl.store(targets + followed, new, mask=live)
        if ROUND:
            tl.store(rounded_targets + followed, new, mask=live)
