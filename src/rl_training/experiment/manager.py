"""The manager owns a run directory: resolved config, metrics, checkpoints, versions, dataset fingerprint."""

import platform
import shutil
import uuid
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, StorageError
from rl_training.experiment.config import RunConfig, make_config
from rl_training.experiment.registry import get_spec
from rl_training.experiment.yaml_loader import parse_yaml

if TYPE_CHECKING:
    from rl_training.data.offline_dataset import TransitionDataset
    from rl_training.runtime.callbacks import Callback
    from rl_training.runtime.checkpoint import Checkpoint
    from rl_training.runtime.loop import TrainingResult
    from rl_training.runtime.progress import Reporter

RUN_FILES = ("config.yaml", "run.json", "metrics.jsonl", "timings.jsonl", "checkpoints")


class ExperimentManager:
    """Starts and resumes runs in one directory, which is locked while in use."""

    def __init__(self, config: RunConfig[Any], run_dir: str | Path | None = None) -> None:
        self.config = config
        self.run_dir = Path(run_dir) if run_dir is not None else default_run_dir(config)

    @classmethod
    def open(cls, run: str | Path) -> "ExperimentManager":
        """Return the manager of an existing run directory."""
        run_dir, _ = locate(run)
        path = run_dir / "config.yaml"
        if not path.is_file():
            raise CheckpointError(f"{path}: is missing; {run_dir} is not a run directory")
        values, lines = parse_yaml(path.read_text(), str(path))
        return cls(make_config(values, str(path), lines), run_dir)

    def train(
        self,
        *,
        resume: bool = False,
        overwrite: bool = False,
        checkpoint: "str | Path | None" = None,
        callbacks: "Sequence[Callback]" = (),
        dataset: "TransitionDataset | None" = None,
        reporter: "Reporter | None" = None,
    ) -> "TrainingResult":
        """Run the configured training; with `resume`, go on from the latest checkpoint (or the one named) exactly."""
        from rl_training.runtime.checkpoint import CheckpointStore, load_checkpoint
        from rl_training.runtime.locking import RunLock
        from rl_training.runtime.trainer import TrainOptions

        with RunLock(self.run_dir):
            start: Checkpoint | None = None
            store_dir = self.run_dir / "checkpoints"
            if resume:
                store = CheckpointStore(store_dir, 2, reporter.warn if reporter else None)
                if checkpoint is not None:
                    start = load_checkpoint(checkpoint)
                elif store.names():
                    start = store.load()
                if start is not None:
                    self._check_same_config(start)
            else:
                self._claim(overwrite=overwrite)
            self._write("config.yaml", self.config.to_yaml().encode())
            record = self._record(start)
            self._write_record(record, "running")

            def on_data(fingerprint: str, statistics: dict[str, float]) -> None:
                record["dataset"] = {"fingerprint": fingerprint, **statistics}
                self._write_record(record, "running")

            options = TrainOptions(
                callbacks=callbacks,
                dataset=dataset,
                resume_from=start,
                continue_metrics=start is not None and start.path.parent.resolve() == store_dir.resolve(),
                reporter=reporter,
                on_data=on_data,
            )
            try:
                result: TrainingResult = get_spec(self.config.algo).train()(self.config, self.run_dir, options)
            except RLTrainingError as error:
                if self.run_dir.is_dir():
                    self._write_record(record, type(error).__name__, str(error))
                raise
            record["step"] = result.step
            self._write_record(record, "finished")
            return result

    def _claim(self, *, overwrite: bool) -> None:
        """Make sure the directory is free for a new run."""
        present = [name for name in RUN_FILES if (self.run_dir / name).exists()]
        if present and not overwrite:
            raise ConfigError(
                f"{self.run_dir}: already holds a run; use --resume auto to go on, --overwrite to start over, "
                f"or another --run-dir{self._difference()}"
            )
        try:
            for name in present:
                path = self.run_dir / name
                shutil.rmtree(path) if path.is_dir() else path.unlink()
        except OSError as error:
            raise StorageError(f"{self.run_dir}: cannot be cleared: {error}") from error

    def _difference(self) -> str:
        """The settings in which the stored config differs, for the message."""
        try:
            other = ExperimentManager.open(self.run_dir).config
        except RLTrainingError:
            return ""
        changes = [f"{key} {old!r} there, {new!r} here" for key, old, new in _changes(other.record(), self.config.record())]
        return f" (it differs in: {'; '.join(changes[:5])})" if changes else ""

    def _check_same_config(self, checkpoint: "Checkpoint") -> None:
        """A resume goes on with the very config of the checkpoint; only what does not touch past steps may differ."""
        free = {"device", "keep_checkpoints", "run_name"}
        if set(self.config.schedules.values()) == {"constant"}:  # other schedules span the whole run
            free |= {"total_timesteps", "max_epochs", "max_updates"}
        changes = [c for c in _changes(checkpoint.state["config"], self.config.record()) if c[0] not in free]
        if changes:
            shown = "; ".join(f"{key} was {old!r}, is {new!r}" for key, old, new in changes[:5])
            raise ConfigError(f"{checkpoint.path}: was written with another config: {shown}. Use --overwrite to start over")

    def _record(self, start: "Checkpoint | None") -> dict[str, Any]:
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
            "phases": [{"name": "offline", "from_step": start.step if start else 0}],
        }

    def _write_record(self, record: dict[str, Any], status: str, message: str | None = None) -> None:
        from rl_training.runtime.storage import canonical_json

        self._write("run.json", canonical_json({**record, "status": status, "message": message}))

    def _write(self, name: str, data: bytes) -> None:
        from rl_training.runtime.storage import replace_file

        replace_file(self.run_dir / name, data)


def locate(run: str | Path) -> tuple[Path, Path | None]:
    """Return the run directory and, when a checkpoint was named, its path."""
    path = Path(run)
    if (path / "manifest.json").exists():
        return path.parent.parent, path
    if not path.is_dir():
        raise CheckpointError(f"{path}: there is no run or checkpoint here; give a run directory or one of its checkpoints")
    return path, None


def default_run_dir(config: RunConfig[Any]) -> Path:
    """Return runs/<algo>/<env>/<name>; a name of its own for each start unless the config has one."""
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    name = config.run_name or f"{stamp}-{uuid.uuid4().hex[:6]}"
    return Path("runs") / config.algo / (config.env_id or "data") / name


def _changes(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Every setting in which two plain configs differ: (key path, old, new)."""
    result = []
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            result += _changes(a, b, f"{prefix}{key}.")
        elif a != b:
            result.append((f"{prefix}{key}", a, b))
    return result
