"""`rl-training reproduce`: new seeds of a config against recorded ones, by the exit code."""

import functools
import json
import math
import os
import re
import shlex
import shutil
import signal
import sys
from dataclasses import replace
from importlib import metadata

import pytest
import torch
from benchmarks import expected

from rl_training.analysis.aggregates import aggregate
from rl_training.api.reproducing import plan_replication, recipe_config, record, train
from rl_training.cli.main import exit_code_of
from rl_training.config.expectation import read_expectations
from rl_training.experiment.manager import ExperimentManager
from rl_training.output import return_text
from rl_training.runtime.callbacks import Callback
from tests.helpers import Cut, CutAt, call_cli, contents, run_cli

CLONING = """
algo: bc
env_id: Pendulum-v1
device: cpu
workers: 0
total_timesteps: 600
eval_interval: 600
eval_episodes: 1
log_interval: 600
checkpoint_interval: 300
algo_kwargs:
  hidden_sizes: [32, 32]
  batch_size: 64
  actor_learning_rate: 3e-3
  normalize_observations: true
  dataset: {kind: scripted, size: 4_000, seed: 1, noise: 0.2}
"""


@pytest.fixture(scope="module")
def recorded(tmp_path_factory):
    """A folder with the config of a controller's clone and what five seeds of it reach."""
    folder = tmp_path_factory.mktemp("recorded")
    own = folder / "own.yaml"
    own.write_text(CLONING)
    train(recipe_config(str(own), [], range(5)), folder / "recorded")
    record(str(own), "Pendulum-v1", folder / "recorded", episodes=20, command="make own")
    return folder


@pytest.fixture
def own(recorded, tmp_path):
    """A copy of the config with what is recorded of it."""
    for name in ("own.yaml", "own.expected.json"):
        shutil.copy(recorded / name, tmp_path)
    return tmp_path / "own.yaml"


def test_the_same_config_passes(own):
    done = run_cli("reproduce", own.name, cwd=own.parent)
    lines = done.stdout.splitlines()
    assert lines[0] == "own.yaml on Pendulum-v1: return of the last checkpoint, 20 episodes per seed"
    assert lines[1].startswith("recorded: IQM -")
    assert lines[1].endswith("of 5 seeds, 0..4")
    assert "of 5 seeds, 5..9: -" in lines[2]  # others than those recorded
    iqm = read_expectations(str(own)).results["Pendulum-v1"].iqm
    assert f"if no more than 2 % of the recorded IQM ({return_text(0.02 * abs(iqm))}) is lost" in lines[3]
    assert lines[4].startswith("PASS: ")
    assert "99 %" in lines[5]
    assert re.search(r"its 5 recorded seeds took about [\d.]+ (s|min) on cpu", done.stderr)
    assert (own.parent / "runs" / "reproduce" / "own" / "run.json").exists()


def test_a_sabotaged_config_fails(own):
    own.write_text(CLONING.replace("3e-3", "1e-9"))
    done = run_cli("reproduce", own.name, "--run-dir", "run", cwd=own.parent, code=8)
    assert "p = 0.004: " in done.stdout  # every seed below every recorded one: one choice in 252
    assert done.stdout.splitlines()[-1].startswith("FAIL: ")
    assert "remark: own.yaml has been changed since it was measured" in done.stdout
    assert done.stderr.splitlines()[-1] == "error: own.yaml was not reproduced; the run is run"


