"""Managed algorithms: construct, learn, evaluate, predict, save, load; the run directory is managed for you."""

import signal
import tempfile
import warnings
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Self, Unpack

import numpy as np
from numpy.typing import NDArray

from rl_training.analysis.history import History
from rl_training.api.data_report import data_report, load_like_training
from rl_training.api.evaluating.report import EvaluationReport, evaluation_report
from rl_training.api.history import MetricsSource, metrics_of
from rl_training.api.inputs import RowsLike
from rl_training.api.policy import Policy, RenderOptions
from rl_training.config.blocks import dataset_parts
from rl_training.config.loading import make_config
from rl_training.config.run import RunConfig
from rl_training.data.dataset_loaders import load_dataset
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.envs.given import EnvGiven, env_settings
from rl_training.envs.rendering import Rendering
from rl_training.errors import CheckpointError, ConfigError, StoppedBySignal
from rl_training.experiment.manager import ExperimentManager, check_replaceable, find_checkpoint, locate
from rl_training.experiment.registry import get_spec
from rl_training.experiment.same_config import finetune_config
from rl_training.remote.runs import local_run
from rl_training.runtime.callbacks import CallbackLike, as_callbacks
from rl_training.runtime.checkpoints.checkpoint import Checkpoint, CheckpointStore
from rl_training.runtime.checkpoints.member import member_of
from rl_training.runtime.checkpoints.replay_store import export_checkpoint
from rl_training.runtime.population import Combination
from rl_training.runtime.progress import Reporter
from rl_training.storage import storage_error

DatasetLike = TransitionDataset | str | Path | Mapping[str, Any] | Sequence[str | Path | Mapping[str, Any]] | Any
"""A dataset, files (a path, a folder, a glob, a list), a config's dataset block or a list of them, arrays, or a DataFrame."""


