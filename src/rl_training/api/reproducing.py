"""Measure what a config reaches, and replicate what was recorded of it: new seeds, the last checkpoint, fixed episodes."""

import shlex
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from math import inf, isfinite
from pathlib import Path
from typing import Any

from rl_training.analysis.bootstrap import interval
from rl_training.analysis.logged_run import LoggedRun
from rl_training.analysis.reproduction import (
    Verdict,
    fewest_seeds,
    new_seeds,
)
from rl_training.api.policy import Policy
from rl_training.config.expectation import (
    FEWEST_SCORES,
    Expectation,
    Expectations,
    expectation_path,
    read_expectations,
    recipe_digest,
    write_expectation,
)
from rl_training.config.loading import load_config, packaged_configs
from rl_training.config.run import RunConfig
from rl_training.envs.imports import import_flags
from rl_training.errors import ConfigError, DivergedError
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.run_record import run_status
from rl_training.registry import REGISTRY, get_spec
from rl_training.report.timing import timing_of
from rl_training.runtime.progress import Reporter

EPISODES, RECORDED_SEEDS = 50, 8
EPISODE_SEED = 0  # every seed gets the same episodes: where they begin matters more than the seed of training
_CHANGES_NO_SCORE = {"device", "env_imports", "env_timeout", "workers", "keep_checkpoints", "run_name", "log"}


@dataclass(frozen=True)
class Replication:
    """What is trained, and what it is compared with."""

    name: str
    case: str
    expectation: Expectation
    config: RunConfig[Any]
    run_dir: Path
    overwrite: bool = False
    finished: str | None = None  # when the run in the directory was; None if there is something to train

    def judge(self, reporter: Reporter | None = None, *, go_on: str | None = None) -> Verdict:
        """Train what is not trained yet, score it and compare it; what the run directory holds of it is continued.

        If the training is interrupted, the message names the command `go_on`.
        """
        known = self.expectation
        train(self.config, self.run_dir, overwrite=self.overwrite, reporter=reporter, go_on=go_on)
        found = scores(self.run_dir, known.episodes, known.episode_seed, device=self.config.device)
        return Verdict(known, self.config.member_seeds, tuple(found))

    def remarks(self) -> list[str]:
        """Return that nothing was trained, if so, and how the run differs from the record: settings, data, versions."""
        record, known = LoggedRun.load(self.run_dir).record, self.expectation
        found = []
        if self.finished is not None:
            found.append(f"nothing was trained now, a run finished {self.finished} is judged again; --overwrite trains anew")
        if recipe_digest(self.name) != known.recipe:
            found.append(f"{self.name} has been changed since it was measured")
        if known.dataset is not None and (record.get("dataset") or {}).get("fingerprint") != known.dataset:
            found.append("the data are not byte for byte those that were measured")
        here = {name: record["versions"].get(name) or self._version(name) for name in known.versions}
        others = [
            f"{name} {then} there, {here[name]} here" for name, then in known.versions.items() if not _same(then, here[name])
        ]
        return [*found, f"versions differ: {'; '.join(others)}"] if others else found

    def _version(self, library: str) -> str:
        """The version of a library that run.json does not name: the one that is installed, if it was trained just now."""
        if self.finished is not None:
            return "unknown"
        try:
            return metadata.version(library)
        except metadata.PackageNotFoundError:
            return "missing"


