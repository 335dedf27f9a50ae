"""How fast an environment is here: alone, on all cores, and in rounds of workers. `python -m benchmarks.environments ID`."""

import multiprocessing
import sys
import time

import gymnasium
import numpy as np

from rl_training.envs.environments import EnvBatch
from rl_training.envs.workers.batch import WorkerBatch
from rl_training.envs.workers.count import available_cores

SECONDS, ROUNDS = 4.0, 400
SHAPES = [(1, 0), (8, 0), (8, 4), (8, 8), (32, 8), (32, 11), (32, 15)]  # copies and workers


def steps_per_second(env_id: str, seed: int = 0) -> float:
    """Return the steps per second of one environment with random actions, resets included, without this package."""
    env = gymnasium.make(env_id, disable_env_checker=True)
    env.action_space.seed(seed)
    actions = [env.action_space.sample() for _ in range(1000)]
    steps, begin = 0, time.perf_counter()
    while time.perf_counter() - begin < SECONDS:
        env.reset(seed=seed + steps)
        for action in actions:
            _, _, terminated, truncated, _ = env.step(action)
            steps += 1
            if terminated or truncated:
                break
    return steps / (time.perf_counter() - begin)


def round_seconds(batch: EnvBatch, copies: int) -> float:
    """Return the mean time in which all copies take a step."""
    with batch:
        taken = 0.0
        for number in range(ROUNDS):
            if not batch.running.all():
                batch.reset_all(range(copies))
            actions = np.zeros((copies, batch.spaces.action_dim), dtype=np.float32)
            begin = time.perf_counter()
            batch.step(actions)
            taken += time.perf_counter() - begin if number >= ROUNDS // 10 else 0.0
    return taken / (ROUNDS - ROUNDS // 10)


def main(env_id: str) -> None:
    """Print the figures."""
    cores = available_cores()
    print(f"alone: {steps_per_second(env_id):,.0f} steps/s")
    with multiprocessing.get_context("spawn").Pool(cores) as pool:
        together = sum(pool.starmap(steps_per_second, [(env_id, 10**6 * core) for core in range(cores)]))
    print(f"{cores} processes: {together:,.0f} steps/s")
    for copies, workers in SHAPES:
        if workers >= cores:
            continue
        kinds = {"asleep": False, "looking": True} if workers else {"in process": False}
        for kind, looks in kinds.items():
            batch = WorkerBatch(env_id, copies, workers, 60.0, looks=looks) if workers else EnvBatch(env_id, copies)
            print(
                f"{copies} copies, {workers} workers, {kind}: {1e6 * round_seconds(batch, copies):.0f} us a round", flush=True
            )


if __name__ == "__main__":
    main(sys.argv[1])
