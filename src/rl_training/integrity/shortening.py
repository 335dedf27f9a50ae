"""A short version of a config, which does everything the config does, only less often."""

from collections.abc import Mapping
from typing import Any

from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.experiment.same_config import changed_settings

SAVES = 24  # checkpoints of a short run, among which it is cut
_ROWS = 5_000  # of a recipe's data
_EPISODES = 2


def shortened(config: RunConfig[Any], steps: int, mode: str | None = None) -> tuple[RunConfig[Any], list[str]]:
    """Return the config with a budget of at most `steps`, and every setting that was changed for it, in words.

    Networks, batches, members, files of data and the engine stay, so that what is proved of it holds for the config. `mode`
    is the engine mode that a run of the whole budget has; `auto` could choose another for a short one.
    """
    values = config.record()
    steps = min(steps, config.total_timesteps)
    lengths = {"eval_interval": steps // 4, "log_interval": steps // SAVES, "checkpoint_interval": steps // SAVES}
    lengths["eval_episodes"] = _EPISODES
    _shorten(values, {**lengths, "total_timesteps": steps})
    values |= {"max_epochs": None, "max_updates": None, "run_name": None, "log": []}
    values["engine"] = mode if mode and values["engine"] == "auto" else values["engine"]
    kwargs = values["algo_kwargs"]
    for part in kwargs.get("dataset", ()):
        part["size"] = min(part["size"], _ROWS)
    _start_early(kwargs, kwargs, steps)
    if "offline_pretrain_updates" in kwargs:
        kwargs["offline_pretrain_updates"] = min(kwargs["offline_pretrain_updates"], steps // 4)
    if (block := values["finetune"]) is not None:
        _shorten(block, {**lengths, "env_steps": steps})
        block["from_step"] = None
        if block["replay"] != "fresh":  # which may have to wait for the end of an episode
            _start_early(block, kwargs, steps)
    short = make_config(values, "the short version of the config")
    changes = changed_settings(config.record(), short.record())
    return short, [f"{key} {_shown(then)} -> {_shown(now)}" for key, then, now in changes]


def _shorten(block: dict[str, Any], longest: Mapping[str, int]) -> None:
    """Lower what is set and larger."""
    for name, most in longest.items():
        if block[name] is not None:
            block[name] = min(block[name], max(most, 1))


def _start_early(block: dict[str, Any], kwargs: dict[str, Any], steps: int) -> None:
    """Let updates begin within the short budget, once there are rows for steps of `n_step`."""
    if "learning_starts" in block:
        block["learning_starts"] = min(block["learning_starts"], max(steps // 8, kwargs.get("n_step", 1)))


def _shown(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], dict):  # parts of a dataset
        return f"{sum(part['size'] for part in value):,} rows"
    return f"{value:,}" if isinstance(value, int) else str(value)
