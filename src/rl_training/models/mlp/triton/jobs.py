"""What the Triton kernels share: products in a precision, and the lookup of the job that a program belongs to.

One launch runs a list of jobs. Everything that differs between them, except the addresses, is known when the kernel is
compiled: `META` has a row of numbers per job, beginning with its first program.
"""

import triton
import triton.language as tl


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr):
    """Return total + a @ b."""
    if PRECISION == "bf16":
        result = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
    else:
        result = tl.dot(a, b, total, input_precision=PRECISION)
    return result


@triton.jit
def which(META: tl.constexpr, JOBS: tl.constexpr):
    """Return the job of this program; the first field of a job is its first program."""
    program = tl.program_id(0)
    job = program * 0
    for other in tl.static_range(1, JOBS):
        job += tl.where(program >= META[other][0], 1, 0)
    return job


@triton.jit
def pick(job, META: tl.constexpr, FIELD: tl.constexpr, JOBS: tl.constexpr):
    """Return one field of the job's row in META."""
    value = job * 0 + META[0][FIELD]
    for other in tl.static_range(1, JOBS):
        value = tl.where(job == other, META[other][FIELD], value)
    return value


@triton.jit
def pick_pointer(job, pointers, JOBS: tl.constexpr):
    """Return the job's pointer."""
    pointer = pointers[0]
    for other in tl.static_range(1, JOBS):
        pointer = tl.where(job == other, pointers[other], pointer)
    return pointer


@triton.jit
def place_of(job, critic, PLACES: tl.constexpr, NUMBER: tl.constexpr, JOBS: tl.constexpr):
    """Return the first column of a critic's parameter among those of its job; PLACES has it and its stride for each job."""
    return pick(job, PLACES, 2 * NUMBER, JOBS) + critic * pick(job, PLACES, 2 * NUMBER + 1, JOBS)


@triton.jit
def parameter(own, job, critic, PLACES: tl.constexpr, NUMBER: tl.constexpr, JOBS: tl.constexpr):
    """Return the pointer to a critic's parameter in a member's columns."""
    return own + place_of(job, critic, PLACES, NUMBER, JOBS)
