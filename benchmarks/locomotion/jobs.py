"""What the programs of the tables have in common: arguments, jobs with a result file each, and jobs side by side."""

import argparse
import json
import subprocess
import sys
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from benchmarks.locomotion.data import make

RESULTS = Path(__file__).parent / "results"
Job = tuple[str, str]
"""An algorithm, and the set that it is trained on."""
Work = Callable[[str, str, argparse.Namespace], tuple[dict[str, Any], str]]
"""Does the job of an algorithm and a set; returns its result, and a line about it."""


def arguments_of(description: str | None, module: str, algos: Sequence[str], sets: Sequence[str]) -> argparse.ArgumentParser:
    """Return the arguments of every such program."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--data", type=Path, required=True, help="where the sets are, or are to be made")
    parser.add_argument("--runs", type=Path, default=Path("runs/locomotion"))
    parser.add_argument("--results", type=Path, default=RESULTS / module)
    parser.add_argument("--algos", nargs="+", default=algos, choices=algos)
    parser.add_argument("--sets", nargs="+", default=sets, choices=sets)
    parser.add_argument("--parallel", type=int, default=1, help="jobs side by side, each in a process of its own")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    return parser


def do_jobs(module: str, given: argparse.Namespace, work: Work) -> None:
    """Do the jobs that have no result yet; sets are made first, since two jobs may need the same one."""
    given.results.mkdir(parents=True, exist_ok=True)
    jobs = [(algo, name) for algo in given.algos for name in given.sets if not target_of(algo, name, given).exists()]
    for name in dict.fromkeys(name for _, name in jobs):
        make(name, given.data)
    if given.parallel > 1:
        _side_by_side(module, jobs, given.parallel)
        return
    for algo, name in jobs:
        found, line = work(algo, name, given)
        target_of(algo, name, given).write_text(json.dumps(found, indent=1) + "\n")
        print(line, flush=True)


def target_of(algo: str, name: str, given: argparse.Namespace) -> Path:
    """Return the file of a job's result."""
    return Path(given.results) / f"{algo}-{name}.json"


def _side_by_side(module: str, jobs: Sequence[Job], parallel: int) -> None:
    """Run this program again for each job, with the arguments it was given; one that fails ends it when no other runs."""

    def run(job: Job) -> None:
        algo, name = job
        own = ["--algos", algo, "--sets", name, "--parallel", "1"]  # of an argument that is given twice the last counts
        subprocess.run([sys.executable, "-m", f"benchmarks.locomotion.{module}", *sys.argv[1:], *own], check=True)

    with ThreadPoolExecutor(parallel) as pool:
        list(pool.map(run, jobs))
