"""d3rlpy on our sets, with the values of its own reproductions of D4RL; for a Python that has d3rlpy.

python -m benchmarks.locomotion.d3rlpy_peer --data data --parallel 8

d3rlpy wants an older Gymnasium than ours; installed without its dependencies it works with the newer one too, of which it
uses nothing but types here. scikit-learn, which another of its algorithms uses, may be missing.
"""

import argparse
import importlib.machinery
import importlib.util
import json
import multiprocessing
import sys
import time
from pathlib import Path
from typing import Any

import gymnasium
import numpy as np
import torch

from benchmarks.locomotion.behaviour import TASKS
from benchmarks.locomotion.data import make, split
from benchmarks.locomotion.offline import EPISODES, RESULTS, SETS, STEPS
from rl_training.data.dataset_loaders import load_dataset

ALGOS = ("iql", "td3_bc", "cql")
COLUMNS = ("observations", "actions", "rewards", "terminals", "timeouts")


def library() -> Any:
    """Return d3rlpy, with something in place of scikit-learn if that is missing."""
    if importlib.util.find_spec("sklearn") is None:
        for name in ("sklearn", "sklearn.neighbors"):
            sys.modules[name] = importlib.util.module_from_spec(importlib.machinery.ModuleSpec(name, None))
        sys.modules["sklearn.neighbors"].NearestNeighbors = lambda **_: None  # type: ignore[attr-defined]
    return importlib.import_module("d3rlpy")


def algorithm(d3rlpy: Any, algo: str, steps: int, device: str) -> Any:
    """Return an algorithm with the values of d3rlpy's `reproductions/offline`."""
    algos, preprocessing = d3rlpy.algos, d3rlpy.preprocessing
    if algo == "iql":
        schedule = d3rlpy.optimizers.lr_schedulers.CosineAnnealingLRFactory(T_max=steps)
        return algos.IQLConfig(
            actor_learning_rate=3e-4,
            critic_learning_rate=3e-4,
            actor_optim_factory=d3rlpy.optimizers.AdamFactory(lr_scheduler_factory=schedule),
            batch_size=256,
            weight_temp=3.0,
            max_weight=100.0,
            expectile=0.7,
            reward_scaler=preprocessing.ReturnBasedRewardScaler(multiplier=1000.0),
        ).create(device=device)
    if algo == "td3_bc":
        return algos.TD3PlusBCConfig(
            actor_learning_rate=3e-4,
            critic_learning_rate=3e-4,
            batch_size=256,
            target_smoothing_sigma=0.2,
            target_smoothing_clip=0.5,
            alpha=2.5,
            update_actor_interval=2,
            observation_scaler=preprocessing.StandardObservationScaler(),
        ).create(device=device)
    encoder = d3rlpy.models.encoders.VectorEncoderFactory([256, 256, 256])
    return algos.CQLConfig(
        actor_learning_rate=1e-4,
        critic_learning_rate=3e-4,
        temp_learning_rate=1e-4,
        actor_encoder_factory=encoder,
        critic_encoder_factory=encoder,
        batch_size=256,
        n_action_samples=10,
        alpha_learning_rate=0.0,
        conservative_weight=5.0,
    ).create(device=device)


def evaluate(algo: Any, env_id: str, seed: int) -> list[float]:
    """Return the returns of the greedy policy, all episodes side by side."""
    envs = [gymnasium.make(env_id) for _ in range(EPISODES)]
    seen = np.stack([env.reset(seed=1_000_000 + 100 * seed + number)[0] for number, env in enumerate(envs)])
    returns, running = np.zeros(EPISODES), np.ones(EPISODES, dtype=bool)
    while running.any():
        actions = algo.predict(seen.astype(np.float32))
        for number in np.flatnonzero(running):
            seen[number], reward, terminated, truncated, _ = envs[number].step(actions[number])
            returns[number] += float(reward)
            running[number] = not (terminated or truncated)
    return [float(value) for value in returns]


def job(data: Path, target: Path, algo: str, name: str, seed: int, steps: int, device: str) -> None:
    """Train one seed and write down what its last policy reaches."""
    torch.set_num_threads(1)
    d3rlpy = library()
    d3rlpy.seed(seed)
    dataset = load_dataset(make(name, data))
    rows = {column: np.array(getattr(dataset, column), dtype=np.float32) for column in COLUMNS}
    episodes = d3rlpy.dataset.MDPDataset(**rows, action_space=d3rlpy.ActionSpace.CONTINUOUS)
    begin = time.perf_counter()
    learner = algorithm(d3rlpy, algo, steps, device)
    quiet = d3rlpy.logging.NoopAdapterFactory()
    learner.fit(episodes, n_steps=steps, n_steps_per_epoch=steps, logger_adapter=quiet, show_progress=False)
    returns = evaluate(learner, TASKS[split(name)[0]], seed)
    found: dict[str, Any] = {
        "library": f"d3rlpy {d3rlpy.__version__}",
        "algo": algo,
        "set": name,
        "fingerprint": dataset.fingerprint,
    }
    found |= {"steps": steps, "seed": seed, "episode_returns": returns, "return": float(np.mean(returns))}
    found |= {"seconds": round(time.perf_counter() - begin, 1), "device": device, "torch": torch.__version__}
    target.write_text(json.dumps(found, indent=1) + "\n")


def main() -> None:
    """Do the jobs that have no result yet, several at a time."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True)
    parser.add_argument("--results", type=Path, default=RESULTS / "d3rlpy")
    parser.add_argument("--algos", nargs="+", default=ALGOS, choices=ALGOS)
    parser.add_argument("--sets", nargs="+", default=SETS, choices=SETS)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--parallel", type=int, default=1)
    given = parser.parse_args()
    given.results.mkdir(parents=True, exist_ok=True)
    jobs = []
    for algo, name, seed in [(a, s, n) for a in given.algos for s in given.sets for n in range(given.seeds)]:
        target = given.results / f"{algo}-{name}-{seed}.json"
        if not target.exists():
            jobs.append((given.data, target, algo, name, seed, given.steps, given.device))
    with multiprocessing.get_context("spawn").Pool(given.parallel, maxtasksperchild=1) as pool:
        pool.starmap(job, jobs, chunksize=1)


if __name__ == "__main__":
    main()
