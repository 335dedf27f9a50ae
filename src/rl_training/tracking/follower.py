"""Follows metrics.jsonl, the authority on what a run measured, and notices when its past has changed."""

import json
import uuid
from collections import Counter
from pathlib import Path
from typing import Any

from rl_training.storage import replace_file
from rl_training.tracking.subject import COUNTERS, Row, Values

RECORD = "tracking.jsonl"
"""In the run directory: the id under which backends know the run, then a copy of every line that they were given."""


class Follower:
    """Returns what a run adds to metrics.jsonl.

    A resumed run cuts that file and writes the lines after the cut again. They are the same as before, unless it goes on with
    other arithmetic (another device), from an earlier checkpoint with another budget, or with another online phase. Then the
    backends hold rows that the run no longer has, and cannot all take them back: the run gets a new `id`, and is read anew.
    """

    def __init__(self, run_dir: Path, switch: int) -> None:
        self._metrics, self._record = run_dir / "metrics.jsonl", run_dir / RECORD
        self._first_switch = switch
        self.id = ""

    def begin(self) -> None:
        """Take the id of the run from its directory, or give it one."""
        try:
            with self._record.open("rb") as stream:
                line = stream.readline()
                self.id, self._header = str(json.loads(line)["id"]), len(line)
                self._rewind()
        except (FileNotFoundError, ValueError, KeyError, TypeError):
            self.start_over()

    def start_over(self) -> None:
        """Give the run a new id, under which no backend holds anything."""
        self.id = uuid.uuid4().hex[:12]
        line = (json.dumps({"id": self.id}) + "\n").encode()
        replace_file(self._record, line)
        self._header = len(line)
        self._rewind()

    def _rewind(self) -> None:
        self._read = 0
        self._switch = self._first_switch
        self._count: Counter[int] = Counter()

    def rows(self) -> list[Row]:
        """Return the rows of all complete lines that were added; with a new id, all rows, if the past changed."""
        with self._metrics.open("rb") as stream:
            stream.seek(self._read)
            text = stream.read()
        text = text[: text.rfind(b"\n") + 1]
        with self._record.open("r+b") as stream:
            stream.seek(self._header + self._read)
            known = stream.read(len(text))
            if known == text[: len(known)]:
                stream.write(text[len(known) :])  # before it is sent: the record is all that a backend may hold
                self._read += len(text)
                return [self._row(json.loads(line)) for line in text.splitlines()]
        self.start_over()
        return self.rows()

    @property
    def behind(self) -> bool:
        """Whether metrics.jsonl is shorter than what backends were given: while a resumed run has not caught up."""
        return self._record.stat().st_size > self._header + self._read

    def _row(self, found: dict[str, Any]) -> Row:
        member, step = int(found["member"]), int(found["step"])
        if "env_step" not in found:
            self._switch = max(self._switch, step)
        position = step if "env_step" not in found else self._switch + int(found["env_step"])
        self._count[member] += 1
        return Row(member, self._count[member] - 1, position, _values(found))


def _values(found: dict[str, Any]) -> Values:
    """Return the measurements of a row; an event is one too, and a member's own knobs are among its hyper-parameters."""
    event = {f"event/{found['event']}": 1.0} if "event" in found else {}
    names = [name for name in found if name not in COUNTERS and name != "event" and not name.startswith("knob/")]
    return {**{name: float(found[name]) for name in names}, **event}
