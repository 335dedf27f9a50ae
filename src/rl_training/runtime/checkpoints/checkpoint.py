"""Checkpoints: safetensors and JSON under one hashed manifest, self-contained; nothing in them is executed.

A checkpoint directory holds `state.safetensors` (networks, targets, moments, counts and transforms by logical name, each
learner tensor with a leading members axis), `state.json` (config, spaces, step, members, callbacks) and `manifest.json`.
A checkpoint of an online run is named by both counters, holds the current episodes, and refers to hashed replay segments.
"""

import errno
import os
import re
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import safetensors
from safetensors.torch import load as decode_tensors
from safetensors.torch import save as encode_tensors
from torch import Tensor

from rl_training.data.store.checkpoint_state import check_transforms, parse_state
from rl_training.errors import CheckpointError, ConfigError, RunBusyError
from rl_training.faults import fault_point
from rl_training.output import say
from rl_training.storage import (
    CHECKPOINT_FORMAT,
    MAX_JSON_BYTES,
    canonical_json,
    on_disk,
    parse_json,
    read_files,
    read_regular_file,
    replace_file,
    sha256,
    staged_directory,
    write_files,
)

_NAME = re.compile(r"(?:env-(\d{9,})_)?step-(\d{9,})")
_STAGE = re.compile(rf"{_NAME.pattern}\.tmp-\d+")
_ASIDE = re.compile(rf"(?P<name>{_NAME.pattern})\.old-\d+")
_SHARED = ("transforms/", "online/")  # tensors that are not the learner's


@dataclass(frozen=True)
class Checkpoint:
    """A verified checkpoint, loaded into memory."""

    path: Path
    tensors: dict[str, Tensor]
    state: dict[str, Any]
    source: Path  # the directory it was read from
    member: int | None = None  # which member of the population in `source` it is, if one was extracted
    forget_replay: bool = False  # whether a run goes on from it without its replay
    newest: str | None = None  # the newest of its run when it was found by another word than its name

    @property
    def step(self) -> int:
        """Gradient steps taken."""
        return int(self.state["step"])

    @property
    def env_step(self) -> int | None:
        """Environment steps taken; None for an offline run."""
        value = self.state.get("env_step")
        return None if value is None else int(value)

    @property
    def position(self) -> int:
        """Steps taken in the unit of `total_timesteps`."""
        return self.step if self.env_step is None else self.env_step

    @property
    def metrics(self) -> tuple[int, str | None]:
        """The bytes of the metrics that were written before it, and their hash, which the first versions did not record."""
        recorded = self.state.get("metrics_sha256")
        return int(self.state["metrics_bytes"]), recorded if isinstance(recorded, str) else None

    @property
    def execution(self) -> dict[str, Any]:
        """How the steps were executed: device, mode, precision, threads, versions."""
        record: dict[str, Any] = self.state["execution"]
        return record

    @property
    def learner_tensors(self) -> dict[str, Tensor]:
        """The learner's part of the tensors."""
        return {name: value for name, value in self.tensors.items() if not name.startswith(_SHARED)}


def write_checkpoint(
    path: Path, tensors: Mapping[str, Tensor], state: Mapping[str, Any], files: Mapping[str, bytes] | None = None
) -> Path:
    """Write one complete checkpoint directory; nothing appears at `path` unless all of it is on disk."""
    data = encode_tensors({name: value.cpu().contiguous() for name, value in tensors.items()})
    contents = {"state.safetensors": data, "state.json": canonical_json(state), **(files or {})}
    with staged_directory(path, needed=sum(on_disk(len(content)) for content in contents.values()) + on_disk(1)) as stage:
        write_files(stage, contents, CHECKPOINT_FORMAT)
    return path


