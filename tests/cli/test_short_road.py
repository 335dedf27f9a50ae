"""`rl-training train` without a YAML file: from a folder of logs to a policy, and what it says when something is missing."""

import json

import numpy as np
import pytest
import yaml

from rl_training.cli import run
from tests.helpers import assert_same_run, call_cli, generator, run_cli, small_arrays

SMALL = ("--device", "cpu", "--set", "algo_kwargs.hidden_sizes=[8]", "--set", "algo_kwargs.batch_size=16")
MAP = """
observations: [T1, {error: T1 - TSP1}]
actions: [Q1]
reward: -abs(T1 - TSP1)
time: stamp
"""


@pytest.fixture(scope="module")
def logs(tmp_path_factory):
    """Five runs of a heater as a German data logger writes them, with a row of units, and the column map beside them."""
    root = tmp_path_factory.mktemp("plant")
    folder = root / "logs"
    folder.mkdir()
    draw = generator(4)
    for number in range(1, 6):
        lines = ["# export", "stamp;T1;TSP1;Q1", "s;°C;°C;%"]
        temperature = 20.0 + draw.uniform(0, 5)
        for minute in range(30):
            heater = float(np.clip(3 * (40 - temperature) + draw.normal(), 0, 100))
            cells = [f"{value:.3f}".replace(".", ",") for value in (temperature, 40.0, heater)]
            lines.append(";".join([f"{number:02d}.12.2025 10:{minute:02d}:00", *cells]))
            temperature += 0.02 * heater - 0.05 * (temperature - 20.0)
        (folder / f"run{number}.csv").write_text("\n".join(lines) + "\n", encoding="utf-8")
    (root / "map.yaml").write_text(MAP)
    return root


@pytest.fixture(scope="module")
def trained(logs):
    options = ("--dataset", "logs/", "--columns", "map.yaml", "--run-dir", "run", "--total-timesteps", "40")
    return run_cli("train", "iql", *options, *SMALL, cwd=logs)


def test_a_folder_becomes_a_policy(logs, trained):
    assert "5 files of CSV, run1.csv to run5.csv" in trained.stderr
    assert "skipped as units" in trained.stderr
    config = yaml.safe_load((logs / "run" / "config.yaml").read_text())
    (part,) = config["algo_kwargs"]["dataset"]
    assert part["path"] == str(logs / "logs")  # absolute: a resume may start anywhere
    assert part["columns"]["observations"] == ["T1", {"error": "T1 - TSP1"}]
    assert config["env_id"] is None
    assert config["total_timesteps"] == 40
    (action,) = json.loads(run_cli("predict", logs / "run", "--obs", "[30, -10]").stdout)
    assert 0.0 <= action <= 100.0


def test_the_resolved_config_repeats_the_run(logs, trained, tmp_path):
    run_cli("train", logs / "run" / "config.yaml", "--run-dir", tmp_path / "again")
    assert_same_run(logs / "run", tmp_path / "again")


def test_a_glob_and_repeated_files_are_the_same_run(logs, trained, tmp_path, capsys):
    files = [word for number in range(1, 6) for word in ("--dataset", logs / "logs" / f"run{number}.csv")]
    for name, dataset in {"glob": ["--dataset", f"{logs}/logs/*.csv"], "files": files}.items():
        given = (*dataset, "--columns", logs / "map.yaml", "--run-dir", tmp_path / name, "--total-timesteps", "40")
        call_cli(capsys, "train", "iql", *given, *SMALL)
        assert_same_run(logs / "run", tmp_path / name)


def test_options_override_the_config(logs, tmp_path, capsys):
    block = {"path": str(logs / "logs"), "columns": yaml.safe_load(MAP), "reward_lag": 1}
    values = {"algo": "td3_bc", "total_timesteps": 9, "algo_kwargs": {"hidden_sizes": [8], "dataset": block}}
    (tmp_path / "run.yaml").write_text(yaml.safe_dump(values))
    options = ("--ends", "timeouts", "--action-low", "0", "--action-high", "120", "--max-bytes", "2GiB", "--device", "cpu")
    call_cli(capsys, "train", tmp_path / "run.yaml", *options, "--run-dir", tmp_path / "run")
    config = yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())
    (part,) = config["algo_kwargs"]["dataset"]
    assert (part["ends"], part["reward_lag"], part["action_high"]) == ("timeouts", 1, [120.0])
    assert part["columns"]["reward"] == "-abs(T1 - TSP1)"
    assert config["algo_kwargs"]["max_dataset_bytes"] == 2 * 2**30
    np.savez(tmp_path / "other.npz", **small_arrays())
    call_cli(capsys, "train", tmp_path / "run.yaml", "--dataset", tmp_path / "other.npz", "--run-dir", tmp_path / "other")
    config = yaml.safe_load((tmp_path / "other" / "config.yaml").read_text())
    assert config["algo_kwargs"]["dataset"][0]["path"] == str(tmp_path / "other.npz")