def test_an_interrupted_replication_continues_and_a_finished_one_is_judged_again(own, tmp_path, capsys):
    run = tmp_path / "run"
    plan = plan_replication(str(own), run_dir=run)
    with pytest.raises(Cut):
        ExperimentManager(plan.config, run).train(callbacks=[CutAt("checkpoint", 300)])
    done = call_cli(capsys, "reproduce", own, "--run-dir", run)
    assert "training from step 300" in done.stderr
    assert "nothing was trained" not in done.stdout
    before = contents(run)
    os.utime(run / "run.json", (1_700_000_000, 1_700_000_000))
    told = "nothing was trained now, a run finished 2023-11-14 22:13 UTC is judged again; --overwrite trains anew"
    done = call_cli(capsys, "reproduce", own, "--run-dir", run)
    assert f"remark: {told}" in done.stdout.splitlines()
    assert done.stderr.splitlines()[0].endswith(f"seeds 5..9 in {run}; they are trained already")
    again = json.loads(call_cli(capsys, "reproduce", own, "--run-dir", run, "--json").stdout)
    assert contents(run) == before
    assert (again["trained"], again["remarks"]) == (False, [told])
    assert (again["verdict"], again["result"], again["found"]["seeds"]) == ("PASS", "Pendulum-v1", [5, 6, 7, 8, 9])
    beside = own.with_suffix(".expected.json")
    beside.write_text(beside.read_text().replace(f'"torch": "{torch.__version__}"', '"torch": "1.0"'))
    changed = json.loads(call_cli(capsys, "reproduce", own, "--run-dir", run, "--json").stdout)
    assert changed["remarks"] == [told, f"versions differ: torch 1.0 there, {torch.__version__} here"]
    beside.write_text(beside.read_text().replace('"torch": "1.0"', f'"torch": "{torch.__version__.partition("+")[0]}"'))
    assert json.loads(call_cli(capsys, "reproduce", own, "--run-dir", run, "--json").stdout)["remarks"] == [told]
    refused = call_cli(capsys, "reproduce", own, "--run-dir", run, "--seeds", "20..23", code=2)
    assert "holds a run with other settings (seeds); pass --overwrite or another --run-dir" in refused.stderr
    other = call_cli(capsys, "reproduce", own, "--run-dir", run, "--seeds", "1..4", "--overwrite", "--json")
    report = json.loads(other.stdout)
    assert report["trained"]
    assert report["found"]["scores"] == report["recorded"]["scores"][1:]  # bit for bit
    assert "4 of the seeds are recorded ones" in report["remarks"][0]


def test_versions_that_the_run_does_not_name_are_remarked_on(own, recorded):
    plan = plan_replication(str(own))
    versions = {"numpy": "1.0", "pytest": "2.3.7", "no-such-library": "3"}
    known = plan.expectation.model_copy(update={"versions": versions})
    there = replace(plan, run_dir=recorded / "recorded", expectation=known)
    pytest_here, numpy = metadata.version("pytest"), metadata.version("numpy")
    assert there.remarks() == [
        f"versions differ: numpy 1.0 there, {numpy} here; pytest 2.3.7 there, {pytest_here} here; "
        "no-such-library 3 there, missing here"
    ]
    assert replace(there, finished="2023-11-14").remarks()[1:] == [  # nobody knows what was installed then
        f"versions differ: numpy 1.0 there, {numpy} here; pytest 2.3.7 there, unknown here; "
        "no-such-library 3 there, unknown here"
    ]


class Terminate(Callback):
    """Asks the process to stop, as a user does, at the first checkpoint; stopping writes another one."""

    asked = False

    def on_checkpoint(self, step, path):
        if not self.asked:
            self.asked = True
            os.kill(os.getpid(), signal.SIGTERM)


def test_an_interrupted_command_names_itself_not_resume(own, tmp_path, capsys, monkeypatch):
    train_once, run = ExperimentManager.train, tmp_path / "a run"
    monkeypatch.setattr(ExperimentManager, "train", functools.partialmethod(train_once, callbacks=[Terminate()]))
    stopped = call_cli(capsys, "reproduce", own, "--run-dir", run, "--seeds", "5..9", "--overwrite", code=143)
    command = re.search("go on with `(.*)`", stopped.stderr)[1]
    assert command == f"rl-training reproduce {own} --seeds 5..9 --run-dir '{run}'"
    monkeypatch.setattr(ExperimentManager, "train", train_once)
    done = call_cli(capsys, *shlex.split(command)[1:])
    assert "training from step 400 to 600" in done.stderr  # the boundary after the checkpoint
    assert "PASS: " in done.stdout


