"""Online learning in units that nobody chose for it: `python -m benchmarks.online_scale [ENV ...]`.

Trains with default settings in five plants (pascals, kelvins, revolutions per minute, cubic metres per second), or in the
environments that are given, once as they are and once with what `auto` finds in random steps; prints what random actions,
the plant's own controller and the policies reach as a Markdown table.
"""

import argparse

import gymnasium
import numpy as np
import torch

import rl_training
from benchmarks.plants import make_log, register_plants
from rl_training.config.blocks import RewardConfig
from rl_training.envs.environments import infer_env_spaces
from rl_training.envs.scale.ordinary_scale import ordinary_scale, scale_note
from rl_training.envs.scale.random_steps import random_steps
from rl_training.registry import get_spec

RAW = {"normalize_observations": False, "reward": {"normalize": False}}
SETTINGS = {"as it is": RAW, "auto": {}}
EPISODES = 10


def what_auto_does(env_id: str) -> str:
    """Return what is scaled, in the words of a run."""
    steps = random_steps(env_id, 0, 60.0)
    names = infer_env_spaces(env_id).observation_names or [str(column) for column in range(steps.observations.shape[1])]
    note = scale_note(ordinary_scale(steps, "auto", RewardConfig()), names, len(steps.rewards))
    return "nothing" if note is None else note.partition(": ")[2]


def random_return(env_id: str) -> float:
    """Return the mean return of uniformly random actions."""
    env, returns = gymnasium.make(env_id), []
    env.action_space.seed(0)
    for seed in range(EPISODES):
        env.reset(seed=seed)
        total, ended = 0.0, False
        while not ended:
            _, reward, terminated, truncated, _ = env.step(env.action_space.sample())
            total, ended = total + float(reward), terminated or truncated
        returns.append(total)
    return float(np.mean(returns))


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("envs", nargs="*", help="ids of Gymnasium; the five plants by default")
    parser.add_argument("--algos", default="sac,td3")
    parser.add_argument("--steps", type=int, default=6_000)
    parser.add_argument("--seeds", type=int, default=2)
    chosen = parser.parse_args()
    torch.set_num_threads(1)
    plants = {env_id: name for name, env_id in register_plants().items()}
    print(f"| | random | controller | {' | '.join(SETTINGS)} | what `auto` does |\n|{'---|' * (len(SETTINGS) + 4)}")
    for env_id in chosen.envs or plants:
        controller = f"{make_log(plants[env_id]).dataset().episode_returns().mean():.4g}" if env_id in plants else "-"
        for algo in chosen.algos.split(","):
            cells = [f"{random_return(env_id):.4g}", controller]
            for settings in SETTINGS.values():
                common = {"hidden_sizes": [64, 64], "seeds": list(range(chosen.seeds)), "eval_interval": chosen.steps}
                model = getattr(rl_training, get_spec(algo).name)(env_id, **common, **settings)
                cells.append(f"{model.learn(chosen.steps).evaluate(EPISODES)['return_mean']:.4g}")
            print(f"| `{algo}` {plants.get(env_id, env_id)} | {' | '.join(cells)} | {what_auto_does(env_id)} |", flush=True)


if __name__ == "__main__":
    main()
