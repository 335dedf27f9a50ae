"""Data from behaviour: policies of runs, scripted and random controllers, alone or mixed by whole episodes."""

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

import numpy as np

from rl_training.api.policy import Policy, whole_number
from rl_training.config.environment import EnvSource
from rl_training.data.offline_mixers import mix_datasets
from rl_training.data.store.directory import DatasetWriter, free_target, save_dataset
from rl_training.envs.collecting.behaviours import LANES, Behaviour, PolicyBehaviour, RandomBehaviour, ScriptedBehaviour
from rl_training.envs.collecting.mixture import Mixture, Source
from rl_training.envs.controllers import scripted_controller
from rl_training.envs.environments import infer_env_spaces
from rl_training.envs.given import EnvGiven, given_source
from rl_training.errors import ConfigError
from rl_training.experiment.manager import find_checkpoint, locate
from rl_training.models.threads import one_thread
from rl_training.runtime.checkpoints.member import member_of

RANDOM, SCRIPTED = CONTROLLERS = ("random", "scripted")


@dataclass(frozen=True)
class CollectOptions:
    """How data is collected: where, with how much noise, and which episodes."""

    env_id: EnvGiven | None = None  # an id, or anything that makes one; by default that in which the runs ended
    env_kwargs: Mapping[str, Any] = field(default_factory=dict)  # its arguments, beside those of the runs
    noise: float = 0.0  # of policies and controllers, in units of half the action range
    stochastic: bool = False  # policies act by samples, not by their mean action
    shares: Sequence[float] | None = None  # of the rows, one per source; by default equal
    seed: int = 0
    member: int | None = None  # of populations; by default the best
    which: str = "latest"  # checkpoint of run directories
    device: str = "cpu"
    envs: int = 16  # episodes side by side; the rows do not depend on it
    workers: int | Literal["auto"] = "auto"  # processes that step them; the rows do not depend on it either
    env_timeout: float = 60.0  # seconds that a reset or step may take in a worker process

    def __post_init__(self) -> None:
        whole_number("envs", self.envs, 1, LANES)
        if self.workers != "auto":
            whole_number("workers", self.workers, 0, LANES)
        whole_number("seed", self.seed, 0, 2**63 - 1)
        if not 0.0 <= self.noise < np.inf:
            raise ConfigError(f"noise = {self.noise!r} is not legal: must be at least 0, in units of half the action range")


@dataclass(frozen=True)
class Collection:
    """What was written, and what each source contributed."""

    path: Path
    env: EnvSource
    sources: Sequence[Source]

    def report(self) -> dict[str, Any]:
        """Return plain values: rows, episodes and returns of the whole ones, of all sources together and of each."""
        each = [{"source": one.name, "share": one.share, **_figures([one])} for one in self.sources]
        return {"path": str(self.path), "env_id": str(self.env), **_figures(self.sources), "sources": each}


def _figures(sources: Sequence[Source]) -> dict[str, Any]:
    """Rows and episodes, and the returns of those that the end of the data did not cut."""
    returns = [value for source in sources for value in source.returns]
    counts = {"rows": sum(one.rows for one in sources), "episodes": sum(one.episodes for one in sources)}
    mean, std = (float(np.mean(returns)), float(np.std(returns))) if returns else (None, None)
    return {**counts, "whole_episodes": len(returns), "return_mean": mean, "return_std": std}


def collect_dataset(
    sources: str | os.PathLike[str] | Sequence[str | os.PathLike[str]],
    out: str | os.PathLike[str],
    rows: int,
    *,
    overwrite: bool = False,
    progress: Callable[[int], None] = lambda _: None,
    **options: Any,
) -> Collection:
    """Write `rows` transitions of the sources as a dataset: a directory, or an npz file if the name ends in .npz.

    A source is `random`, `scripted`, or a run directory or checkpoint, whose policy acts. Several are mixed by whole
    episodes. `options` are those of `CollectOptions`. The rows are a function of sources, environment, noise and seed, and
    a longer collection begins with the shorter one. Nothing appears at `out` until all of it is on disk.
    """
    names = _source_names(sources)
    chosen, rows = CollectOptions(**options), whole_number("rows", rows, 1, 2**40)
    target = free_target(out, overwrite=overwrite)
    env, found = _found_sources(names, chosen)
    mixture = Mixture(env, found, chosen.seed, chosen.envs, chosen.workers, chosen.env_timeout, progress)
    with one_thread():  # batches of a few rows gain nothing from more, and a product may round otherwise with them
        _write(mixture, rows, target, overwrite=overwrite)
    return Collection(target, env, found)


