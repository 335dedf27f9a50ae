"""The options of `tune`: where a study may be, how its data is read, and what is said of options that do nothing."""

import shlex
import sys

import pytest

from rl_training.errors import ConfigError
from rl_training.tuning.folder import StudyFolder
from rl_training.tuning.scores import Rule
from tests.helpers import call_cli, tiny_run
from tests.tuning.fake import run_study, task

pytest.importorskip("optuna")

MAP = "{observations: [x], actions: [u], reward: r, episode: day, time: t}"
SETTINGS = (
    "total_timesteps=20",
    "eval_interval=20",
    "algo_kwargs.hidden_sizes=[4]",
    "algo_kwargs.batch_size=8",
    "device=cpu",
)


def write_log(folder):
    """Four days of ten rows in columns that say nothing by their names; of the second day, one is missing."""
    rows = [
        f"{day},{hour},{hour / 10},{(hour - 5) / 5},{-hour}"
        for day in range(4)
        for hour in range(10)
        if (day, hour) != (1, 4)
    ]
    (folder / "log.csv").write_text("\n".join(["day,t,x,u,r", *rows, ""]))
    (folder / "space.yaml").write_text("beta: {low: 1, high: 9}\n")


@pytest.fixture
def words(tmp_path):
    write_log(tmp_path)
    found = [
        "tune",
        "iql",
        "--dataset",
        tmp_path / "log.csv",
        "--space",
        tmp_path / "space.yaml",
        "--trials",
        2,
        "--seeds",
        "0",
    ]
    return [*found, "--run-dir", tmp_path / "study", *(word for one in SETTINGS for word in ("--set", one))]


def test_data_is_read_as_train_reads_it(words, tmp_path, capsys):
    select = ["--set", "select_by=action_distance"]
    done = call_cli(capsys, *words, *select, "--columns", MAP, "--cut-gaps")
    (part,) = StudyFolder(tmp_path / "study").read().config.algo_kwargs.dataset
    assert (part.columns.actions, part.cut_gaps) == (("u",), True)
    shown = next(line for line in done.stdout.splitlines() if line.startswith("to train it: "))
    command = shlex.split(shown.removeprefix("to train it: rl-training "))
    call_cli(capsys, *command, "--run-dir", tmp_path / "run")
    other = call_cli(capsys, *words, *select, "--columns", MAP, code=2).stderr
    assert "config.algo_kwargs.dataset.0.cut_gaps was true, is false" in other


def test_data_that_cannot_be_read_is_refused_before_anything_is_written(words, tmp_path, capsys):
    done = call_cli(capsys, *words, code=3)
    assert "--columns map.yaml" in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "study").exists()


def test_a_training_run_is_no_place_for_a_study(words, tmp_path, capsys):
    tiny_run(tmp_path / "study", total_timesteps=10)
    before = sorted(entry.name for entry in (tmp_path / "study").iterdir())
    done = call_cli(capsys, *words, "--columns", MAP, code=2)
    assert done.stderr == f"error: {tmp_path / 'study'}: holds a training run and no study; choose another --run-dir\n"
    assert sorted(entry.name for entry in (tmp_path / "study").iterdir()) == before


def test_a_folder_with_other_files_is_no_place_for_a_study(tmp_path):
    (tmp_path / "notes.txt").touch()
    with pytest.raises(ConfigError, match=r"holds notes.txt and no study; choose another --run-dir"):
        run_study(tmp_path)
    assert [entry.name for entry in tmp_path.iterdir()] == ["notes.txt"]


def test_a_start_that_was_killed_is_no_obstacle(tmp_path):
    for name in ("run.lock", ".study.json.tmp-77"):
        (tmp_path / name).touch()
    run_study(tmp_path, trials=4)
    assert StudyFolder.is_one(tmp_path)


IDLE = {
    "--prune does nothing: there is one evaluation": {"pruning": {"kind": "median"}, "changes": {"eval_interval": 120}},
    "--prune does nothing in this batch": {"pruning": {"kind": "median"}, "population": 1},
    "--score lower does nothing with one seed": {"rule": Rule("lower"), "seeds": [0]},
}


@pytest.mark.parametrize("line", IDLE)
def test_an_option_that_does_nothing_is_said_once(line, tmp_path):
    said = run_study(tmp_path / "idle", task(**IDLE[line]), trials=8)
    assert len([one for one in said if one.startswith(f"warning: {line}")]) == 1
    assert not any("does nothing" in one for one in run_study(tmp_path / "usual", trials=8))


def test_a_second_number_that_is_the_first_is_said():
    score = {"env_id": None, "select_by": "action_distance", "algo_kwargs": {"dataset": {"path": "log.csv"}}}
    (line,) = task(rule=Rule(also="action_distance", select_by="action_distance"), changes=score).without_effect()
    assert line.startswith("--also action_distance does nothing: it is the score already")


def test_a_missing_library_is_named_once(words, capsys, monkeypatch):
    monkeypatch.setitem(sys.modules, "submitit", None)
    assert call_cli(capsys, *words, "--columns", MAP, "--backend", "slurm", code=2).stderr.count("--backend slurm") == 1
