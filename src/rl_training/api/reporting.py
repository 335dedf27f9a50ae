"""Reports of runs: read, drawn, and written to a file; with a picture of the policy where its environment draws."""

import io
import math
import tempfile
import time
from collections.abc import Callable, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from rl_training.analysis.logged_run import LoggedRun, runs_in
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError
from rl_training.experiment.run_record import run_status
from rl_training.output import printable, say
from rl_training.remote.runs import local_run
from rl_training.report.bands import distinct_names
from rl_training.report.facts import member_facts, number
from rl_training.report.live.follow import check_distinct
from rl_training.report.live.watching import Watched, present_run
from rl_training.report.page.document import MARK, Picture, render_page
from rl_training.report.pictures import png
from rl_training.report.tables import comma_separated, markdown
from rl_training.report.target import Format, check_target, format_of
from rl_training.report.values import LENGTH
from rl_training.runtime.checkpoints.lock import is_in_use
from rl_training.runtime.signals import stop_signals_blocked
from rl_training.storage import replace_file
from rl_training.tuning.folder import StudyFolder

if TYPE_CHECKING:
    from rl_training.envs.rendering import Rendering
    from rl_training.tuning.follow import Followed

_MOST_PICTURES = 4  # runs whose policies are drawn
_TOO_MANY = (
    f"a page holds those of {_MOST_PICTURES} runs, the best of each algorithm and environment first; "
    "report on fewer runs, or draw each by `rl-training render RUN --out FILE.gif`"
)
_PICTURE_BYTES = 360_000  # of all animations together
_SIZES = ((320, 200), (240, 150), (160, 100), (120, 60))  # width and steps of an animation: the first that is small enough
_ESCAPED = "backslashreplace"  # bytes of a path or message that are no UTF-8
_SHORTEST_INTERVAL = 1.0  # seconds between two looks at runs whose page is kept fresh

Warn = Callable[[str], None]
_Run = TypeVar("_Run")


class LoadedRuns(list[LoggedRun]):
    """Runs that were read, and which others in their folders were left out and why, which a report has to say."""

    left_out: Sequence[str] = ()


def load_runs(paths: Sequence[str | Path], warn: Warn | None = None) -> LoadedRuns:
    """Return the runs at some paths or in folders, finished or under way; one that is named twice is refused.

    A run in a folder that cannot be read is left out, and `warn` is told; a run that is named itself must be whole.
    """
    found, left_out = _read_runs(paths, present_run, warn or _to_stderr)
    runs = LoadedRuns(found)
    runs.left_out = left_out
    if not runs:
        raise ConfigError("name at least one run directory")
    check_distinct([run.path for run in runs])
    return runs


def _read_runs(paths: Sequence[str | Path], read: Callable[[Path], _Run], warn: Warn) -> tuple[list[_Run], list[str]]:
    """Read what each path means: a run, or all runs in a folder that is not one; return them and what was left out."""
    found: list[_Run] = []
    left_out: list[str] = []

    def leave_out(text: str) -> None:
        left_out.append(text)
        warn(text)

    for path in map(local_run, paths):
        inside = _runs_in(path)
        found += _readable(path, inside, read, leave_out) if inside else [read(path)]
    return found, left_out


def _runs_in(path: Path) -> list[Path]:
    """The runs in a folder; none if the path is a run itself, or about to be one."""
    begun = is_in_use(path) and not StudyFolder.is_one(path)
    if begun or run_status(path) is not None or (path / "manifest.json").exists():
        return []
    return runs_in(path)


def _readable(folder: Path, runs: Sequence[Path], read: Callable[[Path], _Run], warn: Warn) -> list[_Run]:
    """Read the runs of a folder, and leave out those that cannot be read."""
    found = []
    for run in runs:
        try:
            found.append(read(run))
        except RLTrainingError as error:
            warn(f"left out: {printable('; '.join(str(error).splitlines()))}")
    if not found:
        raise CheckpointError(f"{folder}: none of its {len(runs)} runs can be read; use another copy of them")
    return found


def make_report(
    runs: Sequence[LoggedRun],
    kind: Format = "html",
    *,
    title: str | None = None,
    members: bool | None = None,
    picture: bool = True,
    live: float = 0.0,
    warn: Warn | None = None,
    studies: Sequence[str | Path] = (),
    left_out: Sequence[str] = (),
) -> bytes:
    """Return a report as the bytes of a file: a page (`html`), tables (`md`), all logged numbers (`csv`) or curves (`png`).

    `members` draws the curves of single members too; `picture` has a page show the policies at work, where their
    environments draw. Why one cannot be shown is told through `warn` and on the page. A page loads itself
    again every `live` seconds, unless they are 0. The page and the tables of `studies` begin with what they have found, and
    both say which runs were `left_out`.
    """
    if kind == "md":
        told = [line for path in studies for line in _study_lines(path)]
        return markdown(runs, MARK, title, told, left_out).encode(errors=_ESCAPED)
    if kind == "csv":
        return comma_separated(runs).encode(errors=_ESCAPED)
    if kind == "png":
        return png(runs, title, members=bool(members))
    pictures = policy_pictures(runs, warn or _to_stderr) if picture else []
    first = "".join(_study_section(path) for path in studies)
    page = render_page(runs, title=title, members=members, pictures=pictures, live=live, first=first, left_out=left_out)
    return page.encode(errors=_ESCAPED)


