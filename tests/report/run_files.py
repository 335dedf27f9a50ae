"""Run directories as training writes them, made of given numbers."""

import json

from rl_training.analysis.logged_run import RETURN
from rl_training.config.loading import make_config
from rl_training.registry import get_spec

DATASET = {
    "episodes": 4,
    "fingerprint": "f" * 64,
    "length_mean": 10.0,
    "return_max": -1.0,
    "return_mean": -5.0,
    "return_min": -9.0,
    "return_std": 2.0,
    "reward_mean": -0.5,
    "rows": 40,
    "true_ends": 0,
}


def write_run(folder, rows, *, status="finished", message=None, timings=(), dataset=DATASET, warned=(), play=None, **changes):
    """Write a run with these rows of metrics, and the warnings `warned`; `changes` are keys of its config."""
    folder.mkdir(parents=True, exist_ok=True)
    seeds = list(dict.fromkeys(row["seed"] for row in rows)) or [0]
    config = {"algo": "iql", "env_id": "Pendulum-v1", "seeds": seeds, "total_timesteps": 100, **changes}
    data = {"dataset": "random"} if get_spec(config["algo"]).takes_data else {}
    config["algo_kwargs"] = {**data, **config.get("algo_kwargs", {})}
    (folder / "config.yaml").write_text(make_config(config, "x").to_yaml())
    versions = {"rl_training": "0.1.0", "torch": "2.13.0"}
    record = {"status": status, "message": message, "versions": versions, "hardware": {"cuda": None}, "dataset": dataset}
    record["random_play"] = play
    (folder / "run.json").write_text(json.dumps({**record, "phases": [], "warnings": list(warned)}))
    for name, lines in (("metrics", rows), ("timings", timings)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def rows_of(metric, values, seeds=(0, 1), every=10, **more):
    """Rows of a metric: `values` has a list for each step, with a value for each seed; None is no row."""
    return [
        {"step": every * (1 + i), "member": member, "seed": seeds[member], metric: value, **more}
        for i, column in enumerate(values)
        for member, value in enumerate(column)
        if value is not None
    ]


def timing_rows(last=100, seconds=20.0):
    """Two rows of timings, halfway and at the end."""
    return [
        {"step": step, "seconds": seconds * step / last, "seconds/gradient_steps": 0.75 * seconds * step / last,
         "seconds/evaluation": 0.25 * seconds * step / last}
        for step in (last // 2, last)
    ]  # fmt: skip


def population(folder, members=3, points=12, status="finished"):
    """A population whose returns rise from -100 by its own slope for each member, with two losses."""
    seeds = tuple(range(members))
    rows = rows_of(RETURN, [[-100.0 + i * (5 + m) for m in seeds] for i in range(points)], seeds)
    rows += rows_of("eval/length_mean", [[10.0] * members] * points, seeds)
    rows += rows_of("train/critic_loss", [[1.0 / (1 + i + m) for m in seeds] for i in range(points)], seeds)
    rows += rows_of("train/q_mean", [[-float(i)] * members for i in range(points)], seeds)
    timings = timing_rows(10 * points)
    return write_run(folder, rows, timings=timings, status=status, algo_kwargs={"reward": {"scale": 0.1, "normalize": False}})


def finetune(folder):
    """60 gradient steps that reach a mean return of -20, then 60 environment steps that fall to -50 and come back to -10."""
    rows = rows_of(RETURN, [[-90.0, -80.0], [-60.0, -50.0], [-25.0, -15.0]], every=20)
    online = [(10, -45.0), (20, -50.0), (30, -30.0), (40, -20.0), (50, -12.0), (60, -10.0)]
    for env_step, value in online:
        for member in (0, 1):
            counters = {"env_step": env_step, "step": 60 + env_step, "member": member, "seed": member}
            rows.append({**counters, RETURN: value + 2 * member - 1, "data/episode_return": value - 5})
    return write_run(folder, rows, timings=timing_rows(60), total_timesteps=60, finetune={"env_steps": 60})


def without_environment(folder):
    """A run on data alone, with figures on held-out rows."""
    rows = []
    for i, distance in enumerate((0.3, 0.2, 0.1)):
        for member in (0, 1):
            figures = {"action_distance": distance + 0.01 * member, "constant_distance": 0.4, "cloning_distance": 0.05}
            figures |= {"at_bound": 0.01 * i, "at_bound_data": 0.02, "spread": 0.2, "spread_data": 0.25}
            figures["spread_cloning"] = 0.22
            figures |= {"q_policy": -3.0 - i, "reached_lowest": -9.0, "reached_highest": -2.0, "critic_loss": 1.0 / (1 + i)}
            named = {f"validation/{name}": value for name, value in figures.items()}
            rows.append({"step": 10 * (1 + i), "member": member, "seed": member, "train/critic_loss": 0.9 / (1 + i), **named})
    return write_run(folder, rows, env_id=None, algo_kwargs={"dataset": "plant.csv"})