def test_an_environment_may_be_named(tmp_path, capsys):
    np.savez(tmp_path / "d.npz", **small_arrays(observation_dim=3, action_dim=1))
    options = ("--env", "Pendulum-v1", "--total-timesteps", "5", "--set", "eval_episodes=1")
    call_cli(capsys, "train", "bc", "--dataset", tmp_path / "d.npz", *options, *SMALL, "--run-dir", tmp_path / "run")
    assert yaml.safe_load((tmp_path / "run" / "config.yaml").read_text())["env_id"] == "Pendulum-v1"


def one_line(capsys, code, *arguments):
    done = call_cli(capsys, *arguments, code=code)
    (line,) = done.stderr.strip().splitlines()
    assert done.stdout == ""
    return line


@pytest.mark.parametrize(
    ("arguments", "code", "part"),
    [
        (["iql"], 2, "iql needs data to learn from: rl-training train iql --dataset logs/"),
        (["iql"], 2, "in place of --dataset --env ENV --set algo_kwargs.dataset.kind=random for random data made in ENV"),
        (["iql", "--env", "Pendulum-v1"], 2, "rl-training train iql --env Pendulum-v1 --dataset logs/ (a CSV, Parquet,"),
        (
            ["iql", "--set", "env_id=Pendulum-v1"],
            2,
            "--set algo_kwargs.dataset.kind=random for random data made in Pendulum-v1",
        ),
        (["sac"], 2, "sac needs an environment to learn from: rl-training train sac --env"),
        (["rlpd", "--dataset", "x"], 2, "rl-training train rlpd --env Pendulum-v1 --dataset logs/"),
        (["sac", "--env", "Pendulum-v1", "--dataset", "x"], 2, "sac learns online and takes no dataset"),
        (["iqll", "--dataset", "x"], 2, "Did you mean `iql`"),
        (["iql", "--dataset", "absent"], 3, "absent: there is no such file or directory"),
        (["iql", "--dataset", "absent/*.csv"], 3, "absent/*.csv: matches no file"),
        (["iql", "--dataset", "empty"], 3, "empty: holds no data files: it is empty"),
        (["iql", "--dataset", ""], 2, "must be a file, a folder, a glob"),
        (["iql", "--dataset", "logs"], 3, "run1.csv: cannot infer the roles of its columns"),
        (["iql", "--dataset", "logs", "--columns", "absent.yaml"], 2, "--columns 'absent.yaml'"),
        (["iql", "--dataset", "logs", "--columns", "{observations: T1, actions: Q1, reward: TSP2 - T1}"], 3, "`TSP1`?"),
        (["iql", "--dataset", "logs", "--columns", "{observations: T1, actions: Q1, rewrd: T1}"], 2, "`reward`?"),
        (["iql/pendulum", "--columns", "{observations: T1, actions: Q1, reward: T1}"], 2, "--columns says how to read files"),
        (["iql", "--dataset", "logs", "--ends", "never"], 2, "never"),
    ],
)
def test_what_is_missing_is_one_line(logs, tmp_path, monkeypatch, capsys, arguments, code, part):
    monkeypatch.chdir(logs)
    (logs / "empty").mkdir(exist_ok=True)
    assert part in one_line(capsys, code, "train", *arguments, "--run-dir", tmp_path / "run")
    assert not (tmp_path / "run" / "checkpoints").exists()


def test_every_data_command_takes_folders_and_globs(logs, tmp_path, capsys):
    columns = ("--columns", logs / "map.yaml")
    summary = json.loads(call_cli(capsys, "data", "inspect", logs / "logs", *columns, "--json").stdout)
    assert summary["episodes"] == 5
    call_cli(capsys, "data", "convert", f"{logs}/logs/*.csv", tmp_path / "out", *columns)
    written = json.loads(call_cli(capsys, "data", "inspect", tmp_path / "out", "--json").stdout)
    assert written["rows"] == summary["rows"]


def test_help_of_train_has_the_read_options(capsys):
    assert run(["train", "--help"]) == 0
    text = capsys.readouterr().out
    for option in ("--dataset", "--columns", "--env", "--ends", "--reward-lag", "--on-bad-rows", "--action-low"):
        assert option in text