class ManagedAlgorithm:
    """One algorithm, from data to policy.

    Args:
        env_id: environment to evaluate in and to make recipes from: an id of Gymnasium, a function that makes one, or one
            made by `gymnasium.make`; None when training from data alone. `env_kwargs`, `max_episode_steps` and
            `env_wrappers` are settings of the run.
        dataset: a TransitionDataset, arrays by name, a DataFrame, a file, a folder of episode files, a glob or a list of
            these, a recipe such as `{"kind": "random", "size": 50_000}`, or a list of blocks as in a config.
        columns: the column map of a table, such as `{"observations": "T*", "actions": ["Q1"], "reward": "-abs(T1 - TSP1)"}`.
        seed: seed of the run; `seeds` trains a population, `sweep={"expectile": [0.7, 0.9]}` one for each value.
        device: auto, cpu, cuda or cuda:N.
        run_dir: where config, metrics and checkpoints go; a temporary directory by default.
        algo_kwargs: settings of the algorithm and of the run (`eval_interval`, ...), by their config names.
    """

    algo: ClassVar[str]

    def __init__(
        self,
        env_id: EnvGiven | None = None,
        *,
        dataset: DatasetLike | None = None,
        columns: Mapping[str, Any] | None = None,
        seed: int = 0,
        seeds: Sequence[int] | None = None,
        device: str = "auto",
        run_dir: str | Path | None = None,
        reporter: Reporter | None = None,
        **algo_kwargs: Any,
    ) -> None:
        if dataset is not None and not get_spec(self.algo).takes_data:
            raise ConfigError(f"{type(self).__name__} learns online, in the environment, and takes no dataset")
        run_keys = set(RunConfig.model_fields) - {"algo", "algo_kwargs"}
        settings = {key: algo_kwargs.pop(key) for key in list(algo_kwargs) if key in run_keys}
        self._dataset, setting = _dataset_and_setting(dataset, columns)
        algo_kwargs |= setting
        self.config: RunConfig[Any] = make_config(
            {
                "algo": self.algo,
                **env_settings(env_id),
                "seed": seed,
                "seeds": seeds,
                "device": device,
                **settings,
                "algo_kwargs": algo_kwargs,
            },
            type(self).__name__,
        )
        if run_dir is not None and not str(run_dir):
            raise ConfigError("run_dir is empty; pass a path, or None for a temporary directory")
        self._run_dir = local_run(run_dir, new=True) if run_dir is not None else None
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._reporter = reporter
        self._policy: Policy | None = None
        self._start: Checkpoint | None = None
        self._metrics: MetricsSource | None = None
        self._predictions = 0
        self._told: set[str] = set()

    @property
    def run_dir(self) -> Path:
        """The directory of the run; a temporary one is created if none was passed."""
        if self._run_dir is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="rl-training-")
            self._run_dir = Path(self._temporary.name)
        return self._run_dir

    @property
    def policy(self) -> Policy:
        """The trained policy."""
        if self._policy is None:
            raise ConfigError("there is no policy yet: call learn() or load() first")
        return self._policy

    @property
    def num_timesteps(self) -> int:
        """Steps taken so far in the unit of `total_timesteps`: gradient steps offline, environment steps online."""
        return self._start.position if self._start else 0

    def learn(
        self, total_timesteps: int, callback: CallbackLike | Sequence[CallbackLike] | None = None, **settings: Any
    ) -> Self:
        """Train until `total_timesteps` steps have been taken in total; called again, or after `load`, it continues.

        A `callback` is a Callback, a function `f(step, rows)` that gets all metric rows and may return False to stop, or a
        list of both. Ctrl-C saves and raises KeyboardInterrupt; `learn` called again continues. Settings such as
        `eval_interval` are those of the run, which must not change while it goes on, and are refused here.
        """
        for name, value in settings.items():
            if name not in {*RunConfig.model_fields, *type(self.config.algo_kwargs).model_fields}:
                raise TypeError(f"learn() got an unexpected keyword argument {name!r}")
            made = f"{type(self).__name__}(..., {name}={value!r}).learn({total_timesteps})"
            raise ConfigError(f"learn() takes total_timesteps and callback; {name} is set where the run is made: {made}")
        if self.config.finetune is not None:
            raise ConfigError("this run is in its online phase: continue with finetune(env_steps)")
        config = make_config({**self.config.record(), "total_timesteps": total_timesteps}, type(self).__name__)
        return self._train(config, callback)

    def finetune(
        self,
        env_steps: int,
        callback: CallbackLike | Sequence[CallbackLike] | None = None,
        *,
        env_id: EnvGiven | None = None,
        **settings: Any,
    ) -> Self:
        """Continue in the environment until `env_steps` steps have been taken there; called again, it continues.

        `env_id` names the environment where the run had none, or another one of the same sizes; the policy keeps the bounds
        it was trained with. `settings` are those of the config's `finetune` block: replay, prior_ratio, learning_starts,
        `algo_kwargs={"alpha": {"to": 0.5}}` (knobs that change online), and `eval_interval`, `eval_episodes`, `log_interval`
        and `checkpoint_interval`, if they change from here on.
        """
        if self._start is None:
            raise ConfigError("there is nothing to continue from: call learn() or load() first")
        block = {**settings, "env_steps": env_steps, **({} if env_id is None else env_settings(env_id))}
        return self._train(finetune_config(self._start, block, type(self).__name__), callback)

    def _train(self, config: RunConfig[Any], callback: CallbackLike | Sequence[CallbackLike] | None) -> Self:
        callbacks = as_callbacks(callback)
        manager = ExperimentManager(config, self.run_dir)
        try:
            manager.train(
                resume=self._start is not None,
                overwrite=self._start is None and self._temporary is not None,
                checkpoint=self._start,
                callbacks=callbacks,
                dataset=self._dataset,
                reporter=self._reporter,
            )
        except StoppedBySignal as stop:
            if stop.signal_number != signal.SIGINT:
                raise
            raise KeyboardInterrupt(str(stop)) from None  # what Ctrl-C is everywhere else: `except Exception` lets it pass
        finally:  # also after an interruption: `learn` continues from what was saved
            store = CheckpointStore(self.run_dir / "checkpoints", 2)
            if manager.started:
                self.config = config
            if manager.started and store.names():
                self._start = store.load(fall_back=True)
                self._policy = Policy.from_checkpoint(self._start, device=self.config.device)
                self._metrics = metrics_of(self._start)
        return self

    @property
    def history(self) -> History:
        """The metrics of the run up to here, as columns: `history["step"]`, `history["train/critic_loss"]`, ...

        Rows have `member` and `seed`; see `History` for rows without a metric. Empty before training and for a checkpoint
        outside a run directory.
        """
        return History() if self._metrics is None else self._metrics.history()

    @property
    def combinations(self) -> list[Combination]:
        """The result of each combination of a sweep over its seeds at the last evaluation; empty without a sweep."""
        return self.policy.combinations

    def evaluate(self, episodes: int = 10, seed: int | None = None, *, env_id: EnvGiven | None = None) -> EvaluationReport:
        """Return `return_mean`, `return_std`, `returns`, `lengths` and the members' rows over seeded episodes.

        `env_id` names the environment where the run had none, or another one of the same sizes.
        """
        evaluation = self.policy.evaluate(episodes, seed, env_id)
        return evaluation_report(evaluation, self.policy.members)

    def render(self, path: str | Path, **options: Unpack[RenderOptions]) -> Rendering:
        """Write a .gif or .mp4 of the policy at work, by default one episode of the best member; see `Policy.render`."""
        return self.policy.render(path, **options)

    def evaluate_on(self, dataset: DatasetLike, **options: Any) -> dict[str, Any]:
        """Return for each member what its policy does on logged data, beside references, and what is doubtful about it.

        A file is read as the data of the training was, with its column map, unless `options` of `load_dataset` say otherwise.
        `docs/data.md` lists the figures.
        """
        return data_report(self.policy, load_like_training(self.policy, dataset, **options))

    def ope(self, dataset: DatasetLike | None = None, **options: Any) -> dict[str, Any]:
        """Return what each member would earn by logged data, with intervals and verdicts; by default by that of the run.

        `options` are those of `evaluate_off_policy` (`gamma`, `rows`, `steps`, `seed`, `device`) and of `load_dataset`.
        """
        from rl_training.api.off_policy import evaluate_off_policy

        checkpoint = self.policy.checkpoint
        if checkpoint is None:
            raise ConfigError("this policy does not come from a checkpoint; train or load one first")
        given = self._dataset if dataset is None else dataset
        return evaluate_off_policy([checkpoint], given, **options).plain()

    def predict(
        self, observation: RowsLike, deterministic: bool = True, member: int | None = None
    ) -> tuple[NDArray[np.float32], None]:
        """Return (action, None) for one observation or a batch; for a population, the best member's by default.

        Where the data had names, an observation may be a mapping `{"T1": 60.0, ...}`, a list of them, or a DataFrame. Of each
        column that is outside of what the policy learned from a warning tells once.
        """
        self._warn_of_unfamiliar(observation)
        self._predictions += 1
        action = self.policy.predict(observation, deterministic=deterministic, member=member, step=self._predictions - 1)
        return action, None

    def _warn_of_unfamiliar(self, observation: RowsLike) -> None:
        for name, line in self.policy.unfamiliar(observation).items():
            if name not in self._told:  # a controller asks many times a second
                self._told.add(name)
                warnings.warn(f"{line}; check the unit and the order", stacklevel=3)

    def value(self, observation: RowsLike, *, member: int | None = None) -> np.float64 | NDArray[np.float64]:
        """Return V(s) of one observation or a batch, in the units of the logged rewards; see `Policy.value`."""
        return self.policy.value(observation, member=member)

    def q(self, observation: RowsLike, action: RowsLike, *, member: int | None = None) -> np.float64 | NDArray[np.float64]:
        """Return Q(s, a) of real actions, in the units of the logged rewards; see `Policy.q`."""
        return self.policy.q(observation, action, member=member)

    def save(self, path: str | Path, *, overwrite: bool = False) -> Path:
        """Write one self-contained checkpoint directory; with `overwrite` it replaces one that `save` wrote earlier.

        The new one is complete on disk before the old one goes. Nothing but such a checkpoint is ever replaced.
        """
        checkpoint = self.policy.checkpoint
        target = Path(path)
        if checkpoint is None:
            raise ConfigError("this policy does not come from a checkpoint, so there is nothing to save")
        if target.exists() or target.is_symlink():
            if not overwrite:
                raise ConfigError(f"{target}: already exists; choose another path, or replace it with overwrite=True")
            check_replaceable(target)
        try:
            target.parent.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error(target, 0, error) from error
        return export_checkpoint(target, checkpoint)

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        device: str = "auto",
        dataset: DatasetLike | None = None,
        columns: Mapping[str, Any] | None = None,
        run_dir: str | Path | None = None,
        member: int | None = None,
        checkpoint: str | int = "latest",
    ) -> Self:
        """Return the trained algorithm of a run directory or a checkpoint, or one member of it; `learn` continues exactly.

        For a run directory `checkpoint` selects `latest`, `best` or the one of a step.
        """
        path = local_run(path)
        found = find_checkpoint(path, str(checkpoint))
        metrics = metrics_of(found, member)
        if member is not None:
            found = member_of(found, member)
        policy = Policy.from_checkpoint(found, device=device)
        if policy.config.algo != cls.algo:
            raise CheckpointError(f"{path}: holds a policy of {policy.config.algo}, not of {cls.algo}")
        model = cls.__new__(cls)
        record = policy.config.record()
        model._dataset, setting = _dataset_and_setting(dataset, columns)
        kwargs = {**record["algo_kwargs"], **setting}
        model.config = make_config({**record, "device": device, "algo_kwargs": kwargs}, str(path))
        model._temporary = model._reporter = None
        model._policy, model._start, model._predictions = policy, found, 0
        model._metrics, model._told = metrics, set()
        home = locate(path)[0] if member is None else None
        model._run_dir = local_run(run_dir, new=True) if run_dir is not None else home
        return model

    def __repr__(self) -> str:
        seeds = list(self.config.member_seeds)
        return f"{type(self).__name__}(env_id={self.config.final_env_id!r}, seeds={seeds}, steps={self.num_timesteps})"


def _dataset_and_setting(
    dataset: DatasetLike | None, columns: Mapping[str, Any] | None = None
) -> tuple[TransitionDataset | None, dict[str, Any]]:
    """The dataset in memory, or the config's `dataset` setting, for the arguments passed."""
    if dataset is None or isinstance(dataset, TransitionDataset):
        if columns is not None:
            raise ConfigError("columns names the columns of a table; pass a dataset that has some: files or a DataFrame")
        return dataset, {}
    block = isinstance(dataset, Mapping) and not {"kind", "path", "run"}.isdisjoint(dataset)
    if isinstance(dataset, str | Path | Sequence) or block:
        parts = dataset_parts(dataset)
        return None, {"dataset": parts if columns is None else [{**part, "columns": columns} for part in parts]}
    return load_dataset(dataset, columns=columns), {}
