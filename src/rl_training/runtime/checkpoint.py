"""Checkpoints: safetensors and JSON under one hashed manifest, self-contained, never executed.

A checkpoint directory holds `state.safetensors` (networks, targets, moments, counts and transforms by logical name, each
learner tensor with a leading members axis), `state.json` (config, spaces, step, members, callbacks) and `manifest.json`.
"""

import re
import shutil
import sys
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load as decode_tensors
from safetensors.torch import save as encode_tensors
from torch import Tensor

from rl_training.errors import CheckpointError, ConfigError
from rl_training.runtime.callbacks import EarlyStopping
from rl_training.runtime.faults import fault_point
from rl_training.runtime.storage import (
    MAX_JSON_BYTES,
    canonical_json,
    parse_json,
    read_members,
    read_regular_file,
    replace_file,
    staged_directory,
    write_members,
)

FORMAT_VERSION = 1
_NAME = re.compile(r"step-\d{9,}")
_STAGE = re.compile(r"step-\d{9,}\.tmp-\d+")
_ASIDE = re.compile(r"(step-\d{9,})\.old-\d+")
_REQUIRED = {
    *("algo", "config", "spaces", "seeds", "step", "hooks_pending", "members", "best_mean"),
    *("callbacks", "metrics_bytes", "dataset_fingerprint", "environment"),
}


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint in memory."""

    path: Path
    tensors: dict[str, Tensor]
    state: dict[str, Any]

    @property
    def step(self) -> int:
        """Gradient steps taken."""
        return int(self.state["step"])

    @property
    def learner_tensors(self) -> dict[str, Tensor]:
        """The learner's part of the tensors."""
        return {name: value for name, value in self.tensors.items() if not name.startswith("transforms/")}


