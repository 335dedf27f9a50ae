"""Rules that scale rewards, compared by what the policies reach: `python -m benchmarks.reward_rules [FILE=ENV ...]`.

Trains on data alone with default settings, on plant logs with exploration and on files that are given with an environment
(`replay.npz=Hopper-v5`), and prints the return in the environment of each rule as a Markdown table.
"""

import argparse
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
import torch

import rl_training
from benchmarks.plants import make_log, register_plants
from rl_training import TransitionDataset, load_dataset
from rl_training.registry import get_spec

PLANT_LOGS = {"heaters": 0.0, "heaters, exploring": 0.25, "compressor, exploring": 0.2, "room, exploring": 0.2}
PLANT_LOGS |= {"boiler, exploring": 0.2}


def rules(data: TransitionDataset) -> dict[str, dict[str, Any]]:
    """Return the reward settings of each rule; `mean 0` leaves data with true ends unshifted."""
    rewards = data.rewards.astype(np.float64)
    scale = 1.0 / float(rewards.std())
    shift = 0.0 if data.terminals.any() else -float(rewards.mean()) * scale
    return {
        "none": {"normalize": False},
        "returns span 1000": {"normalize": True},
        "auto": {"normalize": "auto"},
        "deviation 1": {"scale": scale},
        "deviation 1, mean 0": {"scale": scale, "shift": shift},
        "deviation 10, mean 0": {"scale": 10.0 * scale, "shift": 10.0 * shift},
    }


def sources(files: list[str]) -> Iterator[tuple[str, TransitionDataset, str]]:
    """Yield name, data with the recorded range as bounds, and environment."""
    ids = register_plants()
    for name, exploration in PLANT_LOGS.items():
        plant = name.partition(",")[0]
        yield name, make_log(plant, exploration=exploration).dataset(), ids[plant]
    for entry in files:
        path, _, env_id = entry.rpartition("=")
        yield path, replace(load_dataset(path), action_low=None, action_high=None), env_id


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("files", nargs="*", help="FILE=ENV")
    parser.add_argument("--algos", default="iql,xql,td3_bc,cql")
    parser.add_argument("--steps", type=int, default=5000)
    parser.add_argument("--seeds", type=int, default=1)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    for number, (name, data, env_id) in enumerate(sources(chosen.files)):
        settings = rules(data)
        if number == 0:
            print(f"| | data | {' | '.join(settings)} |\n|{'---|' * (len(settings) + 2)}")
        for algo in chosen.algos.split(","):
            model = getattr(rl_training, get_spec(algo).name)
            common = {"dataset": data, "seeds": list(range(chosen.seeds)), "eval_interval": chosen.steps}
            reached = [
                model(**common, reward=reward).learn(chosen.steps).evaluate(10, env_id=env_id)["return_mean"]
                for reward in settings.values()
            ]
            cells = [f"{value:.4g}" for value in (float(data.episode_returns().mean()), *reached)]
            print(f"| `{algo}` {name} | {' | '.join(cells)} |", flush=True)


if __name__ == "__main__":
    main()
