"""The real libraries, where they are installed: what is read back with them is metrics.jsonl, each step once."""

import json
import signal
import subprocess
import sys
from importlib.util import find_spec

import numpy as np
import pytest
import yaml

from rl_training import faults
from tests.helpers import ROOT, assert_same_run, command, environment, metric_rows, run_cli, run_values, tiny_run

NAMES = ["tensorboard", "wandb", "mlflow", "trackio"]
INSTALLED = [name for name in NAMES if find_spec(name)]
COUNTERS = {"step", "env_step", "member", "seed"}
each = pytest.mark.parametrize(
    "name", [pytest.param(name, marks=pytest.mark.skipif(name not in INSTALLED, reason="not installed")) for name in NAMES]
)
some = pytest.mark.skipif(not INSTALLED, reason="no backend is installed")


def variables(folder, **extra):
    """The environment of a user whose backends are all local."""
    own = {
        "TRACKIO_DIR": str(folder / "trackio"),
        "WANDB_MODE": "offline",
        "MLFLOW_TRACKING_URI": f"sqlite:///{folder}/ml.db",
    }
    return {"WANDB_DIR": str(folder), "PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", **own, **extra}


def held(name, run_dir, **extra):
    """What a backend holds of a run, by the name of each of its runs there."""
    arguments = [sys.executable, "-m", "tests.tracking.readback", name, str(run_dir)]
    env = environment(**variables(run_dir.parent, **extra))
    done = subprocess.run(arguments, capture_output=True, text=True, env=env, cwd=run_dir.parent, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def expected(run_dir, member, switch):
    rows = [row for row in metric_rows(run_dir) if row["member"] == member]
    position = {True: lambda row: row["step"], False: lambda row: switch + row.get("env_step", 0)}
    return sorted(
        (metric, position["env_step" not in row](row), value)
        for row in rows
        for metric, value in row.items()
        if metric not in COUNTERS
    )


def check(name, run_dir, members=1, switch=0, **extra):
    found = held(name, run_dir, **extra)
    assert len(found) == members
    single = name == "tensorboard"  # which has values in single precision
    for member, rows in enumerate(found[title] for title in sorted(found)):
        wanted = [
            (metric, step, float(np.float32(v)) if single else v) for metric, step, v in expected(run_dir, member, switch)
        ]
        assert sorted(map(tuple, rows)) == wanted


def config(tmp_path, **changes):
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(run_values(learning_rate_schedule="constant", **changes)))
    return tmp_path / "c.yaml"


@some
def test_all_at_once_online_with_workers(tmp_path):
    """Processes are forked while the threads of backends are at work."""
    values = run_values("sac", workers=2, seeds=[0, 1], eval_mode="beside", log=INSTALLED)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(values))
    done = run_cli("train", tmp_path / "c.yaml", "--run-dir", tmp_path / "run", "--json", cwd=tmp_path, **variables(tmp_path))
    assert json.loads(done.stdout)["env_step"] == 120  # nothing else was printed there
    assert "warning" not in done.stderr.lower()
    for name in INSTALLED:
        check(name, tmp_path / "run", members=2)
    tiny_run(tmp_path / "plain", "sac", workers=2, seeds=[0, 1], eval_mode="beside")
    assert_same_run(tmp_path / "plain", tmp_path / "run")


