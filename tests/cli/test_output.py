"""Output that cannot be printed: the run goes on, saves, and ends with the right code."""

import os
import subprocess
import sys

import pytest
import yaml

from tests.helpers import checkpoints, environment, run_values

WAYS = {
    "full": "{command} 2>/dev/full",
    "gone": "{{ {command} 2>&1; echo $? >code; }} | true; exit $(cat code)",
    "closed": "{command} 2>&- >&- <&-",
    "nameless": "{command} --run-dir \"$(printf 'run\\377')\"",
}


def shell(way, command, cwd):
    script = WAYS[way].format(command=f"{sys.executable} -m rl_training {command}")
    return subprocess.run(["bash", "-c", script], cwd=cwd, env=environment(), capture_output=True, timeout=120, check=False)


@pytest.mark.parametrize("way", WAYS)
def test_a_run_goes_on_where_nothing_can_be_printed(way, tmp_path):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(run_values()))
    command = "train c.yaml" + " --run-dir run" * (way != "nameless")
    done = shell(way, command, tmp_path)
    run = tmp_path / os.fsdecode(b"run\xff") if way == "nameless" else tmp_path / "run"
    assert done.returncode == 0, done.stderr
    assert checkpoints(run)[-1].name == "step-000000120"
    assert b"Traceback" not in done.stderr
    assert (run / "metrics.jsonl").read_bytes().startswith(b"{")  # and nothing that was meant for a closed stream


@pytest.mark.parametrize("way", ["full", "gone", "closed"])
def test_errors_keep_their_code(way, tmp_path):
    assert shell(way, "resume nowhere", tmp_path).returncode == 4
