"""`tune show`: the table, how sure the best is, the command that trains it; and the command line."""

import json
import subprocess
import sys
from dataclasses import replace

import pytest

from rl_training.tuning.folder import StudyFolder
from rl_training.tuning.scores import Result
from rl_training.tuning.showing import study_json, study_lines, summary, sureness, train_command
from rl_training.tuning.tuner import Confirmed
from tests.helpers import call_cli, environment, run_values
from tests.tuning.fake import FakeBackend, run_study, task


def shown(path, given=None, most=10):
    return study_lines(summary(StudyFolder(path), given or task()), most)


@pytest.fixture(scope="module")
def study(tmp_path_factory):
    path = tmp_path_factory.mktemp("studies") / "study"
    run_study(path)
    return path


def test_the_best_stand_first_and_the_configs_own_values_are_there(study):
    lines = shown(study, most=3)
    assert lines[0].endswith("study: iql/small, 12 trials (12 complete)")
    assert lines[1] == "score: the interquartile mean over seeds of the last return"
    assert lines[2].split() == ["trial", "expectile", "beta", "return", "iqm", "seeds", "status"]
    scores = [float(line.split()[3]) for line in lines[3:6]]
    assert scores == sorted(scores, reverse=True)
    assert lines[6].startswith("0 ")
    assert lines[6].endswith("complete, the config's own values")
    assert lines[7].startswith("what matters among the best (PED-ANOVA, by 12 trials alone): ")
    best = lines[3].split()[0]
    ahead = f"trial {best} is ahead of the config's own values, by the seeds it was chosen by: "
    assert lines[8].startswith(f"{ahead}{lines[3].split()[3]} against -")
    assert lines[9].startswith("the best of 12 by 2 seeds each is partly lucky: its score is optimistic")
    assert lines[10].startswith("to train it: rl-training train iql/small --set algo_kwargs.expectile=0.")


def test_the_command_trains_the_very_values(study):
    found = summary(StudyFolder(study), task(options=("--set", "total_timesteps=9")))
    command = train_command(found, found.best)
    assert command.startswith("rl-training train iql/small --set total_timesteps=9 --set algo_kwargs.expectile=")
    assert f"algo_kwargs.beta={json.dumps(found.best.knobs['beta'])}" in command
    lists = replace(found, task=task({"hidden_sizes": {"choices": [[8], [16, 16]]}}))
    row = replace(found.best, knobs={"hidden_sizes": [8]})
    assert train_command(lists, row) == "rl-training train iql/small --set 'algo_kwargs.hidden_sizes=[8]'"


def test_confirmed_trials_are_judged_by_their_new_seeds(tmp_path):
    backend = FakeBackend()
    run_study(tmp_path / "study", backend=backend, confirm=2)
    found = summary(StudyFolder(tmp_path / "study"), task())
    numbers = sorted({*found.order[:2], 0})
    assert backend.names[-1] == "confirm-" + "-".join(map(str, numbers))
    assert [len(one.result.seeds) for one in found.confirmed] == [5] * len(numbers)
    assert found.best.number == found.confirmed[0].number
    text = "\n".join(shown(tmp_path / "study"))
    assert f"trial {found.best.number} with new seeds: return iqm " in text
    assert "is with new seeds better than the config's own values" in text
    assert "the figures with new seeds (5 each) are fair" in text
    run_study(tmp_path / "study", backend=backend, confirm=2)
    assert summary(StudyFolder(tmp_path / "study"), task()).confirmed == found.confirmed


def test_new_seeds_that_may_be_chance_are_said_to_be(study):
    found = summary(StudyFolder(study), task())
    fresh = {found.order[0]: [1.0, 3.0, 5.0], 0: [0.9, 2.9, 4.9]}
    rows = [Confirmed(number, Result([seeds[1]], seeds, {})) for number, seeds in fresh.items()]
    said = sureness(replace(found, confirmed=rows))[0]
    assert (
        "ahead of the config's own values: 3 against 2.9, which may be chance (p = 0.35 by the ranks of 3 seeds each)" in said
    )


def test_what_fell_short_is_said(tmp_path):
    run_study(tmp_path / "failed", backend=FakeBackend(diverged=[0]), trials=4)
    text = "\n".join(shown(tmp_path / "failed"))
    assert "failed, the config's own values: 1 of 2 seeds diverged" in text
    assert "the config's own values (trial 0) were failed: 1 of 2 seeds diverged" in text
    outside = task({"beta": {"low": 15.0, "high": 20.0}})
    run_study(tmp_path / "outside", outside, trials=4)
    assert "nothing says whether the best is better" in "\n".join(shown(tmp_path / "outside", outside))
    worse = task(changes={"algo_kwargs": {"expectile": 0.87, "beta": 8.0}})
    run_study(tmp_path / "worse", worse, trials=4)
    assert "the config's own values are the best: no trial was better" in shown(tmp_path / "worse", worse)
    pruned = task(pruning={"kind": "median"})
    run_study(tmp_path / "pruned", pruned, trials=4)
    assert sum(line.endswith("pruned") for line in shown(tmp_path / "pruned", pruned)) == 3