def load_checkpoint(path: str | Path) -> Checkpoint:
    """Return a checkpoint after verifying every byte of it, or raise a CheckpointError that names the file."""
    where = Path(path)
    files = read_files(where, CHECKPOINT_FORMAT)
    if not {"state.safetensors", "state.json"} <= set(files):
        raise CheckpointError(f"{where}: holds {sorted(files)}; state.safetensors and state.json are expected")
    if len(files["state.json"]) > MAX_JSON_BYTES:
        raise CheckpointError(f"{where / 'state.json'}: is larger than {MAX_JSON_BYTES:,} bytes")
    state = parse_state(files["state.json"], where / "state.json")
    _check_name(where, state)
    try:
        tensors = decode_tensors(files["state.safetensors"])
    except (safetensors.SafetensorError, ValueError, KeyError) as error:
        raise CheckpointError(f"{where / 'state.safetensors'}: cannot be read: {error}") from error
    if extra := set(files) - {"state.safetensors", "state.json", *segment_names(state)}:
        raise CheckpointError(f"{where}: holds {sorted(extra)}, which are not part of a checkpoint")
    check_transforms(tensors, state, where / "state.safetensors")
    return Checkpoint(where, tensors, state, where)


def _check_name(path: Path, state: Mapping[str, Any]) -> None:
    """Refuse a checkpoint under the name of another one; one that was copied out of its run may have any name."""
    counters = {name: state[name] for name in ("env_step", "step") if state.get(name) is not None}
    if _NAME.fullmatch(path.name) and path.name != checkpoint_name(counters):
        raise CheckpointError(f"{path}: holds {checkpoint_name(counters)}, so it is not what its name says")


def segment_names(state: Mapping[str, Any]) -> set[str]:
    """Return the names of the replay segments that a checkpoint's state refers to."""
    segments = state.get("replay", ())
    named = [s for s in segments if isinstance(s, dict)] if isinstance(segments, list) else []
    return {str(segment.get("name")) for segment in named}


def _order(name: str) -> tuple[int, int]:
    """The counters in a checkpoint's name, environment steps first; an offline run has 0 of those."""
    counters = _NAME.fullmatch(name)
    return (int(counters[1] or 0), int(counters[2])) if counters else (0, 0)


def checkpoint_name(counters: Mapping[str, int]) -> str:
    """Return the name of the checkpoint at some counters: `step-...`, or `env-..._step-...` for an online run."""
    return "_".join(f"{name.removesuffix('_step')}-{count:09d}" for name, count in counters.items())