def write_checkpoint(path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any]) -> Path:
    """Write one complete checkpoint directory; nothing appears at `path` unless all of it is on disk."""
    data = encode_tensors({name: value.cpu().contiguous() for name, value in tensors.items()})
    with staged_directory(path) as stage:
        write_members(stage, {"state.safetensors": data, "state.json": canonical_json(state)}, FORMAT_VERSION)
    return path


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Return a checkpoint after verifying every byte of it, or raise a CheckpointError that names the file."""
    where = Path(path)
    members = read_members(where, FORMAT_VERSION)
    if set(members) != {"state.safetensors", "state.json"}:
        raise CheckpointError(f"{where}: holds {sorted(members)}; state.safetensors and state.json are expected")
    if len(members["state.json"]) > MAX_JSON_BYTES:
        raise CheckpointError(f"{where / 'state.json'}: is larger than {MAX_JSON_BYTES:,} bytes")
    state = parse_json(members["state.json"], str(where / "state.json"))
    if missing := sorted(_REQUIRED - set(state)):
        raise CheckpointError(f"{where / 'state.json'}: lacks {', '.join(missing)}")
    try:
        tensors = decode_tensors(members["state.safetensors"])
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{where / 'state.safetensors'}: cannot be read: {error}") from error
    return Checkpoint(where, tensors, state)


def member_of(checkpoint: Checkpoint, member: int) -> Checkpoint:
    """Return one member of a population as a solo checkpoint, exactly as it stands."""
    state = checkpoint.state
    if not 0 <= member < len(state["seeds"]):
        raise ConfigError(f"member {member} is not there: the checkpoint has members 0 to {len(state['seeds']) - 1}")
    shared = {name: value for name, value in checkpoint.tensors.items() if name.startswith("transforms/")}
    own = {name: value[member : member + 1].clone() for name, value in checkpoint.learner_tensors.items()}
    seed, record = state["seeds"][member], state["members"][member]
    alone = {
        "config": {**state["config"], "seed": seed, "seeds": None},
        "seeds": [seed],
        "members": [record],
        "best_mean": record["best_return"],
        "callbacks": [EarlyStopping.of_member(entry, member) for entry in state["callbacks"]],
        "metrics_bytes": 0,
    }
    return Checkpoint(checkpoint.path / f"member-{member}", {**own, **shared}, {**state, **alone})


class CheckpointStore:
    """The `checkpoints/` directory of a run: newest, best, and which may be forgotten."""

    def __init__(self, directory: Path, keep: int, warn: Callable[[str], None] | None = None) -> None:
        self.directory = directory
        self.keep = max(keep, 2)  # one may be lost while the next is written
        self.warn = warn or (lambda text: print(f"warning: {text}", file=sys.stderr))

    def restore_aside(self) -> None:
        """Put back a checkpoint whose replacement was cut between its two renames."""
        for entry in list(self.directory.glob("step-*.old-*")):
            if aside := _ASIDE.fullmatch(entry.name):
                original = self.directory / aside[1]
                shutil.rmtree(entry, ignore_errors=True) if original.exists() else entry.rename(original)

    def prepare(self) -> None:
        """Make the directory and mend what an interrupted save left behind."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.restore_aside()
        for entry in self.directory.iterdir():
            if _STAGE.fullmatch(entry.name):
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name.startswith(".") and ".tmp-" in entry.name:
                entry.unlink(missing_ok=True)

    def path(self, step: int) -> Path:
        """Return where the checkpoint of a step lives."""
        return self.directory / f"step-{step:09d}"

    def save(self, step: int, tensors: Mapping[str, Tensor], state: Mapping[str, Any], *, best: bool) -> Path:
        """Write a checkpoint, point `latest` (and `best`) at it, verify it, and only then forget old ones."""
        path = write_checkpoint(self.path(step), tensors, state)
        fault_point("save:before-latest")
        self._point("latest", path)
        fault_point("save:after-latest")
        if best:
            self._point("best", path)
        read_members(path, FORMAT_VERSION)
        self._prune()
        return path

    def rewind(self, path: Path) -> None:
        """Make an older checkpoint the latest, before the run goes on from it."""
        if self._pointed("latest") != path.name:
            self._point("latest", path)

    def names(self) -> list[str]:
        """Return the names of the checkpoints, oldest first."""
        try:
            if not self.directory.is_dir():
                return []
            list(self.directory.iterdir())
        except OSError as error:
            raise CheckpointError(f"{self.directory}: cannot be read: {error.strerror}") from None
        return sorted(entry.name for entry in self.directory.iterdir() if _NAME.fullmatch(entry.name))

    def load(self, name: str = "latest") -> Checkpoint:
        """Return `latest` or `best`; a damaged one is passed over for the newest good one, with a warning."""
        names = self.names()
        if not names:
            raise CheckpointError(f"{self.directory}: there is no checkpoint; train first, or give another path")
        wanted = self._pointed(name)
        candidates = [wanted] if wanted in names else []
        candidates += [other for other in reversed(names) if other != wanted]
        first_fault: CheckpointError | None = None
        for candidate in candidates:
            try:
                checkpoint = load_checkpoint(self.directory / candidate)
            except CheckpointError as error:
                first_fault = first_fault or error
                continue
            if first_fault is not None:
                self.warn(f"{first_fault}; falling back to {candidate}")
            return checkpoint
        raise first_fault or CheckpointError(f"{self.directory}: there is no checkpoint")

    def _point(self, name: str, path: Path) -> None:
        replace_file(self.directory / f"{name}.json", canonical_json({"checkpoint": path.name}))

    def _pointed(self, name: str) -> str | None:
        """The checkpoint a pointer names; None when the pointer is missing or damaged."""
        try:
            pointer = parse_json(read_regular_file(self.directory / f"{name}.json", 4096), name)
        except CheckpointError:
            return None
        value = pointer.get("checkpoint")
        return value if isinstance(value, str) and _NAME.fullmatch(value) else None

    def _prune(self) -> None:
        kept = {*self.names()[-self.keep :], self._pointed("best"), self._pointed("latest")}
        for name in self.names():
            if name not in kept:
                shutil.rmtree(self.directory / name)
                fault_point("save:prune")
