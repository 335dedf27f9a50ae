"""Adam and polyak averaging in one pass over the flat buffers, which also rounds the new parameters."""

import triton
import triton.language as tl

from rl_training.models.mlp.triton.jobs import pick, pick_pointer, which


@triton.jit
def adam_update(gradient, live, place, buffers, decays, own, tau, follows, RULE: tl.constexpr):
    """Update the parameters at some places by their gradient, and their targets, if there is one that `follows`.

    `buffers` are those of `buffers_of`, `own` holds the factor of m / (sqrt(v) + e), e, and the share of decaying weights
    that remains. RULE says whether any weight decays, as `decays` says for each place, and whether the new values are also
    stored rounded; then it has both betas.
    """
    parameters, first, second, targets, rounded, rounded_targets = buffers
    m = tl.load(first + place, mask=live, other=0.0)
    v = tl.load(second + place, mask=live, other=0.0)
    p = tl.load(parameters + place, mask=live, other=0.0)
    m += (gradient - m) * (1.0 - RULE[2])
    v = v * RULE[3] + gradient * gradient * (1.0 - RULE[3])
    if RULE[0]:
        decaying = tl.load(decays + place, mask=live, other=0.0) > 0.0
        p *= tl.where(decaying, tl.load(own + 2), 1.0)
    p += tl.load(own) * m / (tl.sqrt(v) + tl.load(own + 1))
    tl.store(first + place, m, mask=live)
    tl.store(second + place, v, mask=live)
    tl.store(parameters + place, p, mask=live)
    if RULE[1]:
        tl.store(rounded + place, p, mask=live)
    if follows:
        old = tl.load(targets + place, mask=live, other=0.0)
        new = old + tl.load(tau) * (p - old)
        tl.store(targets + place, new, mask=live)
        if RULE[1]:
            tl.store(rounded_targets + place, new, mask=live)


@triton.jit
def buffers_of(member, column, target_column, buffers, ROW: tl.constexpr, TARGET_ROW: tl.constexpr):
    """Return parameters, both moments, targets, and rounded parameters and targets, each from a member's column on."""
    parameters, first, second, targets, rounded, rounded_targets = buffers
    start = member.to(tl.int64) * ROW + column
    target = member.to(tl.int64) * TARGET_ROW + target_column
    return parameters + start, first + start, second + start, targets + target, rounded + start, rounded_targets + target


@triton.jit
def adam_kernel(
    buffers,
    gradients,
    factors,
    tau,
    decays,
    META: tl.constexpr,
    SEGMENTS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROW: tl.constexpr,
    TARGET_ROW: tl.constexpr,
    GROUPS: tl.constexpr,
    RULE: tl.constexpr,
):
    """Apply Adam to some segments of the flat buffers, and polyak averaging to their targets.

    A segment is (first program, column, size, group, column of its target or less than 0); `factors` holds what
    `adam_update` needs for each member and group.
    """
    segment = which(META, SEGMENTS)
    member = tl.program_id(1)
    place = (tl.program_id(0) - pick(segment, META, 0, SEGMENTS)) * BLOCK + tl.arange(0, BLOCK)
    column, size = pick(segment, META, 1, SEGMENTS), pick(segment, META, 2, SEGMENTS)
    target_column = pick(segment, META, 4, SEGMENTS)
    live = place < size
    gradient = tl.load(pick_pointer(segment, gradients, SEGMENTS) + member.to(tl.int64) * size + place, mask=live, other=0.0)
    own = factors + (member * GROUPS + pick(segment, META, 3, SEGMENTS)) * 3
    here = buffers_of(member, column, target_column, buffers, ROW, TARGET_ROW)
    adam_update(gradient, live, place, here, decays + column, own, tau + member, target_column >= 0, RULE)