class CheckpointStore:
    """The `checkpoints/` directory of a run: saves, loads and prunes checkpoints, and points to the latest and the best."""

    def __init__(self, directory: Path, keep: int, warn: Callable[[str], None] | None = None) -> None:
        self.directory = directory
        self.keep = max(keep, 2)  # one may be lost while the next is written
        self.warn = warn or (lambda text: say(f"warning: {text}"))
        self._stuck: set[str] = set()  # checkpoints that could not be removed, each told once
        self._start: Path | None = None  # where the run resumed; the next save removes what came after it

    def restore_aside(self) -> None:
        """Put back a checkpoint whose replacement was interrupted between its two renames."""
        for entry in list(self.directory.glob("*.old-*")):
            if aside := _ASIDE.fullmatch(entry.name):
                original = self.directory / aside["name"]
                shutil.rmtree(entry, ignore_errors=True) if original.exists() else entry.rename(original)

    def prepare(self) -> None:
        """Make the directory and clean up after an interrupted save."""
        self.directory.mkdir(parents=True, exist_ok=True)
        self.restore_aside()
        for entry in self.directory.iterdir():
            if _STAGE.fullmatch(entry.name):
                shutil.rmtree(entry, ignore_errors=True)
            elif entry.name.startswith(".") and ".tmp-" in entry.name:
                entry.unlink(missing_ok=True)

    def path(self, counters: Mapping[str, int]) -> Path:
        """Return the path of the checkpoint at some counters."""
        return self.directory / checkpoint_name(counters)

    def save(
        self,
        counters: Mapping[str, int],
        tensors: Mapping[str, Tensor],
        state: Mapping[str, Any],
        *,
        best: bool,
        latest: bool = True,
    ) -> Path:
        """Write a checkpoint, point `latest` (and `best`) to it, verify it, and only then remove old ones."""
        path = write_checkpoint(self.path(counters), tensors, state)
        self._discard_old_branch(path)
        fault_point("save:before-latest")
        self.point(path, best=best, latest=latest)
        fault_point("save:after-latest")
        read_files(path, CHECKPOINT_FORMAT)
        self._prune()
        return path

    def point(self, path: Path, *, best: bool, latest: bool = True) -> None:
        """Make a checkpoint the latest, unless a later one was written before it, and with `best` also the best."""
        if best:  # first, because a run killed after `latest` is set would not evaluate this step again
            self._point("best", path)
        if latest:
            self._point("latest", path)

    def rewind(self, path: Path) -> None:
        """Make an older checkpoint the latest, before the run resumes from it; the next save removes what came after it."""
        self._start = path
        if self.pointed("latest") != path.name:
            self._point("latest", path)

    def again(self, found: Checkpoint) -> Checkpoint:
        """Return a checkpoint that was loaded before its run was locked as it is now; raise if the run has gone on since."""
        if found.member is not None or found.path.parent.resolve() != self.directory.resolve():
            return found
        if found.newest is not None and self.names()[-1:] != [found.newest]:
            raise RunBusyError(f"{self.directory.parent}: another process has gone on from {found.path.name}; start again")
        loaded = load_checkpoint(self.stored_at(found.path.name))
        return replace(loaded, path=found.path, forget_replay=found.forget_replay)

    def after(self, path: Path) -> list[str]:
        """Return the names of the checkpoints that came after one, oldest first."""
        return [name for name in self.names() if _order(name) > _order(path.name)]

    def names(self) -> list[str]:
        """Return the names of the checkpoints, oldest first."""
        try:
            if not self.directory.is_dir():
                return []
            list(self.directory.iterdir())
        except OSError as error:
            raise CheckpointError(f"{self.directory}: cannot be read: {error.strerror}") from None
        entries = {entry.name for entry in self.directory.iterdir()}
        asides = {aside["name"] for entry in entries if (aside := _ASIDE.fullmatch(entry))}
        return sorted({name for name in entries if _NAME.fullmatch(name)} | asides, key=_order)

    def stored_at(self, name: str) -> Path:
        """Return where a checkpoint is stored: set aside, if a save of its step was interrupted between two renames."""
        path = self.directory / name
        return path if path.exists() else next(iter(self.directory.glob(f"{name}.old-*")), path)

    def referenced_segments(self) -> set[str] | None:
        """Return the replay segments that any checkpoint refers to; None when one of them cannot be read."""
        try:
            states = [read_regular_file(self.stored_at(name) / "state.json", MAX_JSON_BYTES) for name in self.names()]
            return set().union(*(segment_names(parse_json(state, "state.json")) for state in states))
        except (CheckpointError, KeyError, TypeError):
            return None

    def load(
        self, which: str = "latest", check: Callable[[Checkpoint], object] = lambda _: None, *, fall_back: bool = False
    ) -> Checkpoint:
        """Return `latest`, `best` or the checkpoint of a step; raise if it is damaged or `check` rejects it.

        With `fall_back`, for a run that resumes, the newest good checkpoint is returned instead, with a warning.
        """
        names = self.names()
        if not names:
            raise CheckpointError(f"{self.directory}: there is no checkpoint; train first, or give another path")
        wanted = self._named(which, names, fall_back=fall_back)
        others = [name for name in reversed(names) if name != wanted]
        first_error: CheckpointError | None = None
        for candidate in [wanted, *(others if fall_back else [])]:
            try:
                loaded = load_checkpoint(self.stored_at(candidate))
                checkpoint = replace(loaded, path=self.directory / candidate, newest=names[-1])
                check(checkpoint)
            except CheckpointError as error:
                first_error = first_error or error
                continue
            if first_error is not None:
                self.warn(f"{first_error}; falling back to {candidate}")
            return checkpoint
        listed = f"; name another with --checkpoint: {', '.join(others)}" if others and not fall_back else ""
        raise CheckpointError(f"{first_error}{listed}")

    def _named(self, which: str, names: Sequence[str], *, fall_back: bool) -> str:
        """The name of the checkpoint given as `latest`, `best`, a step, or a name."""
        if which in ("latest", "best"):
            pointed = self.pointed(which)
            if pointed in names:
                return str(pointed)
            if which == "latest" and (pointed is None or fall_back):
                return names[-1]
            problem = f"{self.directory / which}.json: names no checkpoint that exists"
            if which == "best" and pointed is None:
                who = "evaluations in an environment or `select_by` choose one"
                problem = f"{self.directory}: no best checkpoint is recorded; {who}"
            raise CheckpointError(f"{problem}; name one with --checkpoint: {', '.join(names)}")
        counts = {name: _order(name)[0] if name.startswith("env-") else _order(name)[1] for name in names}
        found = [name for name, count in counts.items() if which == name or (which.isdecimal() and int(which) == count)]
        if len(found) != 1:
            problem = f"{which!r} is both {' and '.join(found)}" if found else f"there is no checkpoint {which!r}"
            raise ConfigError(f"{self.directory}: {problem}; there are latest, best, {', '.join(names)}")
        return found[0]

    def _point(self, name: str, path: Path) -> None:
        pointer = {"checkpoint": path.name, "sha256": sha256(path.name.encode())}
        replace_file(self.directory / f"{name}.json", canonical_json(pointer))

    def pointed(self, name: str) -> str | None:
        """Return the checkpoint a pointer names; None when the pointer is missing or damaged."""
        try:
            pointer = parse_json(read_regular_file(self.directory / f"{name}.json", 4096), name)
        except CheckpointError:
            return None
        value, claimed = pointer.get("checkpoint"), pointer.get("sha256")
        if not isinstance(value, str) or not _NAME.fullmatch(value):
            return None
        return value if claimed in (None, sha256(value.encode())) else None  # the first versions wrote no hash

    def _discard_old_branch(self, path: Path) -> None:
        """Remove what came after the checkpoint from which the run resumed, once `path` is known to be good.

        `latest` still points to where the run resumed: a run killed here resumes there, and no two branches are ever mixed.
        """
        if self._start is None:
            return
        later = self.after(self._start)
        discarded = [name for name in later if name != path.name]
        if discarded:
            read_files(path, CHECKPOINT_FORMAT)
        if self.pointed("best") in later:  # also if `path` has taken its place
            self._point("best", self._start)
        for name in discarded:
            self._remove(name)
            fault_point("save:discard")
        self._start = None

    def _remove(self, name: str) -> None:
        """Remove a checkpoint, under another name first, so that a kill leaves no half one; what cannot go stays."""
        path, going = self.directory / name, self.directory / f"{name}.tmp-{os.getpid()}"
        try:
            if path.is_symlink() or not path.is_dir():
                raise NotADirectoryError(errno.ENOTDIR, "is not a directory")
            path.rename(going)
            fault_point("save:remove")
            shutil.rmtree(going)
        except OSError as error:
            if name not in self._stuck:
                self.warn(f"{path}: cannot be removed ({error.strerror}); remove it by hand, the run goes on")
            self._stuck.add(name)

    def _evaluated(self, name: str) -> str | None:
        """The checkpoint whose evaluation was under way when another was written, which needs it to repeat that."""
        try:
            state = parse_json(read_regular_file(self.stored_at(name) / "state.json", MAX_JSON_BYTES), "state.json")
            return checkpoint_name(state["evaluating"]["counters"])
        except (CheckpointError, KeyError, TypeError, ValueError, AttributeError):
            return None

    def _prune(self) -> None:
        for pointer in ("best", "latest"):
            if os.path.lexists(self.directory / f"{pointer}.json") and self.pointed(pointer) not in self.names():
                self.warn(f"{self.directory / pointer}.json: is damaged, so old checkpoints are kept")
                return
        offline = [name for name in self.names() if not name.startswith("env-")]  # an online phase started from the last one
        kept = {*self.names()[-self.keep :], *offline[-1:], self.pointed("best"), self.pointed("latest")}
        kept |= {self._evaluated(name) for name in self.names() if name in kept}
        for name in self.names():
            if name not in kept:
                self._remove(name)
                fault_point("save:prune")
