"""Another library's training step as one CUDA graph: its own kernels in their own order, launched at once.

The code of the step runs as it stands while it is recorded; what it would read back from the device for its log is left
out. Adam counts its steps on the device, so a recorded run equals an unrecorded one to rounding.
"""

import math
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest import mock

import torch
from torch.optim import Optimizer
from torch.optim.lr_scheduler import CosineAnnealingLR

WARM_UP = 4
Step = Callable[[list[torch.Tensor], int], object]
"""What trains on the columns of a batch, and is told how many steps there were before."""


class Recorder:
    """The recorded steps of one trainer: one for each phase of the rhythm in which it updates its policy."""

    def __init__(self, step: Step, period: int, device: torch.device, rate: "Rate | None" = None) -> None:
        self._step, self._period, self._device, self._rate = step, period, device, rate
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._graphs: dict[int, tuple[torch.cuda.CUDAGraph, list[torch.Tensor]]] = {}
        self._unrecorded = WARM_UP * period  # steps that are left before; also those of a job that goes on

    def train(self, batch: list[torch.Tensor], count: int) -> None:
        """Do one step: the first ones as they are, later ones from the record."""
        if self._rate is not None:
            self._rate.set(count)
        if self._unrecorded:
            self._unrecorded -= 1
            self._stream.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(self._stream):
                self._step(batch, count)
            torch.cuda.current_stream().wait_stream(self._stream)
            return
        phase = count % self._period
        if phase not in self._graphs:
            self._graphs[phase] = self._recorded(batch, count)
        graph, inputs = self._graphs[phase]
        for mine, given in zip(inputs, batch, strict=True):
            mine.copy_(given)
        graph.replay()

    def _recorded(self, batch: list[torch.Tensor], count: int) -> tuple[torch.cuda.CUDAGraph, list[torch.Tensor]]:
        graph, inputs = torch.cuda.CUDAGraph(), [column.clone() for column in batch]
        torch.cuda.synchronize(self._device)
        with nothing_read_back(), torch.cuda.graph(graph, stream=self._stream):
            self._step(inputs, count)
        return graph, inputs


class Rate:
    """A cosine schedule of a learning rate that a recorded step reads from the device."""

    def __init__(self, optimizer: Optimizer, schedule: CosineAnnealingLR, device: torch.device) -> None:
        self._highest, self._steps = schedule.base_lrs[0], schedule.T_max
        self._optimizer = optimizer
        optimizer.param_groups[0]["lr"] = torch.tensor(self._highest, device=device)

    def set(self, step: int) -> None:
        """Set the learning rate of a step."""
        value = self._highest * (1.0 + math.cos(math.pi * step / self._steps)) / 2.0
        self._optimizer.param_groups[0]["lr"].fill_(value)  # another tensor once a state was loaded


def count_on_device(optimizers: Iterable[Optimizer]) -> None:
    """Let optimizers keep their number of steps where a recorded step can read it."""
    for optimizer in optimizers:
        for group in optimizer.param_groups:
            group["capturable"] = True


@contextmanager
def nothing_read_back() -> Iterator[None]:
    """Let code run that would wait for the device: to log a number, to check one, to hand one over."""
    make = torch.tensor

    def tensor(data: Any, **options: Any) -> torch.Tensor:
        return torch.full((), data, **options) if isinstance(data, float) else make(data, **options)

    def new_tensor(like: torch.Tensor, value: float) -> torch.Tensor:
        return torch.full((), value, dtype=like.dtype, device=like.device)

    torch.distributions.Distribution.set_default_validate_args(False)
    with ExitStack() as patches:
        patches.enter_context(mock.patch.object(torch.Tensor, "item", return_value=0.0))
        patches.enter_context(mock.patch.object(torch.Tensor, "cpu", return_value=torch.zeros(())))
        patches.enter_context(mock.patch.object(torch.Tensor, "new_tensor", new_tensor))
        patches.enter_context(mock.patch.object(torch, "tensor", tensor))
        yield
