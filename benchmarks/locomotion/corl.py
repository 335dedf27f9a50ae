"""CORL's own code on our sets: its single-file algorithms are run as they are, with stand-ins for what they import.

python -m benchmarks.locomotion.corl --source CORL --data data --parallel 8

CORL is a checkout of its repository, of which nothing is stored here. Its files expect D4RL, the old Gym, pyrallis and
Weights & Biases; what stands in for them hands over our rows, and episodes of Gymnasium under the old interface. On a GPU
the training steps are recorded as CUDA graphs (`recorded.py`).
"""

import importlib.util
import sys
import time
import types
from dataclasses import fields
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch
import yaml

from benchmarks.locomotion.data import split
from benchmarks.locomotion.offline import EPISODES
from benchmarks.locomotion.peers import Job, rows_of, run_jobs
from benchmarks.locomotion.recorded import Rate, Recorder, count_on_device

TRAINERS = {"iql": ("ImplicitQLearning", "train"), "td3_bc": ("TD3_BC", "train"), "cql": ("ContinuousCQL", "train")}
ENSEMBLES = {"sac_n": ("SACN", "update"), "edac": ("EDAC", "update")}
"""Classes with the name of their training step."""
EPOCH = 1000  # updates
COLUMNS = ("observations", "actions", "rewards", "next_observations", "terminals")


class OldEnv:
    """A Gymnasium environment under Gym's old interface; keeps the returns of its episodes."""

    def __init__(self, env_id: str) -> None:
        self._env = gymnasium.make(env_id)
        self.observation_space, self.action_space = self._env.observation_space, self._env.action_space
        self._seed: int | None = None
        self.returns: list[float] = []

    def seed(self, seed: int) -> None:
        """Seed the next reset, and begin to count episodes anew."""
        self._seed, self.returns = seed, []

    def reset(self) -> Any:
        """Return the first observation."""
        observation, _ = self._env.reset(seed=self._seed)
        self._seed = None
        self.returns.append(0.0)
        return observation

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        """Return the four values of old."""
        observation, reward, terminated, truncated, info = self._env.step(action)
        self.returns[-1] += float(reward)
        return observation, float(reward), terminated or truncated, info

    def get_normalized_score(self, score: float) -> float:
        """Return the score as it is; ours is normalised afterwards."""
        return score / 100.0


class TransformObservation:
    """An environment whose observations are changed by a function."""

    def __init__(self, env: Any, change: Any) -> None:
        self._env, self._change = env, change

    def __getattr__(self, name: str) -> Any:
        return getattr(self._env, name)

    def reset(self) -> Any:
        """Return the first observation, changed."""
        return self._change(self._env.reset())

    def step(self, action: Any) -> tuple[Any, float, bool, dict[str, Any]]:
        """Return a step with its observation changed."""
        observation, reward, done, info = self._env.step(action)
        return self._change(observation), reward, done, info


def stand_in(env: OldEnv, rows: dict[str, Any]) -> None:
    """Put modules in place of those that CORL imports."""

    def module(name: str, **content: Any) -> types.ModuleType:
        made = types.ModuleType(name)
        vars(made).update(content)
        sys.modules[name] = made
        return made

    module("d4rl", qlearning_dataset=lambda _: rows)
    module("pyrallis", wrap=lambda: lambda function: function)
    run = types.SimpleNamespace(save=lambda: None)
    calls = dict.fromkeys(("init", "log", "mark_preempting", "finish"), lambda *_, **__: None)
    module("wandb", run=run, **calls)
    wrappers = types.SimpleNamespace(TransformObservation=TransformObservation)
    module("gym", Env=object, make=lambda _: env, wrappers=wrappers)


def loaded(path: Path) -> Any:
    """Return a file of CORL as a module."""
    spec = importlib.util.spec_from_file_location(f"corl_{path.stem}", path)
    if spec is None or spec.loader is None:
        raise FileNotFoundError(path)
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module


