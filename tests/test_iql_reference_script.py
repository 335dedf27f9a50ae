import subprocess
import sys

from tests.helpers import ROOT, environment


def test_the_reference_script_runs():
    done = subprocess.run(
        [sys.executable, "examples/iql_pendulum_reference.py", "--steps", "60", "--rows", "400"],
        cwd=ROOT,
        env=environment(),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    )
    lines = done.stdout.splitlines()
    assert lines[0].startswith("mean return over 10 episodes: -")
    assert lines[1].split(": ")[1] == lines[2].split(": ")[1]
