"""The manager owns a run directory: resolved config, metrics, checkpoints, versions, dataset fingerprint."""

import os
import platform
import shutil
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.config.yaml_loader import parse_yaml
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, StorageError, suggested
from rl_training.experiment.run_record import remove_litter, run_status
from rl_training.experiment.same_config import changed_settings, check_same_config, finetune_config
from rl_training.registry import get_spec
from rl_training.remote.runs import address_of, local_run
from rl_training.storage import MAX_JSON_BYTES, RUN_FILES, TRACKING_FILES, read_regular_file

if TYPE_CHECKING:
    from rl_training.data.offline_dataset import TransitionDataset
    from rl_training.runtime.callbacks import CallbackLike
    from rl_training.runtime.checkpoints.checkpoint import Checkpoint, CheckpointStore
    from rl_training.runtime.offline_data import OfflineData
    from rl_training.runtime.progress import Reporter
    from rl_training.runtime.result import TrainingResult


class ExperimentManager:
    """Starts and resumes runs in one directory, which is locked while in use."""

    def __init__(self, config: RunConfig[Any], run_dir: str | Path | None = None) -> None:
        if run_dir is not None and not str(run_dir):
            raise ConfigError("the run directory has an empty name; pass a path, or none for runs/<algo>/<env>/<name>")
        self.config = config
        self.started = False  # whether a run of this manager has begun writing
        self.speaks = True  # whether this process talks to the user; of those that share a run, one does
        self.run_dir = local_run(run_dir, new=True) if run_dir is not None else default_run_dir(config)
        self.address = address_of(self.run_dir)  # in a store, where the run is copied to; None for most runs

    @property
    def place(self) -> str:
        """Where the run is, as the user calls it: its address in a store, or its directory."""
        return self.address or str(self.run_dir)

    @classmethod
    def open(cls, run: str | Path) -> "ExperimentManager":
        """Return the manager of an existing run directory, or of the run that a checkpoint is in."""
        run = local_run(run)
        run_dir, _ = locate(run)
        path = (run_dir or Path(run)) / "config.yaml"
        try:
            text = read_regular_file(path, MAX_JSON_BYTES).decode()
        except (CheckpointError, UnicodeDecodeError) as error:
            raise CheckpointError(f"{path.parent}: is not a run directory: {error}") from None
        values, lines = parse_yaml(text, str(path))
        return cls(make_config(values, str(path), lines), path.parent)

    @classmethod
    def resuming(
        cls,
        run: str | Path,
        run_dir: str | Path | None = None,
        member: int | None = None,
        *,
        forget_replay: bool = False,
    ) -> "tuple[ExperimentManager, Checkpoint | None]":
        """Return the manager and the checkpoint to continue from, in the run itself or in a new `run_dir`.

        A checkpoint outside a run, and one member of a population, continue in a run directory of their own. A run that goes
        on where it is finds its latest checkpoint once it holds its lock: another process may be writing until then. One that
        was stopped before its first checkpoint has none, and starts. With `forget_replay` an online run goes on from the
        weights alone: that is not exact, and is said so.
        """
        from rl_training.runtime.checkpoints.checkpoint import CheckpointStore

        run = local_run(run)
        begun = run_status(run) not in (None, "finished")
        saved = bool(CheckpointStore(run / "checkpoints", 2).names())
        in_place = saved and run_dir is None and member is None and locate(run)[1] is None
        if (begun and not saved) or (in_place and not forget_replay):
            return cls.open(run), None
        checkpoint = find_checkpoint(run, check=None if forget_replay else resumable, fall_back=True)
        if forget_replay and checkpoint.env_step is None:
            raise ConfigError(f"{run}: has no replay that could be forgotten: {checkpoint.path.name} is of an offline run")
        if member is not None:
            checkpoint = solo_member(checkpoint, member, run)
        checkpoint = replace(checkpoint, forget_replay=forget_replay)
        if member is None and run_dir is None and locate(run)[0] is not None:
            return cls.open(run), checkpoint
        return cls(make_config(checkpoint.state["config"], str(checkpoint.path)), run_dir), checkpoint

    @classmethod
    def finetuning(
        cls, run: str | Path, block: Mapping[str, Any], run_dir: str | Path | None = None
    ) -> "tuple[ExperimentManager, Checkpoint]":
        """Return the manager of a finished offline run with a `finetune` block, and the checkpoint to continue from."""
        run = local_run(run)
        checkpoint = find_checkpoint(run)
        home = locate(run)[0] if run_dir is None else None
        if home is not None and run_status(home) != "finished":
            raise ConfigError(f"{run}: has not finished; continue it with `{suggested('resume', run)}` first")
        if home is None and run_dir is None:
            raise ConfigError(f"{run}: is not in a run directory; pass a --run-dir for the finetune")
        return cls(finetune_config(checkpoint, block, str(run)), home or run_dir), checkpoint

    def train(
        self,
        *,
        resume: bool = False,
        overwrite: bool = False,
        checkpoint: "Checkpoint | None" = None,
        callbacks: "Sequence[CallbackLike]" = (),
        dataset: "TransitionDataset | None" = None,
        reporter: "Reporter | None" = None,
        go_on: str | None = None,
    ) -> "TrainingResult":
        """Run the configured training; with `resume`, continue exactly from the latest checkpoint, or from `checkpoint`.

        Nothing in the directory is touched before config, environment and data have been checked. A failed start leaves no
        directory that was not there before. If the run is interrupted, the message names the command `go_on`, by default
        `rl-training resume`. Of several ranks (`torchrun`) one does so, and the others train their members.
        """
        from rl_training.envs.environments import time_limit
        from rl_training.experiment.following import follow, tell_start
        from rl_training.experiment.kept_warnings import KeepingReporter, kept_fields
        from rl_training.experiment.mirroring import mirroring
        from rl_training.runtime.checkpoints.checkpoint import CheckpointStore
        from rl_training.runtime.progress import QuietReporter
        from rl_training.runtime.sharing.ranks import joined
        from rl_training.runtime.signals import SignalWatch
        from rl_training.runtime.trainer import TrainOptions
        from rl_training.tracking.tracker import tracking

        with joined(self.config) as ranks, SignalWatch(patient=ranks.count > 1) as signals:
            self.run_dir, self.speaks = Path(ranks.first(str(self.run_dir))), ranks.writes
            if not ranks.writes:
                self.started = True
                return follow(self.config, self.run_dir, dataset, ranks, signals)
            with (
                self._locked(),
                mirroring(self.address, (reporter or QuietReporter()).warn) as mirror,
                tracking(self.config, self.run_dir, reporter) as trackers,
            ):
                store = CheckpointStore(self.run_dir / "checkpoints", 2, reporter.warn if reporter else None)
                start, ours = self._start(store, checkpoint, reporter, resume=resume)
                if not ours:
                    self._refuse_used_directory(overwrite=overwrite)
                tell_start(ranks, start, ours=ours)
                record = {**self.record(start), **kept_fields(self.run_dir, ours=ours)}
                empty = not store.names()

                def on_ready(data: "OfflineData | None", play: dict[str, Any] | None) -> None:
                    mirror.claim()
                    self.started = True  # from here on the directory belongs to this run
                    if not ours:
                        self._clear(keep=TRACKING_FILES if resume else ())  # backends hold rows that are written again
                    record.update({"dataset": data and data.record(), "random_play": play or record["random_play"]})
                    record["time_limit"] = self.config.final_environment and time_limit(self.config.final_environment)
                    self._write_record(record, "running")  # first: it marks the directory as a run
                    self._write("config.yaml", self.config.to_yaml().encode())

                def on_warning() -> None:
                    if self.started:  # earlier ones are written with the first record
                        self._write_record(record, "running")

                options = TrainOptions(
                    callbacks=[*callbacks, *trackers, mirror],
                    dataset=dataset,
                    resume_from=start,
                    continue_metrics=ours,
                    reporter=KeepingReporter(reporter or QuietReporter(), record["warnings"], on_warning),
                    go_on=go_on or self._go_on,
                    on_ready=on_ready,
                    signals=signals,
                    ranks=ranks,
                )
                try:
                    result: TrainingResult = get_spec(self.config.algo).train()(self.config, self.run_dir, options)
                except BaseException as error:
                    if (empty or self.started) and self.run_dir.is_dir():
                        self._write_record(record, type(error).__name__, str(error))
                    raise
                record |= {"step": result.step, "env_step": result.env_step}
                self._write_record(record, "finished")
                return result

    def _start(
        self, store: "CheckpointStore", given: "Checkpoint | None", reporter: "Reporter | None", *, resume: bool
    ) -> "tuple[Checkpoint | None, bool]":
        """The checkpoint to start from, the given one or the latest, if any, and whether it is of this run directory."""
        store.restore_aside()
        remove_litter(self.run_dir, RUN_FILES)
        latest = given is None and resume and bool(store.names())
        start = store.load(check=self._continuable, fall_back=True) if latest else given and store.again(given)
        if start is None:
            return None, False
        check_same_config(self.config, start)
        ours = start.path.parent.resolve() == store.directory.resolve()
        if ours and (later := store.after(start.path)) and reporter is not None:
            reporter.warn(f"going back from {later[-1]} to {start.path.name}; what came after is discarded")
        return start, ours

    @property
    def _go_on(self) -> str:
        """The command that continues the run."""
        return suggested("resume", self.place, imports=self.config.env_imports)

    def _continuable(self, checkpoint: "Checkpoint") -> None:
        """Refuse a checkpoint of this run whose replay is incomplete, or whose metrics were changed."""
        from rl_training.runtime.metrics import checked_beginning

        resumable(checkpoint)
        checked_beginning(self.run_dir / "metrics.jsonl", *checkpoint.metrics)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Lock the directory; one that was made for this is removed again if the block fails and leaves nothing of value."""
        from rl_training.runtime.checkpoints.lock import RunLock

        with RunLock(self.run_dir) as lock:
            try:
                yield
            except BaseException:
                if self._worthless():
                    lock.remove_if_made()
                raise

    def _worthless(self) -> bool:
        """Whether the directory holds no checkpoint, no metrics and nothing that is not of a run."""
        from rl_training.runtime.checkpoints.checkpoint import CheckpointStore

        metrics = self.run_dir / "metrics.jsonl"
        if not self.run_dir.is_dir() or CheckpointStore(self.run_dir / "checkpoints", 2).names():
            return False
        return {*os.listdir(self.run_dir)} <= {*RUN_FILES, "run.lock"} and not (metrics.exists() and metrics.stat().st_size)

    def _refuse_used_directory(self, *, overwrite: bool) -> None:
        """Refuse a directory with checkpoints, or with files that are not from a run."""
        foreign = [name for name in RUN_FILES if (self.run_dir / name).exists()]
        if foreign and run_status(self.run_dir) is None:
            raise ConfigError(f"{self.run_dir}: holds {', '.join(foreign)} that are not from a run; choose another --run-dir")
        if overwrite:
            return
        from rl_training.runtime.checkpoints.checkpoint import CheckpointStore

        if CheckpointStore(self.run_dir / "checkpoints", 2).names():
            raise ConfigError(
                f"{self.run_dir}: already holds a run; use --resume auto to continue, --overwrite to start over, "
                f"or another --run-dir{self._difference()}"
            )

    def _clear(self, keep: Collection[str]) -> None:
        """Remove the files of an earlier run, except those to keep."""
        try:
            for name in (name for name in RUN_FILES if name not in keep):
                path = self.run_dir / name
                if path.is_dir():
                    shutil.rmtree(path)
                else:
                    path.unlink(missing_ok=True)
        except OSError as error:
            raise StorageError(f"{self.run_dir}: cannot be cleared: {error}") from error

    def _difference(self) -> str:
        """The settings in which the stored config differs, for the message."""
        try:
            other = ExperimentManager.open(self.run_dir).config
        except RLTrainingError:
            return ""
        changes = [
            f"{key} {old!r} there, {new!r} here" for key, old, new in changed_settings(other.record(), self.config.record())
        ]
        return f" (it differs in: {'; '.join(changes[:5])})" if changes else ""

    def record(self, start: "Checkpoint | None") -> dict[str, Any]:
        """Return the record for run.json of a run that starts here or at a checkpoint: versions, hardware, phase."""
        import gymnasium
        import numpy
        import torch

        import rl_training

        return {
            "versions": {
                "rl_training": rl_training.__version__,
                "python": platform.python_version(),
                "torch": torch.__version__,
                "numpy": numpy.__version__,
                "gymnasium": gymnasium.__version__,
            },
            "hardware": {
                "machine": platform.machine(),
                "system": platform.system(),
                "cuda": torch.cuda.get_device_name() if torch.cuda.is_available() else None,
            },
            "phases": [self._phase(start)],
        }

    def _phase(self, start: "Checkpoint | None") -> dict[str, Any]:
        name = "online" if get_spec(self.config.algo).online else "finetune" if self.config.finetune else "offline"
        forgotten = {"forgot_replay": True} if start and start.forget_replay else {}
        begun = {"from_step": start.step if start else 0, "from_env_step": start.env_step if start else None}
        return {"name": name, **begun, **forgotten}

    def _write_record(self, record: dict[str, Any], status: str, message: str | None = None) -> None:
        from rl_training.storage import sealed_json

        self._write("run.json", sealed_json({**record, "status": status, "message": message}))

    def _write(self, name: str, data: bytes) -> None:
        from rl_training.storage import replace_file

        replace_file(self.run_dir / name, data)


def locate(run: str | Path) -> tuple[Path | None, Path | None]:
    """Return the run directory (None for a checkpoint outside a run) and, if a checkpoint was named, its path."""
    path = local_run(run)
    try:
        if (path / "manifest.json").exists():
            home = path.absolute().parent
            return (home.parent if home.name == "checkpoints" and run_status(home.parent) else None), path
    except OSError as error:
        raise CheckpointError(f"{path}: cannot be read: {error.strerror}") from None
    if not path.is_dir():
        raise CheckpointError(f"{path}: there is no run or checkpoint here; pass a run directory or one of its checkpoints")
    return path, None


def check_replaceable(path: Path) -> None:
    """Refuse a path that holds anything but a complete checkpoint outside a run."""
    from rl_training.storage import CHECKPOINT_FORMAT, read_files

    try:
        run_dir, named = locate(path)
        if named is not None:
            read_files(path, CHECKPOINT_FORMAT)
    except CheckpointError as error:
        raise ConfigError(f"{path}: is not a complete checkpoint, so it is not replaced ({error})") from None
    if named is None or run_dir is not None:
        what = "is not a checkpoint" if named is None else f"belongs to the run {run_dir}"
        raise ConfigError(f"{path}: {what}, so it is not replaced; choose another path")


def find_checkpoint(
    run: str | Path,
    which: str = "latest",
    check: "Callable[[Checkpoint], object] | None" = None,
    *,
    fall_back: bool = False,
) -> "Checkpoint":
    """Return the checkpoint that a path names, or of a run directory `latest`, `best` or that of a step.

    A damaged one, or one that `check` refuses, is an error; with `fall_back` an older one of the run is used instead.
    """
    from rl_training.runtime.checkpoints.checkpoint import CheckpointStore, load_checkpoint

    run = local_run(run)
    run_dir, path = locate(run)
    accept = check or (lambda _: None)
    if path is None:
        return CheckpointStore((run_dir or run) / "checkpoints", 2).load(which, accept, fall_back=fall_back)
    if which != "latest":
        raise ConfigError(f"{run}: is one checkpoint, so {which!r} cannot be chosen; give its run directory")
    checkpoint = load_checkpoint(path)
    accept(checkpoint)
    return checkpoint


def solo_member(checkpoint: "Checkpoint", member: int, run: str | Path) -> "Checkpoint":
    """Return one member of a population as a solo checkpoint to continue from; a diverged one is refused."""
    from rl_training.runtime.checkpoints.member import member_of

    solo = member_of(checkpoint, member)
    if solo.state["members"][0]["status"] == "diverged":
        raise ConfigError(f"member {member} of {run} diverged, so there is nothing to continue from")
    return solo


def resumable(checkpoint: "Checkpoint") -> None:
    """Refuse a checkpoint whose replay is incomplete, and say how to go on without."""
    from rl_training.runtime.checkpoints.replay_store import read_replay

    try:
        if checkpoint.env_step is not None:
            read_replay(checkpoint)
    except CheckpointError as error:
        raise CheckpointError(f"{error}; `rl-training resume --forget-replay` goes on from the weights alone") from error


def default_run_dir(config: RunConfig[Any]) -> Path:
    """Return runs/<algo>/<env>/<name>; a new name for each start unless the config has one."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = config.run_name or f"{stamp}-{uuid.uuid4().hex[:6]}"
    return Path("runs") / config.algo / (config.env_id or "data") / name