def settings(source: Path, job: Job, kind: Any, given: dict[str, Any]) -> Any:
    """Return CORL's own config for a set, with our seed and budget."""
    task, quality = split(job.name)
    text = (source / "configs" / "offline" / job.algo / task / f"{quality.replace('-', '_')}_v2.yaml").read_text()
    values = {**yaml.safe_load(text), **given}
    kinds = {field.name: field.type for field in fields(kind)}
    return kind(**{key: float(value) if kinds[key] is float else value for key, value in values.items()})


def train(job: Job) -> None:
    """Train one seed and write down what its last policy reaches."""
    source = job.source or Path("CORL")
    dataset, env = job.dataset(), OldEnv(job.env_id)
    rows = rows_of(dataset, COLUMNS)
    stand_in(env, rows)
    begin = time.perf_counter()
    module = loaded(source / "algorithms" / "offline" / f"{job.algo}.py")
    if job.algo == "rebrac":
        rebrac(source, job, module, with_next_actions(rows, dataset.timeouts))
    else:
        in_torch(source, job, module, len(dataset))
    job.done("CORL", dataset, env.returns, time.perf_counter() - begin)


def in_torch(source: Path, job: Job, module: Any, size: int) -> None:
    """Train one of CORL's algorithms in PyTorch."""
    kind, step = (TRAINERS | ENSEMBLES)[job.algo]
    if job.device != "cpu":
        record_steps(getattr(module, kind), step)
    if job.algo in ENSEMBLES:
        given = in_epochs(job)
    else:
        given = {"seed": job.seed, "max_timesteps": job.steps, "eval_freq": job.steps, "n_episodes": EPISODES}
    module.train(settings(source, job, module.TrainConfig, {**given, "device": job.device, "buffer_size": size}))


def record_steps(kind: Any, step: str) -> None:
    """Make trainers of a class record their step once it is warm, and replay it from then on."""
    own, recorders = getattr(kind, step), {}

    def train(self: Any, batch: list[torch.Tensor]) -> dict[str, float]:
        if id(self) not in recorders:
            recorders[id(self)] = recorder(self, own, batch[0].device)
        count = getattr(self, "total_it", 0)
        recorders[id(self)].train(batch, count)
        self.total_it = count + 1
        return {}

    setattr(kind, step, train)


def recorder(trainer: Any, own: Any, device: torch.device) -> Recorder:
    """Return what records the step of a trainer; its temperature, which CORL keeps on the CPU, goes to the device."""
    parts = vars(trainer)
    for part in parts.values():
        if isinstance(part, torch.nn.Module):
            part.to(device)
    count_on_device(part for part in parts.values() if isinstance(part, torch.optim.Optimizer))
    rate = None
    if "actor_lr_schedule" in parts:
        rate = Rate(trainer.actor_optimizer, trainer.actor_lr_schedule, device)
        trainer.actor_lr_schedule = types.SimpleNamespace(step=lambda: None)
    return Recorder(lambda batch, _: own(trainer, batch), getattr(trainer, "policy_freq", 1), device, rate)


def rebrac(source: Path, job: Job, module: Any, rows: dict[str, Any]) -> None:
    """Train ReBRAC, which is JAX, on the device that JAX finds; reads its rows one by one if it is let."""
    module.qlearning_dataset = lambda _: rows
    module.jax.tree_map = module.jax.tree_util.tree_map  # gone from JAX since
    module.main(settings(source, job, module.Config, in_epochs(job)))


def in_epochs(job: Job) -> dict[str, Any]:
    """Return our seed and budget as the files that train in epochs name them."""
    epochs = job.steps // EPOCH
    given = {"num_epochs": epochs, "num_updates_on_epoch": EPOCH, "eval_every": epochs, "eval_episodes": EPISODES}
    return {**given, "train_seed": job.seed, "eval_seed": job.seed}


def with_next_actions(rows: dict[str, Any], timeouts: Any) -> dict[str, Any]:
    """Return the rows that have a next action, which those before a time limit have not."""
    kept = ~timeouts.astype(bool)
    kept[-1] = False
    following = {**rows, "next_actions": np.roll(rows["actions"], -1, axis=0)}
    return {name: values[kept] for name, values in following.items()}


if __name__ == "__main__":
    run_jobs(__doc__, "corl", train, needs_source=True, algos=(*TRAINERS, "rebrac"), if_named=tuple(ENSEMBLES))