def plan_replication(
    name: str,
    *,
    dataset: Sequence[str] = (),
    env: str | None = None,
    expect: str | None = None,
    seeds: Sequence[int] | None = None,
    device: str | None = None,
    imports: Sequence[str] = (),
    run_dir: str | Path | None = None,
    overwrite: bool = False,
) -> Replication:
    """Return what would be trained and compared; a ConfigError if it could prove nothing. Nothing is touched yet.

    `expect` names a recorded result. By default that is the name of the dataset's file, the environment, or the only one.
    """
    if name in REGISTRY and not Path(name).is_file():
        raise ConfigError(f"{name}: is an algorithm; name a config, such as {name}/pendulum, or a YAML file")
    load_config(name)  # an unknown name or a faulty file is refused first
    known = read_expectations(name)
    if known is None:
        raise ConfigError(
            f"{name}: what it should reach has not been recorded (no {expectation_path(name).name} beside it); "
            f"`rl-training reproduce {shlex.quote(name)} --record{import_flags(imports)}` records it"
        )
    case = _case(name, known, dataset, env, expect)
    expectation = known.results[case]
    chosen = list(seeds) if seeds is not None else new_seeds(expectation.seeds)
    least = fewest_seeds(len(expectation.seeds))
    if len(chosen) < least:
        raise ConfigError(
            f"--seeds: {len(chosen)} against {len(expectation.seeds)} recorded ones cannot fail, however bad they are: "
            f"the test needs {least} or more"
        )
    recorded_in = load_config(name, expectation.settings).final_env_id
    if env is not None and recorded_in is not None and env != recorded_in:
        raise ConfigError(f"--env {env}: {case} was recorded in {recorded_in}, and returns of two environments prove nothing")
    config = recipe_config(name, expectation.settings, chosen, dataset=dataset, env=env, device=device, imports=imports)
    default = Path("runs") / "reproduce" / run_name(name) / (case if dataset or env else "")
    manager = ExperimentManager(config, run_dir if run_dir is not None else default)
    if not overwrite:
        _refuse_another_run(config, manager.run_dir)
    finished = None if overwrite else _finished(manager.run_dir)
    return Replication(name, case, expectation, config, manager.run_dir, overwrite, finished)


def _case(name: str, known: Expectations, dataset: Sequence[str], env: str | None, expect: str | None) -> str:
    """The name of the recorded result that is meant."""
    config, recorded = load_config(name), ", ".join(known.results) or "nothing yet"
    if get_spec(config.algo).takes_data and not config.algo_kwargs.dataset and not dataset:
        needs = known.needs or "name it by --dataset"
        raise ConfigError(f"{name} needs data: {needs}; `rl-training reproduce {name} --dataset PATH` (recorded: {recorded})")
    asked = expect or (Path(dataset[0]).stem if len(dataset) == 1 else env)
    if asked is None and len(known.results) == 1:
        return next(iter(known.results))
    if asked not in known.results:
        raise ConfigError(
            f"{name}: no result is recorded for {asked or 'it'}; choose by --expect NAME (recorded: {recorded})"
        )
    return asked


def run_name(name: str) -> str:
    """Return what the runs of a config are called: its packaged name, or its file without folder and suffix."""
    return name if name in packaged_configs() else Path(name).stem


def result_name(config: RunConfig[Any], dataset: Sequence[str]) -> str:
    """Return what a result is called: by the data of a config that leaves them open, otherwise by the environment."""
    return Path(dataset[0]).stem if dataset else str(config.final_env_id)


def recipe_config(
    name: str,
    settings: Sequence[str],
    seeds: Sequence[int],
    *,
    dataset: Sequence[str] = (),
    env: str | None = None,
    device: str | None = None,
    imports: Sequence[str] = (),
) -> RunConfig[Any]:
    """Return the config of a population that is scored in its environment."""
    given = {"env_id": env, "device": device, "env_imports": list(imports) or None}
    extra = {"seeds": list(seeds), "log": [], **{key: value for key, value in given.items() if value is not None}}
    config = load_config(name, settings, extra, dataset)
    if config.final_environment is None:
        raise ConfigError(f"{name} has no environment, so nothing says how good it is: pass --env")
    if config.sweep or config.trials:
        raise ConfigError(f"{name} has several settings: what is compared are seeds of one setting")
    return config


def train(
    config: RunConfig[Any],
    run_dir: Path,
    *,
    overwrite: bool = False,
    reporter: Reporter | None = None,
    go_on: str | None = None,
) -> None:
    """Train unless that is done already; a run that was interrupted continues, and one may diverge."""
    if overwrite or run_status(run_dir) != "finished":
        with suppress(DivergedError):
            manager = ExperimentManager(config, run_dir)
            manager.train(resume=not overwrite, overwrite=overwrite, reporter=reporter, go_on=go_on)


def scores(run_dir: Path, episodes: int, episode_seed: int | None, *, device: str = "auto") -> list[float]:
    """Return the score of each member: the mean return of its last checkpoint, -inf if it diverged."""
    if run_status(run_dir) != "finished":  # every member diverged
        return [-inf] * len(ExperimentManager.open(run_dir).config.member_seeds)
    policy = Policy.load(run_dir, device=device)
    means = policy.evaluate(episodes, episode_seed).member_means
    return [-inf if one.status == "diverged" else mean for one, mean in zip(policy.members, means, strict=True)]


