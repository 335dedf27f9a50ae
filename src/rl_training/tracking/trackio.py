"""Trackio: one run per member in one project; local, or in the Space or server that Trackio's environment variables name."""

import io
import os
import sys
from collections.abc import Callable
from contextlib import redirect_stdout
from contextvars import Context
from threading import get_ident
from typing import Any, TextIO

import trackio
from trackio import fragments
from trackio.sqlite_storage import SQLiteStorage
from trackio.utils import get_storage_mode

from rl_training.tracking.subject import Member, Row, Subject, Values


class TrackioSink:
    """A metric is logged once at each step: those that Trackio's database has are asked for when a run is opened again."""

    def __init__(self, subject: Subject) -> None:
        self._project = subject.project
        if self._deferred:
            fragments.import_inbox_dir()  # of processes before this one, as Trackio's dashboard does when it is opened
        self.where = f"trackio show --project {subject.project}"
        self._runs = {member.number: _quietly(_open, subject, member) for member in subject.members}
        self._held = {number: self._stored(run) for number, run in self._runs.items()}
        self._sent: dict[int, set[tuple[str, int]]] = {number: set() for number in self._runs}
        self._remote_step = {number: _remote_step(run) for number, run in self._runs.items()}

    @property
    def _deferred(self) -> bool:
        """Whether Trackio leaves rows for its dashboard to store, because its folder is on a network."""
        return bool(get_storage_mode() == "jsonl")

    def _stored(self, run: Any) -> set[tuple[str, int]]:
        """The metrics in the local database, by name and step."""
        logs = SQLiteStorage.get_logs(self._project, run.name, run_id=run.id)
        return {(name, int(log["step"])) for log in logs for name in log}

    def _lacks(self, row: Row) -> Values:
        """The values of a row that its run does not hold; a Space or a server tells its last step alone."""
        if row.position <= self._remote_step[row.member]:
            return {}
        held = self._held[row.member]
        return {name: value for name, value in row.values.items() if (name, row.position) not in held}

    def send(self, rows: list[Row]) -> None:
        """Log the metrics that the runs lack."""
        for row in rows:
            if lacking := self._lacks(row):
                self._runs[row.member].log(lacking, step=row.position)
                self._sent[row.member] |= {(name, row.position) for name in lacking}

    def close(self, *, finished: bool) -> None:
        """Wait until Trackio has stored everything; raise if it has not, since it raises nothing itself."""
        del finished
        for number, run in self._runs.items():
            _quietly(run.finish)
            if not _remote() and not self._deferred and (lost := self._sent[number] - self._stored(run)):
                raise RuntimeError(f"{len(lost):,} values of {run.name} were not stored")


def _open(subject: Subject, member: Member) -> Any:
    return trackio.init(
        project=subject.project,
        name=f"{subject.title(member)}-{subject.id[:6]}",  # Trackio resumes by name: another run may have had this title
        group=None if len(subject.members) == 1 else subject.name,
        config=member.hyperparameters,
        resume="allow",
        embed=False,
        auto_log_gpu=False,
        auto_log_cpu=False,
    )


def _remote_step(run: Any) -> int:
    """The last step that a Space or a server holds; -1 where Trackio is local, or the run is new."""
    last = getattr(run, "_initial_last_step", None) if _remote() else None
    return -1 if last is None else int(last)


def _remote() -> bool:
    return any(os.environ.get(name) for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL"))


def _quietly(call: Callable[..., Any], *arguments: Any) -> Any:
    """Call Trackio without what it prints, and apart: it ends a run when it finds another in its context."""
    with redirect_stdout(_OthersOutput(sys.stdout)):
        return Context().run(call, *arguments)


class _OthersOutput(io.TextIOBase):
    """Standard output, for all threads but this one."""

    def __init__(self, output: TextIO) -> None:
        self._output, self._silent = output, get_ident()

    def write(self, text: str) -> int:
        """Write what other threads print."""
        return len(text) if get_ident() == self._silent else self._output.write(text)

    def flush(self) -> None:
        """Flush standard output."""
        self._output.flush()
