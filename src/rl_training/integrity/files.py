"""Every file of a run, checked and not changed: checkpoints, pointers, replay, metrics, records, config and data."""

import json
import os
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.config.yaml_loader import parse_yaml
from rl_training.errors import CheckpointError, ConfigError, DatasetError, RLTrainingError, RunBusyError
from rl_training.experiment.manager import locate, resumable
from rl_training.experiment.run_record import run_record
from rl_training.experiment.same_config import check_same_config
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, CheckpointStore, load_checkpoint
from rl_training.runtime.checkpoints.lock import is_in_use
from rl_training.runtime.offline_data import files_fingerprint
from rl_training.storage import MAX_JSON_BYTES, check_seal, parse_json, read_regular_file, sha256

_SIDE_FILES = ("timings.jsonl", "tracking.jsonl")


@dataclass(frozen=True)
class Problem:
    """One thing that is wrong with a file, and what to do about it."""

    file: str
    what: str
    advice: str

    def __str__(self) -> str:
        return f"{self.file}: {self.what}; {self.advice}"


@dataclass
class FileReport:
    """What was checked of a run, and what is wrong with it."""

    path: str
    checked: list[str] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def add(self, error: RLTrainingError, advice: str, file: Path | None = None) -> None:
        """Note an error as a problem of the file that it names first."""
        named, _, what = str(error).partition(": ")
        self.note(str(file or named), what or str(error), advice)

    def note(self, file: str | Path, what: str, advice: str) -> None:
        """Note a problem, once."""
        problem = Problem(str(file), what, advice)
        if problem not in self.problems:
            self.problems.append(problem)


def check_files(run: str | Path) -> FileReport:
    """Return what is wrong with the files of a run directory, or of a checkpoint; nothing is changed.

    A run that a process is using is refused (RunBusyError): its files change while they are read.
    """
    run_dir, checkpoint = locate(run)
    if checkpoint is not None or run_dir is None:
        return _check_checkpoint(Path(run))
    if not any(os.path.lexists(run_dir / name) for name in ("run.json", "config.yaml", "checkpoints")):
        raise CheckpointError(f"{run_dir}: is not a run directory; name one, one of its checkpoints, or a config")
    if is_in_use(run_dir):
        raise RunBusyError(f"{run_dir}: is in use; verify it when its process has ended")
    report = FileReport(str(run_dir))
    finished = _check_record(report, run_dir)
    newest = _check_checkpoints(report, run_dir, finished=finished)
    config = _check_config(report, run_dir, newest)
    for name in _SIDE_FILES:
        if os.path.lexists(run_dir / name):
            _read_lines(report, run_dir / name, "delete it; no other command needs it to go on")
    if newest is not None:
        _check_data(report, config, newest)
    return report


def _check_checkpoint(path: Path) -> FileReport:
    report = FileReport(str(path))
    try:
        resumable(load_checkpoint(path))
        report.checked.append("1 checkpoint")
    except CheckpointError as error:
        report.add(error, "use another copy of it")
    return report


def _check_record(report: FileReport, run_dir: Path) -> bool:
    """Check run.json; return whether it says that the run has finished."""
    path = run_dir / "run.json"
    advice = "training goes on without it: resume writes it anew"
    try:
        record = run_record(run_dir)
        if "sha256" in record:  # earlier versions wrote none
            check_seal(read_regular_file(path, MAX_JSON_BYTES), record, str(path))
        if not isinstance(record.get("versions"), dict) or "rl_training" not in record["versions"]:
            raise CheckpointError(f"{path}: is not the record of a run")
    except CheckpointError as error:
        report.add(error, advice)
        return False
    report.checked.append("run.json")
    return bool(record.get("status") == "finished")


def _check_checkpoints(report: FileReport, run_dir: Path, *, finished: bool) -> Checkpoint | None:
    """Check the checkpoints with their replay, the pointers and the metrics; return the newest good checkpoint."""
    store = CheckpointStore(run_dir / "checkpoints", 2)
    names, good, segments = store.names(), list[Checkpoint](), set[str]()
    bad: list[CheckpointError] = []
    for name in names:
        try:
            found = load_checkpoint(store.stored_at(name))
            resumable(found)
        except CheckpointError as error:
            bad.append(error)
            continue
        segments |= {segment["name"] for segment in found.state.get("replay") or ()}
        good.append(replace(found, tensors={}))  # which may be large, and are no longer needed
    way = f"delete it, and resume goes on from {good[-1].path.name}" if good else "no checkpoint is left: start over"
    for fault in bad:
        report.add(fault, way)
    report.checked += [f"{len(good)} checkpoints"] + ([f"{len(segments)} replay segments"] if segments else [])
    _check_pointers(report, store)
    if not names and finished:
        report.note(store.directory, "holds no checkpoint, but the run has finished", "start over")
    _check_metrics(report, run_dir, good)
    return good[-1] if good else None


