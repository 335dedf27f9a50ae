"""Everything from data to tables, one after the other; jobs that have a result are skipped, so it may be stopped anywhere.

python -m benchmarks.locomotion --data data --set device=cuda --set precision=tf32 --corl CORL

Without a checkout of CORL its part is left out, and without d3rlpy that of d3rlpy.
"""

import argparse
import importlib.util
import subprocess
import sys
from pathlib import Path

from benchmarks.locomotion.data import SETS

PEER_SETS = ("hopper-medium-replay", "halfcheetah-medium-replay", "walker2d-medium-replay")


def steps(data: Path, settings: list[str], corl: Path | None, parallel: int) -> list[list[str]]:
    """Return the programs to run, each with its arguments."""
    jobs = ["--data", str(data), "--parallel", str(parallel)]
    own = [word for setting in settings for word in ("--set", setting)]
    found = [["data", *SETS, "--out", str(data), *own], ["offline", *jobs, *own], ["online", *jobs, *own]]
    if corl is not None:
        found.append(["corl", "--source", str(corl), *jobs, "--sets", *PEER_SETS])
    if importlib.util.find_spec("d3rlpy") is not None:
        found.append(["d3rlpy_peer", *jobs, "--sets", *PEER_SETS])
    return [*found, ["table"], ["expected"]]


def main() -> None:
    """Run them; the first that fails ends it."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path, required=True, help="where the sets are, or are to be made")
    parser.add_argument("--corl", type=Path, help="a checkout of CORL")
    parser.add_argument("--parallel", type=int, default=1, help="jobs side by side")
    parser.add_argument("--set", action="append", default=[], dest="settings", metavar="KEY=VALUE")
    given = parser.parse_args()
    for name, *arguments in steps(given.data, given.settings, given.corl, given.parallel):
        print(f"== {name}", flush=True)
        subprocess.run([sys.executable, "-m", f"benchmarks.locomotion.{name}", *arguments], check=True)


if __name__ == "__main__":
    main()
