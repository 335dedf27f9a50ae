"""The replay on disk: hashed segments that checkpoints share, so that a checkpoint writes only what is new since the last.

A checkpoint lists the segments of its buffer; a checkpoint exported on its own contains its replay.
"""

from collections.abc import Collection
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.data.store.replay_segments import SEGMENT_NAME, Segment, encode_segment, read_segments
from rl_training.errors import StorageError
from rl_training.faults import fault_point
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, write_checkpoint
from rl_training.storage import replace_file, storage_error

MAX_SEGMENTS = 64  # more are joined into one


def read_replay(checkpoint: Checkpoint) -> NDArray[np.float32]:
    """Return the verified transitions of a checkpoint, (members, count, width), oldest first."""
    rows = read_segments(checkpoint.state.get("replay"), checkpoint.path, checkpoint.source)
    if rows is None:
        return np.empty((len(checkpoint.state["seeds"]), 0, 0), dtype=np.float32)
    return rows if checkpoint.member is None else rows[checkpoint.member : checkpoint.member + 1]


def export_checkpoint(path: Path, checkpoint: Checkpoint) -> Path:
    """Write a self-contained checkpoint: one of an online run includes its replay."""
    if not checkpoint.state.get("replay"):
        return write_checkpoint(path, checkpoint.tensors, checkpoint.state)
    segment, data = encode_segment(read_replay(checkpoint), checkpoint.state["replay"][0]["first"])
    return write_checkpoint(path, checkpoint.tensors, {**checkpoint.state, "replay": [segment]}, {segment["name"]: data})


class ReplayStore:
    """The `replay/` directory of a run."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self._segments: list[Segment] = []

    def save(self, buffer: ReplayBuffer, stop: int) -> list[Segment]:
        """Write the transitions before index `stop` that no segment holds; return the segments of all the buffer holds."""
        current = [segment for segment in self._segments if segment["stop"] > buffer.oldest]
        if len(current) >= MAX_SEGMENTS:
            current = []
        first = current[-1]["stop"] if current else buffer.oldest
        if first < stop:
            segment, data = encode_segment(buffer.rows(first, stop), first)
            self._write(segment["name"], data)
            current.append(segment)
        self._segments = current
        return [dict(segment) for segment in current]

    def _write(self, name: str, data: bytes) -> None:
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(self.directory, len(data), error) from error
        fault_point("save:before-replay")
        replace_file(self.directory / name, data)
        fault_point("save:after-replay")

    def adopt(self, checkpoint: Checkpoint) -> None:
        """Continue with the segments of a checkpoint of this run; those of another run are written anew by the next save."""
        segments = [dict(segment) for segment in checkpoint.state["replay"]]
        ours = checkpoint.member is None and all((self.directory / segment["name"]).is_file() for segment in segments)
        self._segments = segments if ours else []

    def prune(self, referenced: Collection[str]) -> None:
        """Remove the segments that are not referenced."""
        if not self.directory.is_dir():
            return
        try:
            for entry in self.directory.iterdir():
                stale = entry.name.startswith(".") and ".tmp-" in entry.name
                if stale or (SEGMENT_NAME.fullmatch(entry.name) and entry.name not in referenced):
                    entry.unlink(missing_ok=True)
                    fault_point("save:prune-replay")
        except OSError as error:
            raise StorageError(f"{self.directory}: cannot be pruned: {error.strerror}") from error