class Poison(Callback):
    """Makes two members diverge after the first checkpoint."""

    def on_start(self, learner):
        self.learner = learner

    def on_checkpoint(self, step, path):
        self.learner.model.trained.flat[[1, 3], 0] = math.nan


def test_seeds_that_diverge_count_as_the_worst(own, tmp_path, capsys):
    plan = plan_replication(str(own), run_dir=tmp_path / "run")
    ExperimentManager(plan.config, plan.run_dir).train(callbacks=[Poison()])
    report = json.loads(call_cli(capsys, "reproduce", own, "--run-dir", plan.run_dir, "--json").stdout)
    assert [score is None for score in report["found"]["scores"]] == [False, True, False, True, False]
    assert report["remarks"][0] == "2 of 5 seeds diverged; they count as the worst"


def test_a_config_of_which_every_seed_diverges_fails(own, tmp_path, capsys):
    iql = CLONING.replace("algo: bc", "algo: iql").replace("algo_kwargs:", "algo_kwargs:\n  reward: {scale: 1e30}")
    own.write_text(iql)
    done = call_cli(capsys, "reproduce", own, "--run-dir", tmp_path / "run", "--json", code=8)
    report = json.loads(done.stdout)
    assert report["found"] == {"iqm": None, "seeds": [5, 6, 7, 8, 9], "scores": [None] * 5}
    assert report["remarks"][0] == "5 of 5 seeds diverged; they count as the worst"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("own.yaml", "--seeds", "20,21"), "2 against 5 recorded ones cannot fail, however bad they are: the test needs 4"),
        (
            ("own.yaml", "--expect", "Hopper-v5"),
            "no result is recorded for Hopper-v5; choose by --expect NAME (recorded: Pen",
        ),
        (
            ("own.yaml", "--env", "MountainCarContinuous-v0", "--expect", "Pendulum-v1"),
            "--env MountainCarContinuous-v0: Pendulum-v1 was recorded in Pendulum-v1",
        ),
        (
            ("iql/d4rl-locomotion", "--dataset", "hopper-medium.npz", "--env", "Walker2d-v5"),
            "--env Walker2d-v5: hopper-medium was recorded in Hopper-v5",
        ),
        (("own.yaml", "--run-dir", ""), "the run directory has an empty name"),
        (("own.yaml", "--seeds", "7,7,8,9"), "seeds must differ"),
        (("iql",), "is an algorithm; name a config, such as iql/pendulum"),
        (("iql/pendulm",), "Did you mean `iql/pendulum`"),
        (
            ("sac/mujoco",),
            "what it should reach has not been recorded (no mujoco.expected.json beside it); "
            "`rl-training reproduce sac/mujoco --record` records it",
        ),
        (
            ("iql/d4rl-locomotion",),
            "needs data: a set such as hopper-medium, made by `python -m benchmarks.locomotion.data hopper-m",
        ),
        (("iql/d4rl-locomotion", "--dataset", "none-such.npz"), "no result is recorded for none-such"),
    ],
)
def test_what_proves_nothing_is_refused_first(own, monkeypatch, capsys, arguments, said):
    monkeypatch.chdir(own.parent)
    done = call_cli(capsys, "reproduce", *arguments, code=2)
    assert said in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert not (own.parent / "runs").exists()