def _source_names(sources: Any) -> list[str]:
    """The names of one source or of several; a ConfigError for anything else, such as a model."""
    several = sources if isinstance(sources, Sequence) and not isinstance(sources, str) else [sources]
    for source in several:
        if not isinstance(source, str | os.PathLike):
            raise ConfigError(
                f"{type(source).__name__} is not a source to collect from: name `random`, `scripted`, or the path of a run "
                "or checkpoint (of a model, its `run_dir`, or where it was saved)"
            )
    return [os.fspath(source) for source in several]


def _write(mixture: Mixture, rows: int, target: Path, *, overwrite: bool) -> None:
    """Write a directory part by part; an npz file, which is written at once, must fit in memory."""
    if target.suffix == ".npz":
        whole = mix_datasets(list(mixture.parts(rows)))
        save_dataset(replace(whole, origin=mixture.origin), target, overwrite=overwrite)
        return
    with DatasetWriter(target, overwrite=overwrite) as writer:
        for part in mixture.parts(rows):
            writer.append(part)
        writer.describe(mixture.origin)


def _found_sources(names: Sequence[str], options: CollectOptions) -> tuple[EnvSource, list[Source]]:
    """The environment, and what the names of sources mean in it."""
    _refuse_idle_options(names, options)
    policies = {name: _solo_policy(name, options) for name in dict.fromkeys(names) if name not in CONTROLLERS}
    env = _environment(options, [policy for policy, _ in policies.values()])
    spaces, noise = infer_env_spaces(env), f" with noise {options.noise:g}" if options.noise else ""
    found: list[tuple[str, Behaviour]] = []
    for name in names:
        if name == RANDOM:
            found.append((name, RandomBehaviour(spaces)))
        elif name == SCRIPTED:
            found.append((name + noise, ScriptedBehaviour(scripted_controller(env.env_id), spaces, options.noise)))
        else:
            policy, label = policies[name]
            acting: dict[str, Any] = {"noise": options.noise, "stochastic": options.stochastic}
            behaviour = PolicyBehaviour(policy.learner, policy.spaces, policy.transforms, **acting)
            found.append((label + noise, behaviour))
    shares = _normalised(options.shares, len(names))
    return env, [Source(*entry, share) for entry, share in zip(found, shares, strict=True)]


def _refuse_idle_options(names: Sequence[str], options: CollectOptions) -> None:
    """Refuse options that would have no effect, and sources that are missing."""
    runs = [name for name in names if name not in CONTROLLERS]
    if not names:
        raise ConfigError("there is nothing to collect from: name a run, a checkpoint, `random` or `scripted`")
    if options.noise and set(names) == {RANDOM}:
        raise ConfigError("noise has no effect on random actions; leave it out")
    if not runs and (options.member is not None or options.stochastic):
        raise ConfigError("`member` and `stochastic` are about policies, and no run is among the sources")
    if options.which != "latest" and all(locate(run)[1] is not None for run in runs):
        raise ConfigError(f"checkpoint {options.which!r} is chosen from a run directory, and none is among the sources")


def _solo_policy(run: str, options: CollectOptions) -> tuple[Policy, str]:
    """The policy of one member of a run, and its name."""
    checkpoint = find_checkpoint(run, options.which if locate(run)[1] is None else "latest")
    label = run if checkpoint.path.name == Path(run).name else f"{run} at {checkpoint.path.name}"
    if len(checkpoint.state["seeds"]) > 1 or options.member is not None:
        member = options.member
        if member is None:
            member = Policy.from_checkpoint(checkpoint, device="cpu").best_member()
        checkpoint, label = member_of(checkpoint, member), f"{label}, member {member}"
    return Policy.from_checkpoint(checkpoint, device=options.device), label + ", sampled" * options.stochastic


def _environment(options: CollectOptions, policies: Sequence[Policy]) -> EnvSource:
    """The environment that was chosen, or the one in which all runs ended, with the arguments that were given."""
    env = _common_environment(policies) if options.env_id is None else given_source(options.env_id)
    return replace(env, kwargs={**env.kwargs, **options.env_kwargs})


def _common_environment(policies: Sequence[Policy]) -> EnvSource:
    """The environment in which all runs ended."""
    found = [env for policy in policies if (env := policy.config.final_environment) is not None]
    if not found or len(found) < len(policies):
        raise ConfigError("no source has an environment: name one with --env ID (in Python env_id)")
    settings = [(env.env_id, env.kwargs, env.max_episode_steps, env.wrappers) for env in found]
    if any(one != settings[0] for one in settings):
        raise ConfigError("the runs ended in different environments: name one with --env ID (in Python env_id)")
    return found[0]


def _normalised(shares: Sequence[float] | None, count: int) -> list[float]:
    """Shares that sum to 1; equal ones by default."""
    values = np.ones(count) if shares is None else np.asarray(shares, dtype=np.float64)
    if values.shape != (count,) or not (values > 0.0).all() or not np.isfinite(values).all():
        raise ConfigError(f"shares must be {count} numbers above 0, one for each source, got {list(shares or ())}")
    return [float(value) for value in values / values.sum()]
