"""What the Triton kernels share: products in a precision, and the table that says which job a program works for.

One launch serves a list of jobs. Everything that differs between them is known when the kernel is compiled (`META`, a row of
numbers per job that begins with its first program), except the addresses.
"""

import triton
import triton.language as tl


@triton.jit
def product(a, b, total, PRECISION: tl.constexpr):
    """Total + a @ b."""
    if PRECISION == "bf16":
        result = tl.dot(a.to(tl.bfloat16), b.to(tl.bfloat16), total)
    else:
        result = tl.dot(a, b, total, input_precision=PRECISION)
    return result


@triton.jit
def which(META: tl.constexpr, JOBS: tl.constexpr):
    """The job of this program; the first field of a job is its first program."""
    program = tl.program_id(0)
    job = program * 0
    for other in tl.static_range(1, JOBS):
        job += tl.where(program >= META[other][0], 1, 0)
    return job


@triton.jit
def pick(job, META: tl.constexpr, FIELD: tl.constexpr, JOBS: tl.constexpr):
    """A number of the job."""
    value = job * 0 + META[0][FIELD]
    for other in tl.static_range(1, JOBS):
        value = tl.where(job == other, META[other][FIELD], value)
    return value


@triton.jit
def pick_pointer(job, pointers, JOBS: tl.constexpr):
    """An address of the job."""
    pointer = pointers[0]
    for other in tl.static_range(1, JOBS):
        pointer = tl.where(job == other, pointers[other], pointer)
    return pointer