def test_data_are_named_by_their_file(own, tmp_path, capsys):
    """A config that leaves its data open: the result of the file's name is meant, and other data are remarked on."""
    text = CLONING.replace("env_id: Pendulum-v1\n", "").replace(CLONING[CLONING.index("  dataset:") :], "\n")
    own.write_text(text)
    for name, seed in (("swing.npz", 1), ("other.npz", 2)):
        collect = ("scripted", "--env", "Pendulum-v1", "--rows", 2000, "--seed", seed, "--workers", 0)
        call_cli(capsys, "collect", *collect, "--out", tmp_path / name)
    config = recipe_config(str(own), ["env_id=Pendulum-v1"], range(5), dataset=[str(tmp_path / "swing.npz")])
    train(config, tmp_path / "measured")
    record(str(own), "swing", tmp_path / "measured", settings=["env_id=Pendulum-v1"], episodes=20, command="make own")
    done = call_cli(capsys, "reproduce", own, "--dataset", tmp_path / "swing.npz", "--run-dir", tmp_path / "a", "--json")
    assert json.loads(done.stdout)["result"] == "swing"
    assert json.loads(done.stdout)["remarks"] == []
    other = ("--dataset", tmp_path / "other.npz", "--expect", "swing", "--run-dir", tmp_path / "b", "--json")
    done = call_cli(capsys, "reproduce", own, *other)
    behind, told = json.loads(done.stdout)["remarks"]
    assert re.fullmatch(r"their IQM is [\d.]+ below the recorded one \(\d+%\): so few seeds do not tell .*", behind)
    assert told == "the data are not byte for byte those that were measured"


def test_a_config_of_ones_own_is_recorded(own, capsys, monkeypatch):
    """Without a checkout; where it is logged is no part of what it reaches."""
    monkeypatch.chdir(own.parent)
    beside = own.with_suffix(".expected.json")
    there = call_cli(capsys, "reproduce", "own.yaml", "--record", "--seeds", "0..2", code=2).stderr
    assert there == f"error: {beside.name}: has a result for Pendulum-v1; pass --overwrite to measure it anew\n"
    beside.unlink()
    own.write_text(f"log: [wandb]\n{CLONING}")
    recording = ("reproduce", own, "--record", "--seeds", "0..2", "--episodes", 1)
    done = call_cli(capsys, *recording)
    found = read_expectations(str(own)).results["Pendulum-v1"]
    assert found.command == "rl-training reproduce own.yaml --record --seeds 0..2 --episodes 1"  # nobody's folders
    assert (len(found.scores), found.episodes) == (3, 1)
    assert " of seeds 0..2, 1 episode each: -" in done.stdout
    assert found.iqm == aggregate(found.scores)  # every digit: rewards may be tiny
    assert done.stdout.splitlines()[-1] == f"check it with other seeds: rl-training reproduce {own}"
    assert json.loads((own.parent / "runs/recorded/own/run.json").read_text())["status"] == "finished"
    again = json.loads(call_cli(capsys, *recording, "--overwrite", "--json").stdout)
    assert again["scores"] == list(found.scores)
    assert "its 3 recorded seeds" in call_cli(capsys, "reproduce", "own.yaml", "--seeds", "3..9").stderr
    assert call_cli(capsys, "reproduce", "own.yaml", "--episodes", 2, code=2).stderr.startswith(
        "error: --episodes: is recorded "
    )
    packaged = call_cli(capsys, "reproduce", "bc/pendulum", "--record", "--overwrite", code=2).stderr
    assert "`rl-training list bc/pendulum > own.yaml` makes it a file of yours" in packaged


def test_a_recording_that_was_interrupted_goes_on(own, tmp_path, capsys, monkeypatch):
    train_once, run = ExperimentManager.train, tmp_path / "run"
    monkeypatch.setattr(ExperimentManager, "train", functools.partialmethod(train_once, callbacks=[Terminate()]))
    recording = ("reproduce", own, "--record", "--seeds", "5..7", "--run-dir", run)
    stopped = call_cli(capsys, *recording, "--overwrite", code=143)
    command = re.search("go on with `(.*)`", stopped.stderr)[1]
    assert command == f"rl-training reproduce {own} --record --seeds 5..7 --run-dir {run}"
    assert read_expectations(str(own)).results["Pendulum-v1"].seeds == (0, 1, 2, 3, 4)
    monkeypatch.setattr(ExperimentManager, "train", train_once)
    assert "training from step 400 to 600" in call_cli(capsys, *shlex.split(command)[1:]).stderr
    assert read_expectations(str(own)).results["Pendulum-v1"].seeds == (5, 6, 7)


