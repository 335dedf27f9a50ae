"""Small arrays that go to the device in one copy."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

Layout = Mapping[str, tuple[torch.dtype, tuple[int, ...]]]
_KINDS = {torch.int64: np.int64, torch.float32: np.float32}


class Mark:
    """A place in the work of a device that the host can wait for."""

    def __init__(self, device: torch.device) -> None:
        self._event = torch.cuda.Event()  # type: ignore[no-untyped-call]
        self._stream = torch.cuda.current_stream(device)  # asking for it each time takes longer than the copy

    def set(self) -> None:
        """Set the mark after what has been launched so far."""
        self._event.record(self._stream)

    def wait(self) -> None:
        """Wait until the device has come to the mark; not at all if it was never set."""
        self._event.synchronize()


class Inbox:
    """Arrays that the host writes and the device reads; on the CPU both are the same memory."""

    def __init__(self, layout: Layout, device: torch.device) -> None:
        """Allocate the arrays of a layout, in which wider types come first."""
        sizes = {name: torch.Size(shape).numel() * kind.itemsize for name, (kind, shape) in layout.items()}
        on_gpu = device.type == "cuda"
        self._written = torch.zeros(sum(sizes.values()), dtype=torch.uint8, pin_memory=on_gpu)
        self._read = self._written.to(device)  # the same memory on the CPU
        self._sent = Mark(device) if on_gpu else None
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
            self._sent.wait()

    def send(self) -> None:
        """Copy what the host has written to the device, which reads it in what is launched from now on."""
        if self._sent is not None:
            self._read.copy_(self._written, non_blocking=True)
            self._sent.set()