def _study_section(path: str | Path) -> str:
    from rl_training.tuning.page import section
    from rl_training.tuning.showing import summary

    folder = StudyFolder(path)
    return section(summary(folder, folder.read()))


def _study_lines(path: str | Path) -> list[str]:
    from rl_training.tuning.page import MOST_ROWS
    from rl_training.tuning.showing import study_lines, summary

    folder = StudyFolder(path)
    return study_lines(summary(folder, folder.read()), MOST_ROWS)


def write_report(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    kind: Format | None = None,
    title: str | None = None,
    members: bool | None = None,
    picture: bool = True,
    warn: Warn | None = None,
    loaded: LoadedRuns | None = None,
) -> Path:
    """Write a report of some run directories, completely or not at all; return its path. The runs are never changed.

    Its `kind` follows from the name: .html, .md, .csv or .png. A file that is not an earlier report is not replaced. `loaded`
    is what `load_runs` gave for the same runs, where that is known.
    """
    found = load_runs(runs, warn) if loaded is None else loaded
    path = Path(out)
    kind = format_of(path, kind)
    check_target(path, kind)
    studies = [one for one in runs if StudyFolder.is_one(one)]
    picture &= not studies  # of which of so many policies?
    chosen: dict[str, Any] = {"title": _title(title, studies), "members": members, "picture": picture, "warn": warn}
    page = make_report(found, kind, **chosen, studies=studies, left_out=found.left_out)
    replace_file(path, page)
    return path


def _title(given: str | None, studies: Sequence[str | Path]) -> str | None:
    """The heading of a page; None is that of its runs."""
    return given or ", ".join(Path(study).resolve().name for study in studies) or None


def keep_report_fresh(
    runs: Sequence[str | Path],
    out: str | Path,
    *,
    kind: Format | None = None,
    title: str | None = None,
    members: bool | None = None,
    picture: bool = True,
    interval: float = 5.0,
    told: Callable[[str], object] = print,
    warn: Warn | None = None,
    clock: Callable[[], float] = time.time,
    sleep: Callable[[float], object] = time.sleep,
) -> int:
    """Write the page of some runs again whenever they have news, until all have ended or Ctrl-C is pressed.

    A study has ended when no process works on it; runs that it begins meanwhile come onto the page. Until then the page loads
    itself again; the last version does not, and shows the policies of runs that have ended, though not of studies.
    Returns 0 if the runs finished, otherwise the exit code of the first that did not, or that of Ctrl-C.
    """
    path = Path(out)
    if format_of(path, kind) != "html":
        raise ConfigError(f"{path}: only a page can be kept fresh; leave --format out and end the name in .html")
    if not interval >= _SHORTEST_INTERVAL:
        raise ConfigError(f"--interval {interval:g}: must be at least {_SHORTEST_INTERVAL:g} second")
    warn = warn or _to_stderr
    followed = _followed(runs, clock, warn)
    title, studies = _title(title, [study.path for study in followed.studies]), bool(followed.studies)

    def write(*, live: float = 0.0, picture: bool = False) -> bool:
        found = followed.begun()
        if not found:
            return False
        check_target(path, "html")
        chosen: dict[str, Any] = {"title": title, "members": members, "live": live, "left_out": followed.left_out}
        pictures = policy_pictures(found, warn) if picture else []
        page = render_page(found, **chosen, pictures=pictures, first=followed.sections)
        replace_file(path, page.encode(errors=_ESCAPED))
        return True

    news, started = True, False
    try:
        while not followed.ended:
            if news and write(live=interval) and not started:
                told(f"{path}: open it; it is kept fresh until the runs have ended (Ctrl-C leaves)")
                started = True
            sleep(interval)
            news = followed.poll()
    except KeyboardInterrupt:
        with stop_signals_blocked():  # a second Ctrl-C would leave a page that loads itself for ever
            write()
        return 130
    except RLTrainingError:  # such as a run that was removed: the page keeps what was known, and stops loading itself
        write()
        raise
    if not write(picture=picture and not studies):
        raise CheckpointError(f"{runs[0]}: none of its runs has begun; report on it again once `tune` trains them")
    told(f"{path}: complete, {path.stat().st_size / 1e3:,.0f} kB")
    return next((one.state.code for one in followed.runs if one.state.code), 0)


