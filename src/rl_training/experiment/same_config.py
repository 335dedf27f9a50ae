"""The config of a run that continues a checkpoint: which settings may differ, and that of a finetune."""

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Any

from rl_training.config.finetune import RHYTHM
from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.config.schedules import CONSTANT
from rl_training.errors import ConfigError, suggested
from rl_training.registry import get_spec

if TYPE_CHECKING:
    from rl_training.runtime.checkpoints.checkpoint import Checkpoint

BUDGETS = {"total_timesteps", "max_epochs", "max_updates"}
_MOST_SHOWN = 160  # characters of a value


def check_same_config(config: RunConfig[Any], checkpoint: "Checkpoint") -> None:
    """Require the config of the checkpoint; only settings that do not affect past steps may differ."""
    free = {"device", "keep_checkpoints", "run_name", "algo_kwargs.max_dataset_bytes"}
    free |= {"env_imports", "env_timeout", "workers", "log"}  # they change no bit of a run
    known = make_config(checkpoint.state["config"], str(checkpoint.path)).record()  # including settings added since
    block, changes = config.finetune, changed_settings(known, config.record())
    if set(config.schedules.values()) == {CONSTANT} and (block is None or checkpoint.env_step is None):
        free |= BUDGETS  # other schedules span the whole run, and an online phase depends on the offline budget
    if block is not None and checkpoint.env_step is None:  # nothing of the online phase has happened yet
        free |= {"early_stopping", *(RHYTHM if block.from_step == checkpoint.step else ())}  # which older runs changed there
        changes = [change for change in changes if change[0].split(".")[0] != "finetune"]
    elif block is not None and not block.spans_the_phase:
        free.add("finetune.env_steps")
    changes = [change for change in changes if change[0] not in free]
    if changes:
        shown = "; ".join(f"{key} was {_in_short(old)}, is {_in_short(new)}" for key, old, new in changes[:5])
        advice = _advice(config, checkpoint, {key for key, _, _ in changes})
        raise ConfigError(f"{checkpoint.path}: was written with another config: {shown}; {advice}")


def _in_short(value: Any) -> str:
    """A value as it is written, cut where it is long, as a list of files may be."""
    text = repr(value)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]} ..."


def _advice(config: RunConfig[Any], checkpoint: "Checkpoint", changed: Collection[str]) -> str:
    """What to do instead of continuing a checkpoint with changed settings."""
    from rl_training.runtime.checkpoints.checkpoint import CheckpointStore
    from rl_training.runtime.progress import FIXED_BUDGET, larger_budget

    if BUDGETS.issuperset(changed):
        return FIXED_BUDGET if checkpoint.env_step is None else larger_budget(config)
    offline = [name for name in CheckpointStore(checkpoint.path.parent, 2).names() if not name.startswith("env-")]
    if offline and all(key.startswith("finetune.") or key in RHYTHM for key in changed):
        switch = checkpoint.path.parent / offline[-1]
        return f"begin another online phase with `{suggested('finetune', switch)} --env-steps N --run-dir NEW`"
    return "start a new run"


def changed_settings(old: dict[str, Any], new: dict[str, Any], prefix: str = "") -> list[tuple[str, Any, Any]]:
    """Return every setting in which two plain configs differ: (key path, old, new)."""
    result = []
    for key in sorted({*old, *new}):
        a, b = old.get(key), new.get(key)
        if isinstance(a, dict) and isinstance(b, dict):
            result += changed_settings(a, b, f"{prefix}{key}.")
        elif a != b:
            result.append((f"{prefix}{key}", a, b))
    return result


def finetune_config(checkpoint: "Checkpoint", block: Mapping[str, Any], where: str) -> RunConfig[Any]:
    """Return the config of a finetune that begins at the checkpoint, or a longer one."""
    config = checkpoint.state["config"]
    if get_spec(str(config.get("algo"))).online:
        raise ConfigError(f"{where}: {config['algo']} already learns online; set a larger budget instead")
    begun = {"from_step": checkpoint.step} if checkpoint.env_step is None else config["finetune"]
    online = {**begun, **block}
    if online.get("env_id") == config.get("env_id"):
        online["env_id"] = None  # the run's own, whether named or not
    return make_config({**config, "early_stopping": None, "finetune": online}, where)