LEVEL = """
import gymnasium
from gymnasium.envs.classic_control import PendulumEnv
gymnasium.register(id="Recorded-v0", entry_point=PendulumEnv, max_episode_steps=20)
"""


def measured(monkeypatch, *arguments):
    """The exit code of `python -m benchmarks.expected`."""
    monkeypatch.setattr(sys, "argv", ["expected", *map(str, arguments)])
    return exit_code_of(expected.main, [])


def test_own_environments_are_recorded(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    (tmp_path / "recorded_env.py").write_text(LEVEL)
    text = CLONING[: CLONING.index("  dataset:")].replace("Pendulum-v1", "Recorded-v0").replace("600", "20")
    (tmp_path / "own.yaml").write_text(f"{text}  dataset: {{path: log.npz}}\n")
    record = ("own.yaml", "--seeds", "0..2", "--episodes", "2")
    assert measured(monkeypatch, "own.yaml", "--seeds", "0..1") == 2
    assert capsys.readouterr().err == "error: --seeds: 2 are too few for a record, which needs 3 or more\n"
    assert measured(monkeypatch, *record) == 2
    assert "unknown environment 'Recorded-v0'." in capsys.readouterr().err
    assert measured(monkeypatch, *record, "--import", "recorded_env") == 3
    told = capsys.readouterr().err
    assert told.startswith(f"error: {tmp_path / 'log.npz'}: there is no such file")
    assert told.count("\n") == 1
    assert measured(monkeypatch, *record, "--import", "none_such") == 2
    collect = ("random", "--env", "Recorded-v0", "--rows", 200, "--workers", 0, "--out", "log.npz")
    call_cli(capsys, "collect", *collect)
    unrecorded = call_cli(capsys, "reproduce", "own.yaml", "--import", "recorded_env", code=2).stderr
    assert "`rl-training reproduce own.yaml --record --import recorded_env` records it" in unrecorded
    assert measured(monkeypatch, *record, "--import", "recorded_env") == 0
    found = read_expectations("own.yaml").results["Recorded-v0"]
    assert found.command == "python -m benchmarks.expected own.yaml --seeds 0..2 --import recorded_env"
    assert len(found.scores) == 3


def test_list_shows_what_a_config_should_reach(capsys):
    report = json.loads(call_cli(capsys, "list", "bc/pendulum", "--json").stdout)["expected"]["Pendulum-v1"]
    low, high = report["interval"]
    lines = call_cli(capsys, "list", "bc/pendulum").stdout.splitlines()
    assert lines[-3] == (
        f"# reaches on Pendulum-v1: return {report['iqm']:.1f} [{low:.1f}, {high:.1f}] (IQM of 8 seeds, 95 %) "
        "after 10,000 gradient steps, on 50 episodes, the same for all seeds: others give other returns"
    )
    assert lines[-2:] == [
        "# measured by python -m benchmarks.expected bc/pendulum --seeds 100..107",
        "# check it with new seeds: rl-training reproduce bc/pendulum",
    ]


def test_list_names_the_data_that_a_config_needs(capsys):
    lines = call_cli(capsys, "list", "iql/d4rl-locomotion").stdout.splitlines()
    case = next(line for line in lines if line.startswith("# reaches on ")).split()[3].rstrip(":")
    assert lines[-2] == f"# check it with new seeds: rl-training reproduce iql/d4rl-locomotion --dataset data/{case}"
    assert lines[-1].startswith("# it needs a set such as hopper-medium, made by `python -m benchmarks.locomotion.data ")
