"""Estimates with their defaults for plants of other shapes, units and scales, beside what the policies really earn there.

python -m benchmarks.off_policy.plants tank cart boiler compressor --runs runs

Six policies are trained on 60 episodes and judged by 60 others, as `rl-training train` and `rl-training ope` would do it; the
truth is simulated. Of the plants, two are here (a tank with tariffs and a cart on a rail), five in `benchmarks.plants`.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from benchmarks.off_policy.measures import opinion
from benchmarks.off_policy.tasks import GAMMA, write
from benchmarks.plants import PLANTS, Draw, Plant, Vector, make_log
from rl_training.api.off_policy import evaluate_off_policy
from rl_training.api.policy import Policy
from rl_training.config.loading import load_config
from rl_training.data.store.directory import save_dataset
from rl_training.experiment.manager import ExperimentManager

POLICIES = (("bc", 2000), ("iql", 6000), ("td3_bc", 3000), ("awac", 1500), ("bc", 100), ("td3_bc", 300))
EPISODES, LONG = 200, 500  # of the truth

# A hot-water tank: a row every five minutes from midnight on, three tariffs, taps that are opened by chance.


def _price(step: float, level: float) -> float:
    hour = step % 288 / 12.0
    return (12.0 if hour < 6 or hour >= 22 else 45.0 if 17 <= hour < 20 else 28.0) + 4.0 * level


def _tank_observe(state: Vector) -> Vector:
    top, bottom, step, draw, level = state
    clock = 2.0 * np.pi * step / 288.0
    return np.array([top, bottom, np.sin(clock), np.cos(clock), draw, _price(step, level)])


def _tank_advance(state: Vector, action: Vector, draw: Draw) -> tuple[Vector, float, bool]:
    top, bottom, step, tap, level = state
    heat, mixing = action[0] * 300.0 / (4.186 * 90.0), 0.02 + 0.15 * action[1]
    reward = -_price(step, level) * action[0] / 12.0 - 0.35 * max(0.0, 45.0 - top) * tap
    bottom += 0.8 * heat - 0.08 * tap * (bottom - 12.0) - 0.002 * (bottom - 20.0)
    top, bottom = (
        top + mixing * (bottom - top) - 0.025 * tap * (top - bottom) - 0.003 * (top - 20.0) + 0.2 * heat,
        bottom + 0.6 * mixing * (top - bottom),
    )
    hour = (step + 1) % 288 / 12.0
    chance = 0.03 + 0.25 * (6.5 < hour < 8.5) + 0.2 * (18.5 < hour < 22)
    if tap > 0.0:
        tap = tap if draw.random() < 0.5 else 0.0
    elif draw.random() < chance:
        tap = draw.uniform(2.0, 9.0)
    level = draw.uniform(0.0, 1.0) if draw.random() < 0.01 else level
    top, bottom = min(top + draw.normal(0, 0.05), 92.0), min(bottom + draw.normal(0, 0.05), 92.0)
    return np.array([top, bottom, step + 1, tap, level]), float(reward), False


def _tank_control(seen: Vector, draw: Draw) -> Vector:
    heat = 3.0 if seen[0] < 52.0 or (seen[5] < 17.0 and seen[0] < 62.0) else 0.3
    return np.array([heat + draw.normal(0, 0.5), 0.3 + 0.5 * (seen[0] < 50.0) + draw.normal(0, 0.1)])


# A cart on a rail: millimetres and volts, dry friction, a current that nobody measures; beyond the rail an episode ends.


def _cart_advance(state: Vector, action: Vector, draw: Draw) -> tuple[Vector, float, bool]:
    place, speed, goal, current = state
    for _ in range(5):
        current += 0.3 * (action[0] / 12.0 - 0.0004 * speed - current)
        pull = 9000.0 * current
        friction = 900.0 * np.sign(speed) if abs(speed) > 5.0 else np.clip(pull, -900.0, 900.0)
        speed += 0.01 * (pull - friction - 1.2 * speed)
        place += 0.01 * speed
    place, speed = place + draw.normal(0, 0.3), speed + draw.normal(0, 2.0)
    lost = bool(abs(place) > 900.0)
    reward = -abs(place - goal) / 100.0 - 0.01 * action[0] ** 2 - 60.0 * lost
    goal = draw.uniform(-500.0, 500.0) if draw.random() < 0.01 else goal
    return np.array([place, speed, goal, current]), float(reward), lost


OWN = {
    "tank": Plant(
        ("top_c", "bottom_c", "day_sin", "day_cos", "tap_lpm", "price_ct"),
        ("heat_kw", "pump"),
        (0.0, 0.0),
        (4.0, 1.0),
        lambda draw: np.array([draw.uniform(45, 65), draw.uniform(25, 45), 0.0, 0.0, draw.uniform(0, 1)]),
        _tank_observe,
        _tank_advance,
        _tank_control,
        288,
    ),
    "cart": Plant(
        ("x_mm", "v_mms", "goal_mm"),
        ("u_v",),
        (-12.0,),
        (12.0,),
        lambda draw: np.array([draw.uniform(-400, 400), 0.0, draw.uniform(-500, 500), 0.0]),
        lambda state: state[:3].copy(),
        _cart_advance,
        lambda seen, draw: np.array([0.012 * (seen[2] - seen[0]) - 0.006 * seen[1] + draw.normal(0, 1.5)]),
        150,
    ),
}
ALL = {**OWN, **PLANTS}


def logs(name: str, where: Path) -> tuple[Path, Path]:
    """Make the log that policies are trained on and the one they are judged by, unless they are there."""
    found = where / "early", where / "late"
    for seed, path in enumerate(found):
        if not path.exists():
            save_dataset(make_log(name, seed, own=ALL[name]).dataset(), path)
    return found


def train(algo: str, steps: int, log: Path, where: Path) -> Path:
    """Train a policy, unless it is there; return its run directory."""
    run = where / f"{algo}-{steps}"
    if not (run / "checkpoints" / f"step-{steps:09d}").exists():
        ExperimentManager(load_config(algo, [f"total_timesteps={steps}"], {}, [str(log)]), run).train(resume=True)
    return run


def truth(plant: Plant, policy: Policy) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return the discounted value and the return of simulated episodes, the same starts for every policy."""
    draw = np.random.default_rng(7)
    states, running = [plant.start(draw) for _ in range(EPISODES)], np.ones(EPISODES, dtype=bool)
    values, returns = np.zeros((2, EPISODES))
    for step in range(LONG):
        seen = np.array([plant.observe(state) for state in states], dtype=np.float32)
        actions = np.clip(policy.predict(seen), plant.low, plant.high)
        for number in np.flatnonzero(running):
            states[number], reward, ended = plant.advance(states[number], actions[number], draw)
            values[number] += GAMMA**step * reward
            returns[number] += reward * (step < plant.length)
            running[number] = not ended
    return values, returns


