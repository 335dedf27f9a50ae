"""Small arrays that go to the device in one copy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Layout = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
_KINDS = {torch.int64: np.int64, torch.float32: np.float32}


class Inbox:
    """Arrays that the host writes and the device reads; on the CPU both are the same memory."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        """Allocate the arrays of a layout, in which wider types come first."""
        sizes = {name: torch.Size(shape).numel() * kind.itemsize for name, (kind, shape) in layout.items()}
        on_gpu = device.type == "cuda"
        self._written = torch.zeros(sum(sizes.values()), dtype=torch.uint8, pin_memory=on_gpu)
        self._read = self._written.to(device)  # the same memory on the CPU
        self._sent = torch.cuda.Event() if on_gpu else None  # type: ignore[no-untyped-call]
        self.host: dict[str, NDArray[Any]] = {}
        self.device: dict[str, Tensor] = {}
        begin = 0
        for name, (kind, shape) in layout.items():
            part = slice(begin, begin + sizes[name])
            self.host[name] = self._written.numpy()[part].view(_KINDS[kind]).reshape(shape)
            self.device[name] = self._read[part].view(kind).view(shape)
            begin = part.stop

    def wait(self) -> None:
        """Wait until the host may write again."""
        if self._sent is not None:
            self._sent.synchronize()

    def send(self) -> None:
        """Copy what the host has written to the device, which reads it in what is launched from now on."""
        if self._sent is not None:
            self._read.copy_(self._written, non_blocking=True)
            self._sent.record()