def _followed(paths: Sequence[str | Path], clock: Callable[[], float], warn: Warn) -> "Followed":
    """Follow runs, those that are in folders by now, and studies with the runs that they will begin."""
    from rl_training.tuning.follow import Followed, FollowedStudy

    places = [local_run(path) for path in paths]
    alone = [path for path in places if not StudyFolder.is_one(path)]
    studies = [FollowedStudy(path, clock, warn) for path in places if StudyFolder.is_one(path)]
    found = Followed(*_read_runs(alone, lambda run: _watched(run, clock), warn), studies)
    for study in studies:
        study.poll()
    check_distinct([one.follower.path for one in found.runs])
    return found


def _watched(run: Path, clock: Callable[[], float]) -> Watched:
    found = Watched(run, clock)
    found.poll()
    return found


def policy_pictures(runs: Sequence[LoggedRun], warn: Warn) -> list[Picture]:
    """Return an animation of the policy of each run whose environment draws, or why there is none; never raises."""
    able = [(run, name) for run, name in zip(runs, distinct_names(runs), strict=True) if run.config.final_env_id]
    drawn = _drawn([run for run, _ in able])
    chosen = [(run, name) for run, name in able if run.path in drawn]
    limit = _PICTURE_BYTES // max(1, len(chosen))
    found = []
    if chosen:
        from rl_training.envs.environments import one_line
        from rl_training.envs.rendering import DrawsNothingError
    for run, name in chosen:
        try:
            found.append(_picture(run, name, limit))
        except DrawsNothingError:
            continue
        except Exception as error:  # environments are third-party code, and a report is worth having without a picture
            why = str(error) if isinstance(error, RLTrainingError) else one_line(error)
            found.append(Picture(name, why))
            warn(f"{name}: no picture of the policy: {why}")
    left_out = [name for run, name in able if run.path not in drawn]
    if left_out and found:  # where no environment draws, nothing was left out
        found.append(Picture(", ".join(left_out), _TOO_MANY))
    return found


def _drawn(runs: Sequence[LoggedRun]) -> set[Path]:
    """The runs whose policies are drawn: the best of each algorithm in each environment, then the second of each."""
    by_kind: dict[tuple[str, str | None], list[LoggedRun]] = {}
    for run in sorted(runs, key=_best_final, reverse=True):
        by_kind.setdefault((run.config.algo, run.config.final_env_id), []).append(run)
    turns = [run for turn in zip_longest(*by_kind.values()) for run in turn if run is not None]
    return {run.path for run in turns[:_MOST_PICTURES]}


def _best_final(run: LoggedRun) -> float:
    return max((one.final for one in member_facts(run) if one.final is not None), default=-math.inf)


def _picture(run: LoggedRun, name: str, limit: int) -> Picture:
    from PIL import Image

    from rl_training.api.policy import Policy

    policy = Policy.load(run.path, device="cpu")
    member = policy.best_member()
    with tempfile.TemporaryDirectory(prefix="rl-training-") as folder:
        target = Path(folder) / "policy.gif"
        for width, steps in _SIZES:
            drawn = policy.render(target, members=member, width=width, max_steps=steps, overwrite=True)
            moving = target.read_bytes()
            if len(moving) <= limit:
                break
        else:
            raise ConfigError(f"the smallest animation has {len(moving):,} bytes, more than the {limit:,} that fit")
    still = io.BytesIO()
    with Image.open(io.BytesIO(moving)) as frames:
        frames.convert("RGB").save(still, "PNG", optimize=True)
    caption = f"seed {policy.members[member].label}, {_episode_text(run, member, drawn)}"
    return Picture(name, caption, moving, still.getvalue())


def _episode_text(run: LoggedRun, member: int, drawn: "Rendering") -> str:
    """What is seen of an episode and what it earned, beside the usual: one may be easy, and a part is no whole."""
    length, value = int(drawn.evaluation.lengths[0, 0]), float(drawn.evaluation.returns[0, 0])
    usual = next((one.final for one in member_facts(run) if one.member == member), None)
    if not drawn.cut:
        beside = "" if usual is None else f"; its evaluations: {number(usual)} on average"
        return f"an episode of {length:,} steps, return {number(value)}{beside}"
    steps = run.curve(LENGTH).last()[list(run.seeds).index(member)] if LENGTH in run.history else float("nan")
    of = "" if math.isnan(steps) else f" of about {steps:,.0f}"
    beside = "" if usual is None else f"; whole episodes in its evaluations: {number(usual)} on average"
    return f"the first {length:,}{of} steps of an episode, in which it earns {number(value)}{beside}"


def _to_stderr(text: str) -> None:
    say(f"warning: {text}")
