"""A run as its directory tells of it, while it goes on or afterwards."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from rl_training.analysis.history import History
from rl_training.config.base import flat
from rl_training.config.finetune import RHYTHM
from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.errors import CheckpointError, ConfigError, StorageError, did_you_mean, suggested
from rl_training.experiment.manager import ExperimentManager, locate
from rl_training.experiment.run_record import run_record, run_status
from rl_training.experiment.same_config import BUDGETS
from rl_training.output import printable
from rl_training.storage import natural_order

RETURN, RETURN_STD = "eval/return_mean", "eval/return_std"  # over the episodes of an evaluation
DISTANCE = "validation/action_distance"  # to logged actions: what is known of a policy without an environment
_COUNTERS = {"metrics.jsonl": ("step", "member", "seed"), "timings.jsonl": ("step",)}  # whole numbers in every row
# settings that a finetune may have changed, or that do not decide what its offline phase learned from given data and seeds
_NOT_LEARNED = (
    *("finetune", "early_stopping", "pruning", "seed", "seeds", "sweep", "trials", "algo_kwargs.dataset", *BUDGETS, *RHYTHM),
    *("run_name", "device", "workers", "engine", "env_imports", "env_timeout", "keep_checkpoints", "log", "eval_mode"),
    *("select_by", "select_gamma", "algo_kwargs.max_dataset_bytes"),
)
_EXPECTED = ("/q_mean", "/v_mean", "/q_policy", "/advantage_mean")  # what critics expect, right or wrong


@dataclass(frozen=True)
class Curve:
    """One metric of a run: a row for each position at which it was written, a column for each member.

    A position counts the gradient steps of the offline phase and then environment steps. A value is NaN where a member wrote
    none, because it had stopped.
    """

    positions: NDArray[np.int64]
    values: NDArray[np.float64]  # (positions, members)

    def last(self) -> NDArray[np.float64]:
        """Return the last value of each member; NaN for one that has none."""
        return np.array([_last(column) for column in self.values.T])

    def best(self, *, lower: bool = False) -> NDArray[np.float64]:
        """Return the highest value of each member, or the lowest; NaN for one that has none."""
        sign = -1.0 if lower else 1.0
        filled = np.where(np.isnan(self.values), -np.inf, sign * self.values).max(axis=0)
        return np.where(np.isinf(filled), np.nan, sign * filled)


@dataclass(frozen=True)
class LoggedRun:
    """Config, record, metrics and timings of a run; only complete lines count, so that a run under way can be read."""

    path: Path
    config: RunConfig[Any]
    record: Mapping[str, Any]  # run.json: status, versions, dataset, phases
    history: History
    timings: list[dict[str, Any]]

    @classmethod
    def load(cls, run: str | Path) -> "LoggedRun":
        """Return what a run directory, or that of a checkpoint, holds by now; nothing in it is executed."""
        path = locate(run)[0]
        if path is None:
            raise CheckpointError(
                f"{run}: is a checkpoint outside a run, so it has no metrics; pass a directory that `rl-training train` "
                "wrote, or in Python the run_dir of the algorithm: IQL(..., run_dir='runs/mine')"
            )
        if (reason := why_no_run(path)) is not None:
            raise CheckpointError(f"{run}: {reason}")
        rows, timings = (_complete_lines(path / name) for name in ("metrics.jsonl", "timings.jsonl"))
        return cls.with_rows(path, History.of_rows(rows), timings)

    @classmethod
    def with_rows(cls, path: Path, history: History, timings: list[dict[str, Any]]) -> "LoggedRun":
        """Return a run whose rows have been read; config and record are those in its directory."""
        return cls(path, ExperimentManager.open(path).config, run_record(path), history, timings)

    @property
    def name(self) -> str:
        """The last part of the path: what people call the run."""
        return printable(self.path.resolve().name)

    @property
    def fingerprint(self) -> str | None:
        """The fingerprint of the dataset; None for a run without one."""
        dataset = self.record.get("dataset")
        return dataset and str(dataset.get("fingerprint"))

    @property
    def data(self) -> str:
        """What people call the dataset; empty for a run without one."""
        return data_name(self.config, self.fingerprint)

    @cached_property
    def seeds(self) -> dict[int, int]:
        """The seed of each member, by its number."""
        if "member" not in self.history:
            return dict(enumerate(self.config.member_seeds))
        pairs = zip(self.history["member"].tolist(), self.history["seed"].tolist(), strict=True)
        return dict(sorted(set(pairs)))

    @cached_property
    def switch(self) -> int | None:
        """The position at which the run went online after gradient steps on data; None where it did not, or not yet."""
        if "env_step" not in self.history:
            return None
        offline = np.isnan(self.history["env_step"].astype(np.float64))
        if offline.any():
            return int(self.history["step"][offline].max())
        return self.config.finetune.from_step if self.config.finetune else None  # its offline phase is in another directory

    @cached_property
    def positions(self) -> NDArray[np.int64]:
        """The position of each row of the history."""
        steps = self.history.get("step", np.zeros(0, dtype=np.int64))
        if "env_step" not in self.history:
            return np.asarray(steps, dtype=np.int64)
        online = np.nan_to_num(self.history["env_step"], nan=-1.0)
        return np.where(online < 0, steps, online + (self.switch or 0)).astype(np.int64)

    @property
    def end(self) -> int | None:
        """The position at which a finished run ended, as its record says; None for any other run."""
        step, env_step = self.record.get("step"), self.record.get("env_step")
        if self.record["status"] != "finished" or step is None:
            return None
        return int(step) if env_step is None else int(env_step) + (self.switch or 0)

    def before_switch(self, name: Path) -> "LoggedRun":
        """Return the run as it was when it went online, under another name; a ConfigError if its rows do not reach back."""
        if self.switch is None:
            raise ConfigError(f"{name}: the run has not gone online after gradient steps on data; name it without @switch")
        offline = np.isnan(self.history["env_step"])
        if not offline.any():
            raise ConfigError(f"{name}: its offline phase is in another directory; name that run, as it ended at the switch")
        history = History({column: values[offline] for column, values in self.history.items() if column != "env_step"})
        config = make_config({**self.config.record(), "finetune": None}, str(name))
        record = {**self.record, "status": "finished", "step": self.switch, "env_step": None}
        return LoggedRun(name, config, record, history, self.timings)

    def learns_as(self, other: "LoggedRun") -> bool:
        """Whether offline phases of two runs are the same but for their seeds: of one algorithm, on the same data."""
        own, its = (without(flat(run.config.record()), _NOT_LEARNED) for run in (self, other))
        swept = {f"algo_kwargs.{name}" for run in (self, other) for name in run.config.combinations[0]}
        return self.fingerprint == other.fingerprint and all(own.get(key) == its.get(key) for key in {*own, *its} - swept)

    def metrics(self, prefix: str = "") -> list[str]:
        """Return the names of the metrics that were written, those that begin with `prefix`, in their order."""
        others = ("step", "env_step", "member", "seed", "event", "knob")
        return [name for name in self.history if name.startswith(prefix) and name.split("/")[0] not in others]

    def members_with(self, event: str) -> set[int]:
        """Return the members to which this happened, such as `diverged`."""
        events = self.history.get("event")
        return set() if events is None else set(self.history["member"][events == event].tolist())

    def measured_at(self, position: int, kind: str) -> set[int]:
        """Return the members of which any metric of a kind, such as `eval`, was written at a position."""
        columns = [self.history[name] for name in self.metrics(f"{kind}/")]
        written = (self.positions == position) & ~np.isnan(columns).all(axis=0)
        return set(self.history["member"][written].tolist())

    def curve(self, metric: str = RETURN) -> Curve:
        """Return one metric over the run; a ConfigError if it was never written."""
        if metric not in self.history:
            raise ConfigError(f"{self.path}: has no {metric}: {self._why_absent(metric)}")
        chosen = ~np.isnan(self.history[metric])
        positions = np.unique(self.positions[chosen])
        values = np.full((len(positions), len(self.seeds)), np.nan)
        rows = np.searchsorted(positions, self.positions[chosen])
        columns = np.searchsorted(list(self.seeds), self.history["member"][chosen])
        values[rows, columns] = self.history[metric][chosen]
        return Curve(positions, values)

    def _why_absent(self, metric: str) -> str:
        """Why a metric was never written, and which to take instead; never what critics expect, which is no score."""
        ended = {"DivergedError": "it diverged", "StoppedBySignal": "it was stopped", "KeyboardInterrupt": "it was stopped"}
        early = ended.get(str(self.record["status"]))
        if not self.history.rows:
            if early:
                return f"{early} before its first row"
            return "its metrics.jsonl is missing or has no complete line; use a whole copy of the run"
        if metric != RETURN:
            measured = [name for name in self.history if not name.endswith(_EXPECTED)]
            whole = next((name for name in self.history if name.endswith(f"/{metric}")), None)
            meant = f" Did you mean `{whole}`?" if whole else did_you_mean(metric, measured)
            return f"no such metric was written.{meant}"
        if self.config.final_env_id is not None:
            return f"{early} before its first evaluation" if early else "its metrics.jsonl holds no evaluation"
        away = f"; compare by `--metric {DISTANCE}`: how far the policy is from logged actions"
        return f"it was not evaluated in an environment{away if DISTANCE in self.history else ''}"


def data_name(config: RunConfig[Any], fingerprint: str | None) -> str:
    """Return what people call the dataset of a config; empty without one."""
    parts = getattr(config.algo_kwargs, "dataset", None) or ()
    return "+".join(map(_label, parts)) or (f"data {fingerprint[:6]}" if fingerprint else "")


def without(settings: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """Return settings by their dotted names, without these and the groups of these names."""
    return {key: value for key, value in settings.items() if not any(f"{key}.".startswith(f"{name}.") for name in names)}


def _label(part: Any) -> str:
    """A source of data in a word: the name of its file, the run or the recipe."""
    paths = [part.path] if isinstance(part.path, str) else part.path or ()
    return "+".join(Path(path).stem for path in paths) or (Path(part.run).name if part.run else str(part.kind))


def runs_in(folder: Path) -> list[Path]:
    """Return every run in a folder, also one that lost its run.json: reading it fails, so it is not left out silently."""
    places = {file.parent for file in folder.rglob("run.json")}
    places |= {file.parent for file in folder.rglob("metrics.jsonl") if is_left_of_run(file.parent)}
    return sorted(places - {folder}, key=natural_order)


def is_left_of_run(path: Path) -> bool:
    """Return whether a directory was written by a run, though its run.json may be lost: other programs have metrics, too."""
    return (path / "config.yaml").exists() and (path / "metrics.jsonl").exists()


def why_no_run(path: Path) -> str | None:
    """Return why a directory is no run that can be read, and what to do; None if it is one."""
    if run_status(path) is not None:
        return None
    if (path / "run.json").exists():
        return "its run.json is damaged, or of another program; use another copy of the run"
    if is_left_of_run(path):
        return f"its run.json is missing; use another copy of the run, or `{suggested('resume', path)}`, which writes it anew"
    return "is not a run directory (no run.json); pass one that `rl-training train` wrote"


def _last(column: NDArray[np.float64]) -> float:
    present = column[~np.isnan(column)]
    return float(present[-1]) if len(present) else float("nan")


def _complete_lines(path: Path) -> list[dict[str, Any]]:
    """Return the rows of a file of JSON lines, without a last line that is still being written; none if there is no file."""
    try:
        with open_plain(path) as stream:
            return parse_rows(stream.read(), path)[0]
    except FileNotFoundError:
        return []
    except OSError as error:
        raise StorageError(f"{path}: cannot be read: {error.strerror}") from None


def open_plain(path: Path) -> BinaryIO:
    """Open a file for reading; a StorageError for a pipe or device, which would be waited for without end."""
    if path.exists() and not path.is_file():
        raise StorageError(f"{path}: is not a plain file; use another copy of the run")
    return path.open("rb")


def parse_rows(text: bytes, path: Path) -> tuple[list[dict[str, Any]], int]:
    """Return the rows in the complete lines of a text from a file of JSON lines, and the length of these lines."""
    length, rows, counters = text.rfind(b"\n") + 1, [], _COUNTERS[path.name]
    for number, line in enumerate(text[:length].splitlines(), start=1):
        try:
            row = json.loads(line)
        except (ValueError, RecursionError):
            row = None
        if not _is_row(row, counters):
            way_out = "use another copy of the run, or remove that line in a copy: only its numbers are lost then"
            raise CheckpointError(f"{path}: line {number} is damaged; {way_out}")
        rows.append(row)
    return rows, length


def _is_row(row: Any, counters: Sequence[str]) -> bool:
    """Whether a line is a row: its counters are whole numbers, and all else are numbers, but for the name of an event."""
    if not isinstance(row, dict) or any(type(row.get(name)) is not int for name in counters):
        return False
    return all(
        value is None or (isinstance(value, str) if name == "event" else _is_number(value)) for name, value in row.items()
    )


def _is_number(value: Any) -> bool:
    """Whether a value is one that an array of numbers holds; integers in JSON may be of any size."""
    return isinstance(value, float) or (isinstance(value, int) and abs(value) < 2**63)