def measure(
    name: str,
    *,
    seeds: Sequence[int] | None = None,
    settings: Sequence[str] = (),
    dataset: Sequence[str] = (),
    env: str | None = None,
    case: str | None = None,
    episodes: int | None = None,
    device: str | None = None,
    imports: Sequence[str] = (),
    run_dir: str | Path | None = None,
    overwrite: bool = False,
    replace: bool = False,
    reporter: Reporter | None = None,
    go_on: str | None = None,
    command: str,
) -> Expectation:
    """Train seeds of a config, score them, and keep that beside it as what it should reach; `command` is kept, too.

    What was interrupted continues, and `overwrite` trains anew. A result that is there already stays, but for `replace`.
    """
    chosen = list(range(RECORDED_SEEDS)) if seeds is None else list(seeds)
    if len(chosen) < FEWEST_SCORES:
        raise ConfigError(f"--seeds: {len(chosen)} are too few for a record, which needs {FEWEST_SCORES} or more")
    given = [*settings, *([f"env_id={env}"] if env else [])]
    config = recipe_config(name, given, chosen, dataset=dataset, device=device, imports=imports)
    found = case or result_name(config, dataset)
    known = read_expectations(name)
    default = Path("runs") / "recorded" / run_name(name) / (found if dataset or env else "")
    target = ExperimentManager(config, run_dir if run_dir is not None else default).run_dir
    begun = run_status(target) not in (None, "finished")
    if known is not None and found in known.results and not (replace or begun):
        raise ConfigError(f"{expectation_path(name)}: has a result for {found}; pass --overwrite to measure it anew")
    if not overwrite:
        _refuse_another_run(config, target)
    train(config, target, overwrite=overwrite, reporter=reporter, go_on=go_on)
    return record(name, found, target, settings=given, episodes=episodes or EPISODES, command=command)


def record(
    name: str, case: str, run_dir: Path, *, settings: Sequence[str] = (), episodes: int = EPISODES, command: str
) -> Expectation:
    """Score a finished run and keep that beside the config, as what it should reach; `settings` are its changes."""
    run = LoggedRun.load(run_dir)
    if run.record["status"] != "finished":
        raise ConfigError(f"{run_dir}: has not finished, so nothing can be recorded of it ({run.record['message']})")
    expectation = expectation_of(
        name,
        scores(run_dir, episodes, EPISODE_SEED, device=run.config.device),
        settings=settings,
        episodes=episodes,
        episode_seed=EPISODE_SEED,
        seeds=run.config.member_seeds,
        step=run.record["step"],
        env_step=run.record["env_step"],
        minutes=float(f"{timing_of(run).seconds / 60:.2g}"),
        device=(run.config.device != "cpu" and run.record["hardware"]["cuda"]) or "cpu",
        versions=run.record["versions"],
        dataset=(run.record["dataset"] or {}).get("fingerprint"),
        command=command,
    )
    write_expectation(name, case, expectation)
    return expectation


def expectation_of(name: str, found: Sequence[float], **measured: Any) -> Expectation:
    """Return scores as what a config should reach, with their statistics; `measured` are the other fields."""
    known = [score if isfinite(score) else None for score in found]
    iqm, *bounds = (None,) if None in known else interval(found)
    statistics = {"scores": known, "iqm": iqm, "interval": bounds or None}
    return Expectation.checked({**measured, **statistics, "recipe": recipe_digest(name)}, f"{name}: ")


def _finished(run_dir: Path) -> str | None:
    """When the run in a directory was finished; None if it was not."""
    if run_status(run_dir) != "finished":
        return None
    written = (run_dir / "run.json").stat().st_mtime
    return datetime.fromtimestamp(written, UTC).strftime("%Y-%m-%d %H:%M UTC")


def _same(then: str, now: str) -> bool:
    """Whether two versions are the same; one without a build, such as 2.11.0, is the same as 2.11.0+cpu."""
    return then == now or ("+" not in then and now.startswith(f"{then}+"))


def _refuse_another_run(config: RunConfig[Any], run_dir: Path) -> None:
    """Refuse a directory that holds a run of other settings."""
    if run_status(run_dir) is None:
        return
    there, here = ExperimentManager.open(run_dir).config.record(), config.record()
    other = [key for key in here if there.get(key) != here[key] and key not in _CHANGES_NO_SCORE]
    if other:
        raise ConfigError(
            f"{run_dir}: holds a run with other settings ({', '.join(other)}); pass --overwrite or another --run-dir"
        )
