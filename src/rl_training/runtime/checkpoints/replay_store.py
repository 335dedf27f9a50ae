"""The replay on disk: hashed segments that checkpoints share, so that a checkpoint writes only what is new since the last.

A segment `replay/rows-FIRST-STOP-HASH.safetensors` holds the transitions FIRST to STOP of all members. A checkpoint lists
the segments of its buffer with sizes and SHA-256; a checkpoint exported on its own contains its replay.
"""

import re
from collections.abc import Collection
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors.numpy import load as decode_arrays
from safetensors.numpy import save as encode_arrays

from rl_training.data.replay_buffer import ReplayBuffer
from rl_training.errors import CheckpointError, StorageError
from rl_training.faults import fault_point
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, write_checkpoint
from rl_training.storage import read_regular_file, replace_file, sha256, storage_error

MAX_SEGMENTS = 64  # more are joined into one
_NAME = re.compile(r"rows-\d{9,}-\d{9,}-[0-9a-f]{16}\.safetensors")

Segment = dict[str, Any]
"""What a checkpoint records: name, first, stop, bytes, sha256."""


def encode_segment(rows: NDArray[np.float32], first: int) -> tuple[Segment, bytes]:
    """Return the record and the bytes of a segment whose first transition has the index `first`."""
    data = encode_arrays({"rows": np.ascontiguousarray(rows)})
    digest, stop = sha256(data), first + rows.shape[1]
    name = f"rows-{first:09d}-{stop:09d}-{digest[:16]}.safetensors"
    return {"name": name, "first": first, "stop": stop, "bytes": len(data), "sha256": digest}, data


def read_replay(checkpoint: Checkpoint) -> NDArray[np.float32]:
    """Return the verified transitions of a checkpoint, (members, count, width), oldest first."""
    segments = _checked_segments(checkpoint)
    rows = [_read_segment(checkpoint, segment) for segment in segments]
    if any(before["stop"] != after["first"] for before, after in pairwise(segments)):
        raise CheckpointError(f"{checkpoint.path}: the segments of its replay do not follow one another")
    if not rows:
        return np.empty((len(checkpoint.state["seeds"]), 0, 0), dtype=np.float32)
    joined = np.concatenate(rows, axis=1)
    return joined if checkpoint.member is None else joined[checkpoint.member : checkpoint.member + 1]


def _checked_segments(checkpoint: Checkpoint) -> list[Segment]:
    """The segments that a checkpoint lists, each checked for its form."""
    segments = checkpoint.state.get("replay")
    kinds = {"name": str, "first": int, "stop": int, "bytes": int, "sha256": str}
    for segment in segments if isinstance(segments, list) else [None]:
        if not isinstance(segment, dict) or any(type(segment.get(key)) is not kind for key, kind in kinds.items()):
            raise CheckpointError(f"{checkpoint.path}: its list of replay segments is damaged")
        if not _NAME.fullmatch(segment["name"]):
            raise CheckpointError(f"{checkpoint.path}: refers to {segment['name']!r}, which is not a segment of a replay")
    return segments or []


def export_checkpoint(path: Path, checkpoint: Checkpoint) -> Path:
    """Write a self-contained checkpoint: one of an online run includes its replay."""
    if not checkpoint.state.get("replay"):
        return write_checkpoint(path, checkpoint.tensors, checkpoint.state)
    segment, data = encode_segment(read_replay(checkpoint), checkpoint.state["replay"][0]["first"])
    return write_checkpoint(path, checkpoint.tensors, {**checkpoint.state, "replay": [segment]}, {segment["name"]: data})


def _read_segment(checkpoint: Checkpoint, segment: Segment) -> NDArray[np.float32]:
    inside = checkpoint.source / segment["name"]
    path = inside if inside.exists() else checkpoint.source.parent.parent / "replay" / segment["name"]
    if not path.exists():
        raise CheckpointError(
            f"{path}: is missing; {checkpoint.path} refers to the replay of its run (save() makes a self-contained copy)"
        )
    data = read_regular_file(path, segment["bytes"])
    if len(data) != segment["bytes"] or sha256(data) != segment["sha256"]:
        raise CheckpointError(f"{path}: is damaged (its hash does not match the checkpoint's)")
    try:
        rows: NDArray[np.float32] = decode_arrays(data)["rows"]
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{path}: cannot be read: {error}") from error
    if rows.ndim != 3 or rows.dtype != np.float32 or rows.shape[1] != segment["stop"] - segment["first"]:
        raise CheckpointError(f"{path}: holds {rows.dtype} {rows.shape}, not what its name says")
    return rows


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
                if stale or (_NAME.fullmatch(entry.name) and entry.name not in referenced):
                    entry.unlink(missing_ok=True)
                    fault_point("save:prune-replay")
        except OSError as error:
            raise StorageError(f"{self.directory}: cannot be pruned: {error.strerror}") from error
