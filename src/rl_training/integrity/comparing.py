"""What differs between two runs of one config: weights, optimiser state, metric rows, replay, all that a checkpoint holds."""

import json
from itertools import zip_longest
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from rl_training.experiment.same_config import changed_settings
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, CheckpointStore
from rl_training.runtime.checkpoints.replay_store import read_replay
from rl_training.storage import read_regular_file

_MOST = 5  # differences of one sort that are named


def differences(expected: Path, found: Path) -> list[str]:
    """Return everything in which the end of a run differs from that of another, one line each; nothing if they are equal."""
    first, second = (CheckpointStore(path / "checkpoints", 2).load() for path in (expected, found))
    if first.path.name != second.path.name:
        return [f"it ends at {second.path.name}, not at {first.path.name}"]
    return [
        *_few(_tensors(first.tensors, second.tensors), "tensors"),
        *_few(_tensors(_replay(first), _replay(second)), "parts of the replay"),
        *_few(_state(first.state, second.state), "entries of state.json"),
        *_few(_metrics(expected, found), "metric rows"),
        *_pointers(expected, found),
    ]


def _few(lines: list[str], what: str) -> list[str]:
    more = len(lines) - _MOST
    return [*lines[:_MOST], f"and {more} more {what}"] if more > 0 else lines


def _tensors(first: dict[str, Tensor], second: dict[str, Tensor]) -> list[str]:
    """Which tensors differ, to the bit: NaN equals NaN, and 0 is not -0."""
    lines = []
    for name in sorted({*first, *second}):
        if name not in first or name not in second:
            lines.append(f"{name}: is {'missing' if name in first else 'too much'}")
            continue
        one, other = first[name], second[name]
        if (one.dtype, one.shape) != (other.dtype, other.shape):
            lines.append(f"{name}: is {other.dtype} {tuple(other.shape)}, not {one.dtype} {tuple(one.shape)}")
        elif not torch.equal(_bits(one), _bits(other)):
            apart = (one.double() - other.double()).abs()
            count = int((_bits(one) != _bits(other)).any(-1).sum())
            lines.append(
                f"{name}: {count:,} of {one.numel():,} numbers differ, by {apart.nan_to_num().max().item():.2g} at most"
            )
    return lines


def _bits(tensor: Tensor) -> Tensor:
    """The bytes of every number."""
    return tensor.contiguous().reshape(-1, 1).view(torch.uint8)


def _replay(checkpoint: Checkpoint) -> dict[str, Tensor]:
    """The transitions; the files that hold them are others after an interruption."""
    return {} if checkpoint.env_step is None else {"replay": torch.from_numpy(read_replay(checkpoint))}


def _state(first: dict[str, Any], second: dict[str, Any]) -> list[str]:
    then, now = ({name: value for name, value in state.items() if name != "replay"} for state in (first, second))
    return [f"state.json: {key} is {new!r:.60}, not {old!r:.60}" for key, old, new in changed_settings(then, now)]


def _metrics(expected: Path, found: Path) -> list[str]:
    texts = [read_regular_file(path / "metrics.jsonl").splitlines() for path in (expected, found)]
    lines = []
    for number, (one, other) in enumerate(zip_longest(*texts), 1):
        if one != other:
            lines.append(f"metrics.jsonl: row {number} {_row(one, other)}")
    return lines


def _row(one: bytes | None, other: bytes | None) -> str:
    if one is None or other is None:
        return "is missing" if other is None else "is too much"
    try:
        changes = changed_settings(json.loads(one), json.loads(other))
    except (ValueError, AttributeError):
        return "is no JSON object"
    return "has " + (", ".join(f"{key} {now}, not {then}" for key, then, now in changes[:3]) or "other bytes")


def _pointers(expected: Path, found: Path) -> list[str]:
    one, other = (CheckpointStore(path / "checkpoints", 2).pointed("best") for path in (expected, found))
    return [] if one == other else [f"best.json: names {other or 'no checkpoint'}, not {one or 'none'}"]
