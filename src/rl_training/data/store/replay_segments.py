"""Segments of a replay: hashed files that hold the packed transitions FIRST to STOP of all members.

A segment is `rows-FIRST-STOP-HASH.safetensors`, in the `replay/` directory of a run or inside a checkpoint that was exported
on its own. A checkpoint lists those of its buffer with sizes and SHA-256.
"""

import re
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import safetensors
from numpy.typing import NDArray
from safetensors.numpy import load as decode_arrays
from safetensors.numpy import save as encode_arrays

from rl_training.errors import CheckpointError
from rl_training.storage import read_regular_file, sha256

SEGMENT_NAME = re.compile(r"rows-\d{9,}-\d{9,}-[0-9a-f]{16}\.safetensors")

Segment = dict[str, Any]
"""What a checkpoint records: name, first, stop, bytes, sha256."""


def encode_segment(rows: NDArray[np.float32], first: int) -> tuple[Segment, bytes]:
    """Return the record and the bytes of a segment whose first transition has the index `first`."""
    data = encode_arrays({"rows": np.ascontiguousarray(rows)})
    digest, stop = sha256(data), first + rows.shape[1]
    name = f"rows-{first:09d}-{stop:09d}-{digest[:16]}.safetensors"
    return {"name": name, "first": first, "stop": stop, "bytes": len(data), "sha256": digest}, data


def read_segments(listed: Any, where: Path, source: Path) -> NDArray[np.float32] | None:
    """Return the verified transitions of the segments that a checkpoint lists, (members, count, width); None for no segments.

    `where` names the checkpoint in messages, `source` is the directory that it was read from.
    """
    segments = checked_segments(listed, where)
    rows = [_read_segment(segment, where, source) for segment in segments]
    if any(before["stop"] != after["first"] for before, after in pairwise(segments)):
        raise CheckpointError(f"{where}: the segments of its replay do not follow one another")
    return np.concatenate(rows, axis=1) if rows else None


def checked_segments(listed: Any, where: Path) -> list[Segment]:
    """Return the segments that a checkpoint lists, each checked for its form."""
    kinds = {"name": str, "first": int, "stop": int, "bytes": int, "sha256": str}
    for segment in listed if isinstance(listed, list) else [None]:
        if not isinstance(segment, dict) or any(type(segment.get(key)) is not kind for key, kind in kinds.items()):
            raise CheckpointError(f"{where}: its list of replay segments is damaged")
        if not SEGMENT_NAME.fullmatch(segment["name"]):
            raise CheckpointError(f"{where}: refers to {segment['name']!r}, which is not a segment of a replay")
    return list(listed)


def _read_segment(segment: Segment, where: Path, source: Path) -> NDArray[np.float32]:
    inside = source / segment["name"]
    path = inside if inside.exists() else source.parent.parent / "replay" / segment["name"]
    if not path.exists():
        raise CheckpointError(
            f"{path}: is missing; {where} refers to the replay of its run (save() makes a self-contained copy)"
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
