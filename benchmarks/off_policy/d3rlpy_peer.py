"""Fitted Q evaluation of d3rlpy beside ours: the same rows, policies, network widths, batches and steps, one thread.

python -m benchmarks.off_policy.d3rlpy_peer pendulum --runs runs --python VENV/bin/python

VENV has d3rlpy 2.8.1, which wants an older Gymnasium than ours (`pip install torch d3rlpy==2.8.1`). Both are timed in turns
in one run, fitting alone: ours all policies at once, d3rlpy one after the other. Since others use the machine, seconds of
the processor count. With its own learning rate d3rlpy is far from done after our number of steps, which says little of its
evaluation; so it is also run with our rate, and with `--trained-out` also with more steps. Its own way to gather a batch,
transition by transition, is part of its time; it is also timed on batches that are taken from arrays.
"""

import json
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.off_policy.measures import correlation
from benchmarks.off_policy.tasks import GAMMA, arguments, checkpoints, data_of, read, write
from rl_training.api.data_report import dataset_of
from rl_training.api.off_policy import DEFAULT_ROWS
from rl_training.api.policy import Policy
from rl_training.ope.episodes import Behaviour, Episodes
from rl_training.ope.fqe import FittedQ, FQEOptions

ROUNDS = 3
TRAINED_OUT = 20_000  # steps: 200 updates of d3rlpy's target


def rows_of(episodes: Episodes, policies: dict[str, Policy], path: Path) -> None:
    """Write the rows and what the policies do in them, in real units."""
    columns = {name: getattr(episodes, name) for name in ("observations", "actions", "next_observations")}
    columns |= {name: getattr(episodes, name).astype(np.float32) for name in ("rewards", "terminals")}
    following = [policy.predict(episodes.next_observations) for policy in policies.values()]
    first = [policy.predict(episodes.observations[episodes.starts]) for policy in policies.values()]
    np.savez(path, **columns, starts=episodes.starts, following=np.stack(following), first=np.stack(first), gamma=GAMMA)


def policies_and_rows(task: str, runs: Path, data: Path | None) -> tuple[dict[str, Policy], Episodes]:
    """Return the twelve policies by name, and the rows that they are judged by."""
    policies = {name: Policy.load(path, device="cpu") for name, path in checkpoints(task, runs)}
    dataset, _ = dataset_of(next(iter(policies.values())), data_of(task, data))
    if dataset is None:
        raise SystemExit(f"{task} has no data")
    return policies, Episodes.of(dataset, DEFAULT_ROWS)


def ours(episodes: Episodes, behaviours: Sequence[Behaviour], seed: int) -> dict[str, Any]:
    """Return our values of all policies, and the time of the fit."""
    options = FQEOptions(seed=seed)
    begin, begin_cpu = time.perf_counter(), time.process_time()
    fitted = FittedQ(episodes, behaviours, GAMMA, options, torch.device("cpu")).fit()
    seconds = {"seconds": time.perf_counter() - begin, "cpu_seconds": time.process_time() - begin_cpu}
    values = [fitted.middle(number)[0] for number in range(len(behaviours))]
    return {"library": "rl_training", "steps": options.steps, "networks": options.ensemble, "values": values, **seconds}


def theirs(
    python: Path, rows: Path, steps: int, seed: int, rate: float | None = None, *, arrays: bool = False
) -> dict[str, Any]:
    """Return d3rlpy's values, and the time of the fits, with its own learning rate and way to gather batches or others."""
    options = FQEOptions()
    words = ["--steps", str(steps), "--widths", *map(str, options.widths), "--batch", str(options.batch_size)]
    words += ["--seed", str(seed), *([] if rate is None else ["--rate", str(rate)]), *(["--arrays"] if arrays else [])]
    command = [str(python), "-m", "benchmarks.off_policy.d3rlpy_fits", str(rows), *words]
    done = subprocess.run(command, check=True, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def compare(task: str, runs: Path, data: Path | None, python: Path, *, trained_out: bool) -> dict[str, Any]:
    """Return both libraries' values and times."""
    policies, episodes = policies_and_rows(task, runs, data)
    behaviours, fits = [Behaviour.of(policy.predict, episodes) for policy in policies.values()], []
    with tempfile.TemporaryDirectory() as folder:
        rows = Path(folder) / "rows.npz"
        rows_of(episodes, policies, rows)
        steps, rate = FQEOptions().steps, FQEOptions().rate
        for seed in range(ROUNDS):
            fits.append({"budget": "ours", **ours(episodes, behaviours, seed)})
            fits.append({"budget": "same steps", **theirs(python, rows, steps, seed)})
            fits.append({"budget": "same steps and rate", **theirs(python, rows, steps, seed, rate)})
            fits.append({"budget": "the same from arrays", **theirs(python, rows, steps, seed, rate, arrays=True)})
            print(f"{task}, round {seed}: {[round(one['cpu_seconds'], 1) for one in fits[-4:]]} s", flush=True)
        if trained_out:
            fits.append({"budget": "trained out", **theirs(python, rows, TRAINED_OUT, 0, rate)})
    times = np.reshape([one["cpu_seconds"] for one in fits[: 4 * ROUNDS]], (ROUNDS, 4))
    compared = {"d3rlpy time / ours": 1, "the same from arrays": 3}
    ratios = {name: (times[:, number] / times[:, 0]).tolist() for name, number in compared.items()}
    return {"policies": list(policies), "rows": len(episodes), "fits": fits, **ratios}


def main() -> None:
    """Compare where there is no result yet; print all."""
    parser = arguments(__doc__)
    parser.add_argument("--python", type=Path, required=True, help="one that has d3rlpy")
    parser.add_argument("--trained-out", action="store_true", help="also with more steps, which takes ten times as long")
    given = parser.parse_args()
    torch.set_num_threads(1)
    for task in given.tasks:
        if given.again or read("d3rlpy", task) is None:
            write("d3rlpy", task, compare(task, given.runs, given.data, given.python, trained_out=given.trained_out))
        found, truth = read("d3rlpy", task), read("truth", task)
        for name in ("d3rlpy time / ours", "the same from arrays"):
            print(f"== {task}, {name}: {[round(ratio, 2) for ratio in found[name]]}")
        for one in found["fits"]:
            guess = dict(zip(found["policies"], one["values"], strict=True))
            rank = {key: round(correlation(guess, truth, key), 2) for key in ("value", "return")}
            print(f"{one['library']}, {one['budget']}: {one['steps']} steps, {one['cpu_seconds']:.1f} s, spearman {rank}")


if __name__ == "__main__":
    main()
