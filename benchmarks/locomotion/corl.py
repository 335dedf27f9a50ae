"""CORL's own code on our sets: its single-file algorithms are run as they are, with stand-ins for what they import.

python -m benchmarks.locomotion.corl --source CORL --data data --parallel 8

CORL is a checkout of its repository, of which nothing is stored here. Its files expect D4RL, the old Gym, pyrallis and
Weights & Biases; what stands in for them hands over our rows, and episodes of Gymnasium under the old interface.
"""

import argparse
import importlib.util
import json
import multiprocessing
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

from benchmarks.locomotion.behaviour import TASKS
from benchmarks.locomotion.data import make, split
from benchmarks.locomotion.offline import EPISODES, RESULTS, SETS, STEPS
from rl_training.data.dataset_loaders import load_dataset

ALGOS = ("iql", "td3_bc", "cql")
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
    module("wandb", init=lambda **_: None, log=lambda *_, **__: None, run=run)
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


def settings(source: Path, algo: str, name: str, module: Any, given: dict[str, Any]) -> Any:
    """Return CORL's own config for a set, with our seed, budget and device."""
    task, kind = split(name)
    text = (source / "configs" / "offline" / algo / task / f"{kind.replace('-', '_')}_v2.yaml").read_text()
    values = {**yaml.safe_load(text), **given}
    kinds = {field.name: field.type for field in fields(module.TrainConfig)}
    return module.TrainConfig(**{key: float(value) if kinds[key] is float else value for key, value in values.items()})


def job(source: Path, data: Path, target: Path, algo: str, name: str, seed: int, steps: int, device: str) -> None:
    """Train one seed and write down what its last policy reaches."""
    torch.set_num_threads(1)
    dataset = load_dataset(make(name, data))
    rows = {column: np.array(getattr(dataset, column), dtype=np.float32) for column in COLUMNS}
    env = OldEnv(TASKS[split(name)[0]])
    stand_in(env, rows)
    module = loaded(source / "algorithms" / "offline" / f"{algo}.py")
    given = {"seed": seed, "max_timesteps": steps, "eval_freq": steps, "n_episodes": EPISODES, "device": device}
    config = settings(source, algo, name, module, {**given, "buffer_size": len(rows["rewards"])})
    begin = time.perf_counter()
    module.train(config)
    found = {"library": "CORL", "algo": algo, "set": name, "fingerprint": dataset.fingerprint, "steps": steps, "seed": seed}
    found |= {"episode_returns": env.returns, "return": float(np.mean(env.returns))}
    found |= {"seconds": round(time.perf_counter() - begin, 1), "device": device, "torch": torch.__version__}
    target.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    """Do the jobs that have no result yet, several at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--source", type=Path, required=True, help="a checkout of CORL")
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=RESULTS / "corl")
    parser.add_argument("--algos", nargs="+", default=ALGOS, choices=ALGOS)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--parallel", type=int, default=1)
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    jobs = []
    for algo, name, seed in [(a, s, n) for a in given.algos for s in given.sets for n in range(given.seeds)]:
        target = given.results / f"{algo}-{name}-{seed}.json"
        if not target.exists():
            jobs.append((given.source, given.data, target, algo, name, seed, given.steps, given.device))
    with multiprocessing.get_context("spawn").Pool(given.parallel, maxtasksperchild=1) as pool:
        pool.starmap(job, jobs, chunksize=1)


if __name__ == "__main__":
    main()