def _check_pointers(report: FileReport, store: CheckpointStore) -> None:
    again = {
        "latest": "resume takes the newest checkpoint, and its next save writes this file anew",
        "best": 'write {"checkpoint": "NAME"} into it, NAME being the best checkpoint; until then no old one is removed',
    }
    for name, advice in again.items():
        path = store.directory / f"{name}.json"
        if not os.path.lexists(path):
            continue
        try:
            known = {"checkpoint", "sha256"} >= set(parse_json(read_regular_file(path, 4096), str(path)))
        except CheckpointError as error:
            report.add(error, advice)
            continue
        if not known or store.pointed(name) not in store.names():
            report.note(path, "is damaged, or names no checkpoint that exists", advice)
        else:
            report.checked.append(path.name)


def _check_metrics(report: FileReport, run_dir: Path, good: list[Checkpoint]) -> None:
    """Check that metrics.jsonl is made of rows, and that every checkpoint finds the part that it was written after."""
    path = run_dir / "metrics.jsonl"
    advice = "go on from a checkpoint in another directory: `rl-training resume CHECKPOINT --run-dir NEW`"
    if not good and not path.exists():
        return
    data = _read_lines(report, path, advice)
    for one in good:
        if data is None:
            return
        vouched, known = data[: one.state["metrics_bytes"]], one.state.get("metrics_sha256")
        short = len(vouched) < one.state["metrics_bytes"]
        if short or (known is not None and known != sha256(vouched)):
            what = "is shorter than" if short else "is not what was there at"
            report.note(path, f"{what} {one.path.name}", advice)
            return


def _read_lines(report: FileReport, path: Path, advice: str) -> bytes | None:
    """The bytes of a file of JSON lines; a last line without its end is what a kill leaves, and no problem."""
    try:
        data = read_regular_file(path)
    except CheckpointError as error:
        report.add(error, advice)
        return None
    whole = data[: data.rfind(b"\n") + 1].splitlines()
    for number, line in enumerate(whole, 1):
        try:
            if not isinstance(json.loads(line), dict):
                raise ValueError
        except (ValueError, RecursionError):
            report.note(path, f"line {number} is no JSON object", advice)
            return None
    report.checked.append(f"{path.name} ({len(whole):,} rows)")
    return data


def _check_config(report: FileReport, run_dir: Path, newest: Checkpoint | None) -> RunConfig[Any] | None:
    """Check that config.yaml is legal, and that a run with it may go on from the newest checkpoint; return it."""
    path = run_dir / "config.yaml"
    where = f"write the `config` of {newest.path / 'state.json'} into it" if newest else "start the run again"
    try:
        text = read_regular_file(path, MAX_JSON_BYTES).decode()
        config = make_config(*_parsed(text, path))
        if newest is not None:
            check_same_config(config, newest)
    except UnicodeDecodeError:
        report.note(path, "is no text", where)
    except (CheckpointError, ConfigError) as error:
        report.note(path, str(error).removeprefix(f"{path}: ").splitlines()[0], where)
    else:
        report.checked.append(path.name)
        return config
    return None


def _parsed(text: str, path: Path) -> tuple[Any, str, Any]:
    values, lines = parse_yaml(text, str(path))
    return values, str(path), lines


def _check_data(report: FileReport, config: RunConfig[Any] | None, newest: Checkpoint) -> None:
    """Check that the files of data are those that the run has learned from; a recipe is made anew at every start."""
    known = newest.state["dataset_fingerprint"]
    advice = "put back the data of the run; with other data it cannot go on"
    try:
        found = files_fingerprint(config or make_config(newest.state["config"], str(newest.path)))
    except (DatasetError, ConfigError) as error:
        report.add(error, advice)
        return
    if found is None or known is None:
        return
    if found != known:
        report.note("the data", f"has changed since {newest.path.name}: {found} now, {known} then", advice)
    else:
        report.checked.append("the files of data")