def measure(name: str, where: Path) -> dict[str, Any]:
    """Return the truth and the opinions of every policy of a plant."""
    early, late = logs(name, where)
    runs = [train(algo, steps, early, where) for algo, steps in POLICIES]
    report = evaluate_off_policy(runs, str(late), gamma=GAMMA, device="cpu").plain()
    found: dict[str, Any] = {}
    for run, policy in zip(runs, report["policies"], strict=True):
        values, returns = truth(ALL[name], Policy.load(run, device="cpu"))
        said = {key: opinion(policy, key) for key in ("fqe", "model", "joint")}
        kept = ("value", "interval", "verdict", "reasons")
        found[run.name] = {
            **{"value": float(values.mean()), "value_error": float(values.std(ddof=1) / np.sqrt(EPISODES))},
            **{"return": float(returns.mean()), "said": {key: {k: one[k] for k in kept} for key, one in said.items()}},
        }
    return {"logged": {key: report["logged"][key] for key in ("value", "interval", "return_mean")}, "policies": found}


def main() -> None:
    """Measure the plants that are named, and print what was found."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("plants", nargs="+", choices=list(ALL), metavar="PLANT")
    parser.add_argument("--runs", type=Path, required=True)
    given = parser.parse_args()
    torch.set_num_threads(1)
    for name in given.plants:
        found = measure(name, given.runs / name)
        write("plants", name, found)
        for run, one in found["policies"].items():
            said = [f"{key} {o['value']:.4g} {o['verdict']}" for key, o in one["said"].items()]
            print(f"{name} {run}: {one['value']:.4g} +- {one['value_error']:.2g} | {' | '.join(said)}", flush=True)


if __name__ == "__main__":
    main()
