"""One command per set, by the recipe of D4RL: returns and fingerprint are printed, and compared with those written down.

python -m benchmarks.locomotion.data hopper-medium --out data

`medium` and `expert` are samples of the policies in `data/policies`: those stored here (`stored.py`), unless others are there
already, of `benchmarks.locomotion.behaviour`. `medium-replay` is what its training had collected: made from the actions that
were taken where these are stored, and otherwise by SAC, trained up to the stored policy. `medium-expert` is both sets;
`random` are uniform actions.
"""

import argparse
import importlib.metadata
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.locomotion import behaviour, stored
from rl_training.api.collecting import collect_dataset
from rl_training.data.dataset_loaders import load_dataset
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.offline_mixers import mix_datasets
from rl_training.data.store.directory import save_dataset

KINDS = ("random", "medium", "medium-replay", "medium-expert", "expert")
SETS = tuple(f"{task}-{kind}" for task in behaviour.TASKS for kind in KINDS)
ROWS = 1_000_000  # of random, medium and expert
RECORDS = Path(__file__).parent / "results" / "data.json"


def split(name: str) -> tuple[str, str]:
    """Return the task and the kind of a set."""
    task, _, kind = name.partition("-")
    return task, kind


def make(name: str, out: Path, rows: int = ROWS, workers: int | str = "auto", settings: Sequence[str] = ()) -> Path:
    """Make a set, unless it is there; return its directory. `settings` are those of the policies, if they must be trained."""
    task, kind = split(name)
    target = out / name
    if target.exists() or (kind == "medium-replay" and stored.restore_replay(task, target)):
        return target
    env: dict[str, Any] = {"env_id": behaviour.TASKS[task], "envs": 32, "workers": workers}
    if kind == "random":
        collect_dataset("random", target, rows, **env)
    elif kind == "medium-expert":
        halves = [load_dataset(make(f"{task}-{half}", out, rows, workers, settings)) for half in ("medium", "expert")]
        save_dataset(mix_datasets(halves), target)
    elif kind == "medium-replay" and (place := stored.place_of(f"{task}-medium")):
        behaviour.write_replay(task, behaviour.train(task, out, settings, place[0]), out, *place)
    else:
        policy = out / "policies" / f"{task}-{kind}"
        if kind == "medium-replay" or not (policy.exists() or stored.restore(policy.name, policy)):
            behaviour.write(task, behaviour.train(task, out, settings), out)
        if kind != "medium-replay":
            collect_dataset(policy, target, rows, stochastic=True, **env)
    return target


def describe(dataset: TransitionDataset) -> dict[str, Any]:
    """Return what is written down of a set."""
    versions = {name: importlib.metadata.version(name) for name in ("mujoco", "gymnasium")}
    return {"fingerprint": dataset.fingerprint, **dataset.statistics(), "versions": versions}


def record(name: str, found: dict[str, Any]) -> None:
    """Write down what was found of a set."""
    records = json.loads(RECORDS.read_text()) if RECORDS.exists() else {}
    records[name] = found
    RECORDS.parent.mkdir(exist_ok=True)
    RECORDS.write_text(json.dumps(dict(sorted(records.items())), indent=1) + "\n")


def main() -> None:
    """Make a set, and say what it is like."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", choices=SETS, metavar="SET")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--workers", default="auto")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE", help="of SAC")
    parser.add_argument("--record", action="store_true", help="write down returns and fingerprint")
    given = parser.parse_args()
    workers = int(given.workers) if given.workers.isdecimal() else given.workers
    for name in given.sets:
        found = describe(load_dataset(make(name, given.out, given.rows, workers, given.settings)))
        if given.record:
            record(name, found)
        known = json.loads(RECORDS.read_text()).get(name, {}) if RECORDS.exists() else {}
        same = "the set that was written down" if known.get("fingerprint") == found["fingerprint"] else "another set"
        print(f"{name}: {found['rows']:,} rows, {found['episodes']:,} episodes, return {found['return_mean']:.0f}; {same}")


if __name__ == "__main__":
    main()
