"""Follows a study without changing it: the populations that have begun by now, what was found, whether more is to come."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from rl_training.analysis.logged_run import LoggedRun, runs_in
from rl_training.errors import RLTrainingError
from rl_training.output import printable
from rl_training.report.live.watching import Watched
from rl_training.runtime.checkpoints.lock import is_in_use
from rl_training.tuning.folder import STUDY_FILE, StudyFolder
from rl_training.tuning.page import section
from rl_training.tuning.showing import summary
from rl_training.tuning.study import JOURNAL
from rl_training.tuning.tuner import CONFIRM_FILE

_FILES = (STUDY_FILE, JOURNAL, CONFIRM_FILE)
_PATIENCE = 300.0  # seconds without a word after which a study that another machine may work on counts as ended


class FollowedStudy:
    """One study as its directory tells of it by now; between its batches no run goes on, so its own lock is what counts."""

    def __init__(self, path: Path, clock: Callable[[], float], warn: Callable[[str], None]) -> None:
        self._folder, self._clock, self._warn = StudyFolder(path), clock, warn
        self._runs: dict[Path, Watched | None] = {}  # None: one that cannot be read
        self._alive: bool | None = None
        self._seen: list[int] = []
        self.left_out: list[str] = []
        self.section = ""  # of a page

    @property
    def path(self) -> Path:
        """Its directory."""
        return self._folder.path

    @property
    def runs(self) -> list[Watched]:
        """The populations that have begun, the confirmed trials among them."""
        return [one for one in self._runs.values() if one is not None]

    @property
    def ended(self) -> bool:
        """Whether nothing more is to come: no process holds its lock, and its populations have ended."""
        return not self._goes_on() and all(one.state.ended for one in self.runs)

    def _goes_on(self) -> bool:
        if self._alive is not None:
            return self._alive
        written = max([*(stamp / 1e9 for stamp in self._seen), *(one.follower.written for one in self.runs)], default=0.0)
        return self._clock() - written <= _PATIENCE

    def poll(self) -> bool:
        """Look for news; return whether there are any. Raise an error if the study or one of its runs is no longer there."""
        self._alive = is_in_use(self.path)  # asked first: a study that has ended by then has written everything
        news = [one.poll() for one in self.runs]
        news += [self._begin(run) for run in runs_in(self.path) if run not in self._runs]
        return any([*news, self._read()])

    def _begin(self, run: Path) -> bool:
        """Follow a run from now on, or leave it out if it cannot be read."""
        self._runs[run] = None
        try:
            watched = Watched(run, self._clock)
            watched.poll()
        except RLTrainingError as error:
            self.left_out.append(f"left out: {printable('; '.join(str(error).splitlines()))}")
            self._warn(self.left_out[-1])
        else:
            self._runs[run] = watched
        return True

    def _read(self) -> bool:
        """Read what the study has found, unless its files are as before; a database has none that would tell."""
        task, seen = self._folder.read(), [_stamp(self.path / name) for name in _FILES]
        if seen == self._seen and task.storage is None:
            return False
        before, self._seen = self.section, seen
        self.section = section(summary(self._folder, task))
        return self.section != before


@dataclass
class Followed:
    """What one page shows while it goes on."""

    alone: list[Watched]  # runs that were named, or were in a folder
    unread: list[str]  # why other runs of folders were left out
    studies: list[FollowedStudy]

    @property
    def runs(self) -> list[Watched]:
        """All runs by now."""
        return [*self.alone, *(run for study in self.studies for run in study.runs)]

    @property
    def left_out(self) -> list[str]:
        """Which runs cannot be read, and why."""
        return [*self.unread, *(text for study in self.studies for text in study.left_out)]

    @property
    def sections(self) -> str:
        """The parts of a page on the studies."""
        return "".join(study.section for study in self.studies)

    @property
    def ended(self) -> bool:
        """Whether nothing more is to come."""
        return all(run.state.ended for run in self.alone) and all(study.ended for study in self.studies)

    def poll(self) -> bool:
        """Look for news of all; return whether there are any."""
        return any([*(run.poll() for run in self.alone), *(study.poll() for study in self.studies)])

    def begun(self) -> list[LoggedRun]:
        """Return the runs as they are by now; none while one that was named has yet to begin."""
        waits = any(run.run is None for run in self.alone)
        return [] if waits else [found for run in self.runs if (found := run.run) is not None]


def _stamp(path: Path) -> int:
    """When a file was last written, in nanoseconds since the epoch; 0 if there is none."""
    try:
        return path.stat().st_mtime_ns
    except OSError:
        return 0