def test_two_numbers_have_a_front(tmp_path):
    from rl_training.tuning.scores import Rule

    two = task(rule=Rule(also="spread"))
    run_study(tmp_path / "study", two)
    found = summary(StudyFolder(tmp_path / "study"), two)
    assert found.order[0] in found.front
    assert "not beaten in both" in "\n".join(study_lines(found, 20))
    assert "lower is better" in study_lines(found, 20)[1]


def test_json_has_everything(study):
    found = json.loads(study_json(summary(StudyFolder(study), task())))
    assert [row["number"] for row in found["trials"]] == list(range(12))
    assert found["best"] == found["order"][0]
    assert set(found["trials"][0]["knobs"]) == {"expectile", "beta"}
    assert found["own"] == 0


def test_an_estimate_says_that_it_is_one():
    from rl_training.tuning.scores import Rule

    assert Rule(select_by="fqe").text.endswith("of the last fqe on all logged data, an estimate and no return")
    assert Rule(select_by="fqe").name == "fqe iqm"


def test_the_command_line(tmp_path, capsys):
    import yaml

    (tmp_path / "config.yaml").write_text(yaml.safe_dump(run_values()))
    (tmp_path / "space.yaml").write_text("beta: {low: 1, high: 9}\n")
    words = ["tune", tmp_path / "config.yaml", "--space", tmp_path / "space.yaml", "--trials", 3, "--run-dir", tmp_path / "s"]
    done = call_cli(capsys, *words, "--seeds", "0,1", "--prune", "halving", "--set", "total_timesteps=80")
    assert "trials 0 to 2: 6 members in 1 population" in done.stderr
    assert "best so far: trial" in done.stderr
    assert done.stdout == call_cli(capsys, "tune", "show", tmp_path / "s").stdout
    assert json.loads(call_cli(capsys, "tune", "show", tmp_path / "s", "--json").stdout)["config"].endswith("config.yaml")
    statuses = [
        row["status"] for row in json.loads(call_cli(capsys, "tune", "show", tmp_path / "s", "--json").stdout)["trials"]
    ]
    assert sorted(statuses) == ["complete", "pruned", "pruned"]
    for more, said in (
        (["--sampler", "tpee"], "--sampler 'tpee': must be tpe, random, grid or nsga2"),
        (["--seeds", "0..2"], "holds another study: config.seeds was [0, 1], is [0, 1, 2]"),
    ):
        assert said in call_cli(capsys, *words, *more, code=2).stderr
    assert "holds no study" in call_cli(capsys, "tune", "show", tmp_path, code=4).stderr


def test_without_an_environment_the_score_is_an_estimate(tmp_path, capsys):
    import numpy as np

    from tests.helpers import small_arrays

    np.savez(tmp_path / "log.npz", **small_arrays(rows=400))
    (tmp_path / "space.yaml").write_text("beta: {low: 1, high: 9}\n")
    sets = [
        word for one in ("total_timesteps=60", "eval_interval=30", "algo_kwargs.hidden_sizes=[8]") for word in ("--set", one)
    ]
    words = ["tune", "iql", "--dataset", tmp_path / "log.npz", "--space", tmp_path / "space.yaml", "--trials", 2, *sets]
    shown = call_cli(
        capsys, *words, "--set", "select_by=action_distance", "--run-dir", tmp_path / "s", "--seeds", "0,1"
    ).stdout
    assert "action_distance on held-out data, an estimate and no return" in shown
    assert "--set select_by=action_distance" in shown
    by_default = call_cli(capsys, *words, "--run-dir", tmp_path / "f", "--seeds", "0").stdout
    assert "fqe on all logged data" in by_default
    assert "--set select_by=fqe" in by_default


def test_a_stop_signal_says_how_to_go_on(tmp_path, capsys, monkeypatch):
    import signal

    from rl_training.errors import StoppedBySignal

    def stopped(*_):
        raise StoppedBySignal(signal.SIGTERM, "SIGTERM: the run is saved; go on with `rl-training resume`")

    monkeypatch.setattr("rl_training.tuning.backends.local.run_job", stopped)
    (tmp_path / "space.yaml").write_text("beta: {low: 1, high: 19}\n")
    words = ["tune", "iql/pendulum-mixture", "--space", tmp_path / "space.yaml", "--trials", 3, "--run-dir", tmp_path / "s"]
    done = call_cli(capsys, *words, code=143)
    assert done.stderr.splitlines()[-1] == f"SIGTERM: {tmp_path / 's'} is saved; the same command goes on"
    assert "3 running" in call_cli(capsys, "tune", "show", tmp_path / "s").stdout


def test_a_study_is_shown_without_loading_torch():
    code = "import sys, rl_training.tuning.showing; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
