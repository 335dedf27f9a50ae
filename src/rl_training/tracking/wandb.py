"""Weights & Biases: one run per member, those of a population in one group; online or offline, as the user has set it up."""

import os
import struct
from pathlib import Path
from typing import Any

import wandb
from wandb.proto import wandb_internal_pb2

from rl_training.errors import ConfigError
from rl_training.tracking.subject import Member, Row, Subject

POSITION = "position"
"""The metric that charts have as their x axis; W&B's own step is the number of the row."""
_SECONDS = 25.0  # to connect, or to upload the rest, which otherwise stays on disk: less than the end of a run waits


def require_login() -> None:
    """Refuse to start where W&B would ask for a key while the run trains."""
    if wandb.setup().settings.mode in ("online", "shared") and not wandb.login(prompt=False, verify=False):
        raise ConfigError("--log wandb: nobody is logged in; run `wandb login` first, or set WANDB_MODE=offline")


class WandbSink:
    """Row k of a member is step k of its run, so the step that a run has reached tells what it holds."""

    def __init__(self, subject: Subject) -> None:
        self._runs = {member.number: _open(subject, member) for member in subject.members}
        self._held = {number: _held(run) for number, run in self._runs.items()}
        first = self._runs[0]
        folder = Path(first.settings.sync_dir).parent
        self.where = f"`wandb sync {folder}/*{subject.id}*` uploads it" if first.offline else str(first.url)

    def send(self, rows: list[Row]) -> None:
        """Log the rows that the runs lack."""
        for row in rows:
            if row.index >= self._held[row.member]:
                self._runs[row.member].log({POSITION: row.position, **row.values}, step=row.index)

    def close(self, *, finished: bool) -> None:
        """Finish the runs; what cannot be uploaded in time stays on disk."""
        for run in self._runs.values():
            run.finish(exit_code=0 if finished else 1)


def _open(subject: Subject, member: Member) -> Any:
    alone = len(subject.members) == 1
    run = wandb.init(
        project=os.environ.get("WANDB_PROJECT") or subject.project,
        group=os.environ.get("WANDB_RUN_GROUP") or (None if alone else subject.name),
        name=(os.environ.get("WANDB_NAME") if alone else None) or subject.title(member),
        id=f"{subject.id}-{member.number}",
        resume="allow",
        reinit="create_new",
        config=member.hyperparameters,
        allow_val_change=True,
        settings=_settings(),
    )
    run.define_metric(POSITION, hidden=True)
    run.define_metric("*", step_metric=POSITION)
    return run


def _settings() -> Any:
    """The terminal is the run's own, and the end of a run does not wait for a network that is down."""
    given = {name: os.environ.get(f"WANDB_{name.upper()}") for name in ("init_timeout", "finish_timeout")}
    waits: dict[str, Any] = {name: _SECONDS if value is None else float(value) for name, value in given.items()}
    return wandb.Settings(console="off", silent=True, **waits)


def _held(run: Any) -> int:
    """Return how many rows a run holds: online the server says it, offline the files of its earlier processes."""
    if not run.offline:
        return int(run.step)
    own = Path(run.settings.sync_file)
    files = own.parent.parent.glob(f"*run-*-{run.id}/{own.name}")
    return max((last_step(path) + 1 for path in files if path != own), default=0)


def last_step(path: Path) -> int:
    """Return the last step that a .wandb file holds; -1 if it has none."""
    return max((step for step, _ in history(path)), default=-1)


def history(path: Path) -> list[tuple[int, dict[str, str]]]:
    """Return step and values, as JSON, of every row in a .wandb file, up to a record that was cut off."""
    found = []
    for data in _records(path.read_bytes()):
        record: Any = wandb_internal_pb2.Record.FromString(data)  # type: ignore[attr-defined,unused-ignore]
        if record.HasField("history"):
            values = {item.key or "/".join(item.nested_key): item.value_json for item in record.history.item}
            found.append((int(record.history.step.num), values))
    return found


def _records(data: bytes) -> list[bytes]:
    """Return the records of a .wandb file: after seven bytes, blocks of 32 KiB in the log format of LevelDB."""
    block, begin = 2**15, 7
    found, parts = [], b""
    while begin + 7 <= len(data):
        if block - begin % block < 7:  # no room for a chunk: the rest of the block is padding
            begin += block - begin % block
            continue
        _, size, kind = struct.unpack_from("<IHB", data, begin)
        begin += 7 + size
        if kind == 0 or begin > len(data):
            break
        parts += data[begin - size : begin]
        if kind in (1, 4):  # whole, or the last part
            found.append(parts)
            parts = b""
    return found
