"""Batches of a dataset that is not stored on the device: the next rows are fetched while the learner trains on the last ones.

Data larger than memory stays on disk, data larger than the device's memory in the host's. A batch holds the same rows as if
they were stored on the device.
"""

from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training import rng
from rl_training.data.processing import RunData, StreamedDataset
from rl_training.runtime.batches.base import Batches, Bits
from rl_training.runtime.batches.dataset import DatasetBatches

_READERS = 16  # threads that read from the disk in parallel
DEVICE_SHARE = 0.6  # share of a GPU's free memory that rows may take; networks, graphs and batches need the rest


@dataclass
class _Prefetch:
    """Rows of some steps that are being fetched in the background."""

    first: int
    count: int
    rows: "Future[Tensor]"


class PrefetchedBatches(Batches):
    """Batches whose rows are fetched and copied to the device in the background, ahead of their steps."""

    def __init__(self, data: RunData, seeds: Tensor, batch_size: int, device: torch.device, *, prior: bool = False) -> None:
        super().__init__(data.layout, seeds, batch_size)
        self.data, self.device, self._prior = data, device, prior
        if isinstance(data, StreamedDataset):
            data.records.expect_random_access()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="rows")
        self._packer = ThreadPoolExecutor(1, thread_name_prefix="pack")
        self._prefetch: _Prefetch | None = None
        self._stage = _PinnedStage(device) if device.type == "cuda" else None
        self._first, self._fetched = 0, torch.empty(len(seeds), 0, device=device)  # rows of the steps from `_first` on
        self._fixed: Tensor | None = None
        self._loaded = self._fetched

    @property
    def resident(self) -> bool:
        """Return False: rows are fetched chunk by chunk."""
        return False

    @property
    def location(self) -> str:
        """A line that says where the rows are stored, and why."""
        rows, bytes_needed = f"{len(self.data):,} rows", len(self.data) * self.layout.width * 4
        if isinstance(self.data, StreamedDataset):
            return f"{rows} stay on disk, since they would take {bytes_needed:,} bytes of memory"
        return f"{rows} stay in the host's memory, since they would take {bytes_needed:,} bytes of {self.device}"

    def prepare(self, first_step: int, count: int) -> None:
        """Wait for the rows of the next steps, and start to fetch those of as many steps after them."""
        prefetch = self._prefetch
        if prefetch is None or prefetch.first != first_step or prefetch.count < count:
            prefetch = self._start(first_step, count)
        self._prefetch = None
        rows = prefetch.rows.result()
        if self._stage is not None:
            self._stage.wait_on_training_stream(rows)
        self._prefetch = self._start(first_step + count, count)
        self._first, self._fetched = first_step, rows

    def load(self, first_step: int, count: int) -> None:
        """Load the rows of the next steps; they are fetched now if `prepare` was not called for them."""
        start = first_step - self._first
        if not 0 <= start <= self._fetched.shape[1] - count:
            self.prepare(first_step, count)
            start = 0
        rows = self._fetched[:, start : start + count].transpose(0, 1)
        fixed = self._fixed  # of a graph's block; a chunk of eager steps, taken once compiling has failed, may be longer
        self._loaded = fixed[:count].copy_(rows) if fixed is not None and count <= len(fixed) else rows

    def use_fixed_buffer(self, max_steps: int) -> None:
        """Copy rows into one fixed buffer from now on."""
        shape = (max_steps, len(self.seeds), self.batch_size, self.layout.width)
        self._fixed = torch.zeros(shape, device=self.device)

    def indices(self, bits: Bits, steps: int) -> tuple[Tensor, Tensor | None]:
        """Return the index of each step among those loaded; their rows were drawn when they were fetched."""
        del bits
        loaded = torch.arange(steps, device=self.device)
        shape = (steps, len(self.seeds), self.batch_size)
        return loaded, torch.ones(shape, device=self.device) if self._prior else None

    def gather(self, indices: Tensor) -> Tensor:
        """Return the loaded rows."""
        return self._loaded.index_select(0, indices)

    def _start(self, first_step: int, count: int) -> _Prefetch:
        steps = torch.arange(first_step, first_step + count, device=self.seeds.device)
        rows = rng.integers(self.seeds, "batches", steps, (self.batch_size,), high=len(self.data))
        return _Prefetch(first_step, count, self._packer.submit(self._fetch, rows.cpu().numpy()))

    def _fetch(self, indices: NDArray[np.int64]) -> Tensor:
        parts = np.array_split(indices.reshape(-1), _READERS)
        packed = np.concatenate(list(self._readers.map(self.data.fetch, parts)))
        rows = torch.from_numpy(packed).view(*indices.shape, -1)
        return rows if self._stage is None else self._stage.send(rows)

    def close(self) -> None:
        """Stop the threads."""
        for pool in (self._packer, self._readers):
            pool.shutdown(wait=True, cancel_futures=True)


class _PinnedStage:
    """Two pinned buffers that alternate: one is filled while the other is copied to the device, on a separate stream."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers: list[Tensor | None] = [None, None]
        self._sent = [torch.cuda.Event(), torch.cuda.Event()]  # type: ignore[no-untyped-call]
        self._turn = 0

    def send(self, rows: Tensor) -> Tensor:
        """Return the rows on the device; the copy may still be in progress."""
        self._turn = 1 - self._turn
        buffer = self._buffers[self._turn]
        if buffer is None or buffer.numel() < rows.numel():
            buffer = self._buffers[self._turn] = torch.empty(rows.numel(), dtype=rows.dtype, pin_memory=True)
        self._sent[self._turn].synchronize()
        pinned = buffer[: rows.numel()].view(rows.shape)
        pinned.copy_(rows)
        with torch.cuda.stream(self._stream):
            result = pinned.to(self._device, non_blocking=True)
            self._sent[self._turn].record(self._stream)
        return result

    def wait_on_training_stream(self, rows: Tensor) -> None:
        """Make the training stream wait for the copy, and keep the rows' memory until that stream has used it."""
        training = torch.cuda.current_stream(self._device)
        training.wait_stream(self._stream)
        rows.record_stream(training)


def dataset_batches(
    data: RunData,
    seeds: Tensor,
    batch_size: int,
    device: torch.device,
    *,
    prior: bool = False,
    device_bytes: int | None = None,
) -> Batches:
    """Return batches of the data: rows in memory are moved to the device if they take at most `device_bytes`.

    By default that is a share of a GPU's free memory, and unlimited on the CPU, where rows are not copied.
    """
    if isinstance(data, StreamedDataset) or data.rows.nbytes > _room(device, device_bytes):
        return PrefetchedBatches(data, seeds, batch_size, device, prior=prior)
    return DatasetBatches(data, seeds, batch_size, device, prior=prior)


def _room(device: torch.device, device_bytes: int | None) -> float:
    if device_bytes is not None:
        return device_bytes
    return DEVICE_SHARE * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else float("inf")