@each
def test_killed_after_sending_then_resumed_then_finetuned(tmp_path, name):
    run, env = tmp_path / "run", variables(tmp_path)
    values = {"total_timesteps": 1000, "log_interval": 10, "eval_interval": 250, "checkpoint_interval": 150}
    arguments = "train", config(tmp_path, seeds=[0, 1, 2], **values), "--run-dir", run, "--log", name
    killed = {faults.VARIABLE: f"tracking:{name}:sent@40"}
    done = subprocess.run(
        command(*arguments), capture_output=True, env=environment(**env, **killed), cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == -signal.SIGKILL
    before = held(name, run)
    assert any(before.values())
    run_cli("resume", run, cwd=tmp_path, **env)
    check(name, run, members=3)
    run_cli("finetune", run, "--env-steps", 60, "--set", "learning_starts=9", cwd=tmp_path, **env)
    check(name, run, members=3, switch=1000)


@pytest.mark.skipif("trackio" not in INSTALLED, reason="not installed")
def test_trackio_on_a_network_folder(tmp_path):
    run, extra = tmp_path / "run", {"TRACKIO_STORAGE_MODE": "jsonl"}
    env = variables(tmp_path, **extra)
    arguments = "train", config(tmp_path), "--run-dir", run, "--log", "trackio"
    killed = {faults.VARIABLE: "metrics:row@8"}
    done = subprocess.run(command(*arguments), env=environment(**env, **killed), cwd=tmp_path, timeout=120, check=False)
    assert done.returncode == -signal.SIGKILL
    for _ in range(2):
        run_cli("resume", run, cwd=tmp_path, **env)
    check("trackio", run, **extra)


@pytest.mark.skipif("trackio" not in INSTALLED, reason="not installed")
def test_trackio_tells_of_no_failure_itself(tmp_path):
    """Its database is taken away: a folder is in its place."""
    run, env = tmp_path / "run", variables(tmp_path)
    (tmp_path / "trackio" / "rl-training-Pendulum-v1.db").mkdir(parents=True)
    done = run_cli("train", config(tmp_path), "--run-dir", run, "--log", "trackio", cwd=tmp_path, **env)
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert warning.startswith("warning: trackio: ")
    assert "the run goes on without it" in warning


@each
def test_solo_and_started_over(tmp_path, name):
    run, env = tmp_path / "run", variables(tmp_path)
    arguments = "train", config(tmp_path), "--run-dir", run, "--log", name
    run_cli(*arguments, cwd=tmp_path, **env)
    check(name, run)
    run_cli(*arguments, "--overwrite", "--set", "seed=5", cwd=tmp_path, **env)
    check(name, run)


@pytest.mark.skipif("mlflow" not in INSTALLED, reason="not installed")
def test_a_file_store_of_mlflow(tmp_path):
    run, store = tmp_path / "run", {"MLFLOW_TRACKING_URI": f"file://{tmp_path}/mlruns", "MLFLOW_ALLOW_FILE_STORE": "true"}
    run_cli("train", config(tmp_path), "--run-dir", run, "--log", "mlflow", cwd=tmp_path, **variables(tmp_path, **store))
    check("mlflow", run, **store)


@pytest.mark.skipif("tensorboard" not in INSTALLED, reason="not installed")
def test_an_event_file_that_was_cut_is_continued(tmp_path):
    tiny_run(tmp_path / "run", log="tensorboard", learning_rate_schedule="constant")
    (events,) = (tmp_path / "run" / "tensorboard").iterdir()
    whole = events.read_bytes()
    for length in (len(whole) - 3, len(whole) - 500, 30, 5, 0):  # in rows, in the hyper-parameters, in the first record
        events.write_bytes(whole[:length] + bytes(200 if length == 30 else 0))  # some systems fill a lost block with zeros
        tiny_run(tmp_path / "run", log="tensorboard", learning_rate_schedule="constant", resume=True)
        check("tensorboard", tmp_path / "run")


@pytest.mark.skipif("tensorboard" not in INSTALLED, reason="not installed")
@pytest.mark.parametrize("seeds", [[0], [0, 1]])
def test_a_run_that_is_logged_anew_removes_its_own_event_files_alone(tmp_path, seeds):
    values, run = {"log": "tensorboard", "learning_rate_schedule": "constant", "seeds": seeds}, tmp_path / "run"
    tiny_run(run, **values)
    logs = run / "tensorboard"
    own = sorted(logs.rglob("events*"))
    users = [logs / "notes.txt", logs / "mine" / "events.out.tfevents.1700000000.host.7.0"]
    users += [folder / "events.out.tfevents.1700000000.0123456789ab" for folder in {path.parent for path in own}]  # of a host
    users.append(logs / "other" / own[0].name.replace(own[0].suffix, ".abcdefabcdef"))  # a copy from another run
    for path in users:
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")
    (run / "tracking.jsonl").unlink()  # so that it gets a new id
    tiny_run(run, **values, total_timesteps=160, resume=True)
    assert all(path.read_text() == "x" for path in users)
    others = set(logs.rglob("events*")) - set(users)
    assert len(others) == len(own)
    assert not others & set(own)


@each
def test_hyperparameters_and_failures_in_the_library(tmp_path, name, monkeypatch):
    """A library that fails in the middle costs one warning, and training is the same."""
    target = {
        "tensorboard": "tensorboard.summary.writer.record_writer.RecordWriter.write",
        "wandb": "wandb.sdk.wandb_run.Run.log",
        "mlflow": "mlflow.tracking.MlflowClient.log_batch",
        "trackio": "trackio.run.Run.log",
    }[name]
    for variable, value in variables(tmp_path).items():
        monkeypatch.setenv(variable, value)
    code = (
        "import sys, pydoc\n"
        f"path, attribute = {target!r}.rsplit('.', 1)\n"
        "owner = pydoc.locate(path)\n"
        "real, calls = getattr(owner, attribute), [0]\n"
        "def failing(*args, **kwargs):\n"
        "    calls[0] += 1\n"
        "    if calls[0] > 9:\n"
        "        raise OSError(28, 'No space left on device')\n"
        "    return real(*args, **kwargs)\n"
        "setattr(owner, attribute, failing)\n"
        "from rl_training.__main__ import main\n"
        "main()\n"
    )
    arguments = [
        sys.executable,
        "-c",
        code,
        "train",
        str(config(tmp_path)),
        "--run-dir",
        str(tmp_path / "run"),
        "--log",
        name,
    ]
    done = subprocess.run(
        arguments, capture_output=True, text=True, env=environment(), cwd=tmp_path, timeout=120, check=False
    )
    assert done.returncode == 0, done.stderr
    (warning,) = [line for line in done.stderr.splitlines() if line.startswith("warning:")]
    assert warning.startswith(f"warning: {name}: OSError: [Errno 28] No space left on device; the run goes on without it")
    tiny_run(tmp_path / "plain", learning_rate_schedule="constant")
    assert_same_run(tmp_path / "plain", tmp_path / "run")
    run_cli("resume", tmp_path / "run", cwd=tmp_path)
    check(name, tmp_path / "run")
