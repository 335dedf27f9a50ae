"""Where offline batches come from: rows on the training device, or rows elsewhere, fetched while the last ones are learned.

Elsewhere is the disk, for data larger than memory, or the host's memory, for data larger than the device's. Either way a
batch is a function of (seed, step) alone, and all give the same one.
"""

from abc import ABC, abstractmethod
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training import rng
from rl_training.data.batch import Batch
from rl_training.runtime.processing import ProcessedDataset, RunData, StreamedDataset

Chunk = Callable[[int], Batch]
"""The batches of some steps by offset from the first."""

_READERS = 16  # threads that wait for the disk at once
DEVICE_SHARE = 0.6  # of a GPU's free memory that rows may take; networks, graphs and batches need the rest


class BatchSource(ABC):
    """Batches of a fixed dataset for every member."""

    def __init__(self, data: RunData, seeds: Tensor, batch_size: int, *, prior: bool) -> None:
        self.layout, self.seeds, self.batch_size, self.rows_available = data.layout, seeds, batch_size, len(data)
        self._prior = torch.ones(len(seeds), batch_size, device=seeds.device) if prior else None

    @property
    def steps_per_epoch(self) -> int:
        """Gradient steps that see as many rows as the dataset has."""
        return -(-self.rows_available // self.batch_size)

    def indices(self, first_step: int, count: int) -> Tensor:
        """Return the row numbers of a chunk of steps, (members, count, batch)."""
        steps = torch.arange(first_step, first_step + count, device=self.seeds.device)
        return rng.integers(self.seeds, "batches", steps, (self.batch_size,), high=self.rows_available)

    def as_batch(self, rows: Tensor) -> Batch:
        """Return packed rows (members, batch, width) as a batch."""
        batch = self.layout.batch(rows)
        return batch if self._prior is None else replace(batch, prior=self._prior)

    @abstractmethod
    def chunk(self, first_step: int, count: int) -> Chunk:
        """Return the batches of steps; everything that can fail has been done by then."""

    @abstractmethod
    def rows_of(self, first_step: int, count: int) -> Tensor:
        """Return the packed rows of steps, (members, count, batch, width), on the training device."""

    def close(self) -> None:  # noqa: B027 - rows in memory need no care
        """Let go of whatever is held."""


class DatasetSource(BatchSource):
    """Rows on the training device: one gather per batch."""

    def __init__(
        self, data: ProcessedDataset, seeds: Tensor, batch_size: int, device: torch.device, *, prior: bool = False
    ) -> None:
        super().__init__(data, seeds, batch_size, prior=prior)
        self.rows = torch.from_numpy(data.rows).to(device)

    def chunk(self, first_step: int, count: int) -> Chunk:
        """Return the batches of steps, each gathered when it is asked for."""
        indices = self.indices(first_step, count)

        def batch(offset: int) -> Batch:
            rows = indices[:, offset]
            return self.as_batch(self.rows.index_select(0, rows.reshape(-1)).view(*rows.shape, -1))

        return batch

    def rows_of(self, first_step: int, count: int) -> Tensor:
        """Return the packed rows of steps."""
        indices = self.indices(first_step, count)
        return self.rows.index_select(0, indices.reshape(-1)).view(*indices.shape, -1)


@dataclass
class _Ahead:
    """A chunk that is being fetched."""

    first: int
    count: int
    rows: "Future[Tensor]"


class PrefetchedSource(BatchSource):
    """Rows on disk or in the host's memory: the next chunk is fetched and sent to the device while this one is learned."""

    def __init__(self, data: RunData, seeds: Tensor, batch_size: int, device: torch.device, *, prior: bool = False) -> None:
        super().__init__(data, seeds, batch_size, prior=prior)
        self.data, self.device = data, device
        if isinstance(data, StreamedDataset):
            data.records.expect_random_access()
        self._readers = ThreadPoolExecutor(_READERS, thread_name_prefix="rows")
        self._packer = ThreadPoolExecutor(1, thread_name_prefix="pack")
        self._ahead: _Ahead | None = None
        self._stage = _PinnedStage(device) if device.type == "cuda" else None

    @property
    def whereabouts(self) -> str:
        """A line that says where the rows stay, and why."""
        rows, bytes_needed = f"{len(self.data):,} rows", len(self.data) * self.layout.width * 4
        if isinstance(self.data, StreamedDataset):
            return f"{rows} stay on disk, since they would take {bytes_needed:,} bytes of memory"
        return f"{rows} stay in the host's memory, since they would take {bytes_needed:,} bytes of {self.device}"

    def chunk(self, first_step: int, count: int) -> Chunk:
        """Return the batches of steps, all fetched; the same number of steps after them is fetched in the background."""
        rows = self.rows_of(first_step, count)
        return lambda offset: self.as_batch(rows[:, offset])

    def rows_of(self, first_step: int, count: int) -> Tensor:
        """Return the packed rows of steps, all fetched; the same number of steps after them is fetched in the background."""
        ahead = self._ahead
        if ahead is None or ahead.first != first_step or ahead.count < count:
            ahead = self._start(first_step, count)
        self._ahead = None
        rows = ahead.rows.result()
        if self._stage is not None:
            self._stage.hand_over(rows)
        self._ahead = self._start(first_step + count, count)
        return rows

    def _start(self, first_step: int, count: int) -> _Ahead:
        indices = self.indices(first_step, count).cpu().numpy()
        return _Ahead(first_step, count, self._packer.submit(self._fetch, indices))

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
    """Two pinned buffers in turn: one is filled while the other is on its way to the device, on a stream of its own."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._stream = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        self._buffers: list[Tensor | None] = [None, None]
        self._sent = [torch.cuda.Event(), torch.cuda.Event()]  # type: ignore[no-untyped-call]
        self._turn = 0

    def send(self, rows: Tensor) -> Tensor:
        """Return the rows on the device; the copy may still be under way."""
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

    def hand_over(self, rows: Tensor) -> None:
        """Let the training stream wait for what was sent, and keep its memory until that stream has used it."""
        training = torch.cuda.current_stream(self._device)
        training.wait_stream(self._stream)
        rows.record_stream(training)


def batch_source(
    data: RunData,
    seeds: Tensor,
    batch_size: int,
    device: torch.device,
    *,
    prior: bool = False,
    device_bytes: int | None = None,
) -> BatchSource:
    """Return the source that fits where the data lies: rows in memory go to the device if they take at most `device_bytes`.

    Without `device_bytes` that is a share of what a GPU has free, and no limit on the CPU, where rows are not copied.
    """
    if isinstance(data, StreamedDataset) or data.rows.nbytes > _room(device, device_bytes):
        return PrefetchedSource(data, seeds, batch_size, device, prior=prior)
    return DatasetSource(data, seeds, batch_size, device, prior=prior)


def _room(device: torch.device, device_bytes: int | None) -> float:
    if device_bytes is not None:
        return device_bytes
    return DEVICE_SHARE * torch.cuda.mem_get_info(device)[0] if device.type == "cuda" else float("inf")
