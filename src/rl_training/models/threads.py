"""Threads of torch's operations: a second one pays off for large work alone, and takes a core from others while it waits."""

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from math import prod

import torch

from rl_training.models.base import StackedModel

SMALL_WORK = 2e8  # floating-point operations below which a second thread does not pay off


def weights(model: StackedModel) -> int:
    """Return the number of trained parameters of one member."""
    return sum(prod(spec.shape) for segment in model.trained.segments for spec in segment.specs)


def acting_threads(model: StackedModel, rows: int) -> AbstractContextManager[None]:
    """Return a context in which a policy acts on `rows` observations per member: on one thread unless they are many."""
    most_operations = 2 * model.members * weights(model) * rows  # as if all networks acted
    return one_thread() if most_operations < SMALL_WORK else nullcontext()


@contextmanager
def one_thread() -> Iterator[None]:
    """Use one thread inside the block."""
    threads = torch.get_num_threads()
    if threads == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)
