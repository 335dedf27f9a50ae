"""One member of a population as a run of its own: an ordinary solo run directory that every command accepts."""

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.experiment.manager import ExperimentManager, find_checkpoint, locate, resumable, solo_member
from rl_training.experiment.run_record import run_record, run_status

if TYPE_CHECKING:
    from rl_training.runtime.checkpoints.checkpoint import Checkpoint


def export_member(
    run: str | Path, out: str | Path, *, member: int | None = None, seed: int | None = None, which: str = "latest"
) -> Path:
    """Write one member of a run, or of one of its checkpoints, as a solo run directory, completely or not at all.

    It holds the member's config (its own knobs included), its metric rows and its checkpoint, including the replay of
    an online run. The member is chosen by its number, or by its seed if only one member has it.
    """
    from rl_training.runtime.checkpoints.checkpoint import CheckpointStore
    from rl_training.runtime.checkpoints.replay_store import export_checkpoint
    from rl_training.storage import canonical_json, replace_file, sha256, staged_directory, storage_error

    target = Path(out)
    if not str(out) or target.exists() or target.is_symlink():
        raise ConfigError(f"{target}: already exists; choose another --out")
    whole = find_checkpoint(run, which, resumable)
    chosen = _chosen(whole, member, seed)
    solo_checkpoint = solo_member(whole, chosen, run)
    home = locate(run)[0]
    if home is not None and target.resolve().is_relative_to(home.resolve()):
        raise ConfigError(f"{target}: is inside the run {home}, which may be started over; choose another --out")
    rows = _metric_rows(whole, chosen, home)
    solo_checkpoint.state.update(metrics_bytes=len(rows), metrics_sha256=sha256(rows))
    manager = ExperimentManager(make_config(solo_checkpoint.state["config"], str(solo_checkpoint.path)), target)
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(target, 0, error) from error
    with staged_directory(target) as stage:
        store = CheckpointStore(stage / "checkpoints", 2)
        store.directory.mkdir()
        path = store.path({**({} if whole.env_step is None else {"env_step": whole.env_step}), "step": whole.step})
        store.point(export_checkpoint(path, solo_checkpoint), best=_is_best(solo_checkpoint))
        replace_file(stage / "metrics.jsonl", rows)
        replace_file(stage / "config.yaml", manager.config.to_yaml().encode())
        replace_file(stage / "run.json", canonical_json(_record(manager, whole, chosen, home)))
    return target


def _chosen(checkpoint: "Checkpoint", member: int | None, seed: int | None) -> int:
    """The number of the requested member."""
    seeds: list[int] = checkpoint.state["seeds"]
    if (member is None) == (seed is None):
        raise ConfigError("pass either --member or --seed to choose the member to export")
    if member is not None:
        return member
    found = [number for number, other in enumerate(seeds) if other == seed]
    if len(found) == 1:
        return found[0]
    if not found:
        raise ConfigError(
            f"{checkpoint.path}: no member has seed {seed}; there are {', '.join(map(str, dict.fromkeys(seeds)))}"
        )
    raise ConfigError(f"{checkpoint.path}: members {', '.join(map(str, found))} have seed {seed}; say which with --member")


def _metric_rows(checkpoint: "Checkpoint", member: int, run_dir: Path | None) -> bytes:
    """The member's rows up to the checkpoint, as a solo run writes them; empty for a checkpoint outside a run."""
    if run_dir is None:
        return b""
    from rl_training.runtime.metrics import read_rows

    solo = read_rows(run_dir / "metrics.jsonl", int(checkpoint.state["metrics_bytes"]), member)
    return "".join(json.dumps(row) + "\n" for row in solo).encode()


def _is_best(solo_checkpoint: "Checkpoint") -> bool:
    """Whether the checkpoint is the member's best."""
    record = solo_checkpoint.state["members"][0]
    # steps alone are ambiguous: they count gradient steps in one phase and environment steps in the next
    return bool(record["best_step"] == solo_checkpoint.position and record["best_return"] == record["last_return"])


def _record(manager: ExperimentManager, whole: "Checkpoint", member: int, home: Path | None) -> dict[str, Any]:
    """The content of run.json: a member of a finished run's last checkpoint is a finished run on the same data."""
    from rl_training.runtime.checkpoints.checkpoint import CheckpointStore

    record = {**manager.record(None), "dataset": None, "status": "exported", "message": None}
    if home is not None and run_status(home) is not None:
        known = run_record(home)
        record |= {
            name: known[name] for name in ("dataset", "phases", "warnings", "random_play", "time_limit") if name in known
        }
        at_its_end = CheckpointStore(home / "checkpoints", 2).names()[-1] == whole.path.name
        record["status"] = "finished" if at_its_end and known["status"] == "finished" else "exported"
    source = {"checkpoint": str(whole.path.absolute()), "member": member, "seed": whole.state["seeds"][member]}
    return {**record, "step": whole.step, "env_step": whole.env_step, "exported_from": source}
