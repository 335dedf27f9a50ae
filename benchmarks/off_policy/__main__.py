"""Everything from policies to tables, one after the other; what has a result is skipped, so it may be stopped anywhere.

python -m benchmarks.off_policy --runs runs --data sets --d3rlpy VENV/bin/python

Without a Python that has d3rlpy its part is left out.
"""

import argparse
import subprocess
import sys
from pathlib import Path

from benchmarks.off_policy.tasks import TASKS


def steps(tasks: list[str], runs: Path, data: Path | None, d3rlpy: Path | None) -> list[list[str]]:
    """Return the programs to run, each with its arguments."""
    sets = [] if data is None else ["--data", str(data)]
    where = ["--runs", str(runs), *sets]
    found = [["policies", *tasks, "--out", str(runs), *sets], ["truth", *tasks, *where], ["estimates", *tasks, *where]]
    found.append(["seeds", *tasks, *where])
    if "pendulum" in tasks:
        found.append(["starts", "--runs", str(runs)])
    if d3rlpy is not None:
        found.append(["d3rlpy_peer", *tasks, *where, "--python", str(d3rlpy)])
    return [*found, ["regret", *tasks], ["table"]]


def main() -> None:
    """Run them; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("tasks", nargs="*", default=list(TASKS), metavar="TASK")
    parser.add_argument("--runs", type=Path, required=True, help="where policies are, or are to be trained")
    parser.add_argument("--data", type=Path, help="where the sets of benchmarks.locomotion are")
    parser.add_argument("--d3rlpy", type=Path, help="a Python that has d3rlpy")
    given = parser.parse_args()
    for name, *words in steps(given.tasks, given.runs, given.data, given.d3rlpy):
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.off_policy.{name}", *words], check=True)


if __name__ == "__main__":
    main()
