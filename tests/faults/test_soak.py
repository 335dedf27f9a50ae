"""A long run in one process leaks neither memory nor files."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.faults.soak import PIECE, PIECES
from tests.helpers import ROOT, checkpoints, environment

WARM = 5  # pieces until buffers have their size


@pytest.mark.faults
@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="memory is read from /proc")
def test_a_long_run_with_many_resumes(fault_count, tmp_path):
    words = [sys.executable, "-m", "tests.faults.soak", str(tmp_path)]
    done = subprocess.run(words, env=environment(), cwd=ROOT, capture_output=True, text=True, timeout=2400, check=False)
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout.splitlines()[-1])
    memory, files = found["memory"], found["files"]
    assert checkpoints(tmp_path)[-1].name == f"step-{PIECE * PIECES:09d}"
    growth = 100.0 * (max(memory[WARM:]) / memory[WARM] - 1.0)
    fault_count("soak", int(growth < 5.0 and files[-1] == files[WARM]), 1, f"memory grew by {growth:.1f} %")
