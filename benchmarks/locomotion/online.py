"""Offline, then online: 100,000 gradient steps on a replay, then 100,000 environment steps; and the dip at the switch.

python -m benchmarks.locomotion.online --data data --set device=cuda

RLPD has no offline phase: it begins online, with the replay as prior data. Half of every batch is prior data in all of them.
"""

import argparse
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.locomotion.jobs import arguments_of, do_jobs
from benchmarks.locomotion.offline import command, origin, trained
from rl_training.analysis.logged_run import Curve
from rl_training.registry import REGISTRY
from rl_training.report.timing import timing_of

ALGOS = ("cal_ql", "iql", "rlpd", "awac", "td3_bc")
SETS = ("hopper-medium-replay", "halfcheetah-medium-replay")
STEPS, SEEDS, INTERVAL = 100_000, 5, 5_000


def job(algo: str, name: str, data: Path, runs: Path, settings: list[str]) -> dict[str, Any]:
    """Train a population in both phases and return its curves."""
    own = [f"eval_interval={INTERVAL}", "checkpoint_interval=50000"]
    if not REGISTRY[algo].online:
        own.append(f"finetune={{env_steps: {STEPS}, replay: mixed, prior_ratio: 0.5}}")
    given = {"total_timesteps": STEPS, "seeds": list(range(SEEDS))}
    run = trained(algo, name, data, runs / f"online-{algo}-{name}", [*own, *settings], given)
    curve = run.curve()
    return {
        **origin(algo, name, data, run),
        "switch": run.switch,
        "positions": curve.positions.tolist(),
        "returns": np.round(curve.values, 3).tolist(),  # by position and seed
        **dip(curve, run.switch),
        "seconds": timing_of(run).seconds,
        "command": command("online", algo, name, settings),
    }


def dip(curve: Curve, switch: int | None) -> dict[str, list[float]]:
    """Return of each seed: the return at the switch, if there is one, the lowest in the first half online, and the last."""
    if switch is None:
        return {"last": curve.last().tolist()}
    before = curve.values[curve.positions <= switch][-1]
    online = (curve.positions > switch) & (curve.positions <= (switch + curve.positions[-1]) / 2)
    lowest = curve.values[online].min(axis=0)
    return {"before": before.tolist(), "lowest": lowest.tolist(), "last": curve.last().tolist()}


def work(algo: str, name: str, given: argparse.Namespace) -> tuple[dict[str, Any], str]:
    """Do a job; return its result and a line about it."""
    found = job(algo, name, given.data, given.runs, given.settings)
    return found, f"{algo} on {name}: {np.mean(found['last']):.0f}, {found['seconds']:.0f} s"


def main() -> None:
    """Do the jobs that have no result yet."""
    do_jobs("online", arguments_of(__doc__, "online", ALGOS, SETS).parse_args(), work)


if __name__ == "__main__":
    main()
