"""Sweeps as runs: what they refuse, what they show, exact resume, and members that go on alone."""

import json
import re
from dataclasses import asdict

import numpy as np
import pytest
import torch
import yaml

from rl_training import IQL
from rl_training.api.evaluating.report import evaluation_report
from rl_training.api.evaluating.spread import mean_interval
from rl_training.api.policy import Policy
from rl_training.envs.evaluation import Evaluation
from rl_training.errors import CheckpointError, ConfigError, StorageError
from rl_training.experiment import ExperimentManager, export_member, make_config
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.runtime.population import MemberRecord, best_combination, combinations
from tests.contract import make_learner
from tests.helpers import Cut, CutAt, assert_same_run, call_cli, checkpoints, metric_rows, run_values, tiny_run

SWEEP = {"expectile": [0.9, 0.6], "beta": [1.0, 5.0]}
SAC_SWEEP = {"alpha": [0.1, 1.0], "actor_learning_rate": [1e-3, 1e-4]}


def swept(algo="iql", **sweep):
    return make_config(run_values(algo, sweep=sweep, seeds=[3, 8]))


def test_members_are_every_combination_with_every_seed():
    config = swept(expectile=[0.9, 0.6], beta=[1, 5])
    assert config.member_seeds == (3, 8) * 4
    assert config.member_knobs[::2] == config.member_knobs[1::2]
    assert list(config.member_knobs[::2]) == [
        {"expectile": 0.9, "beta": 1.0},
        {"expectile": 0.9, "beta": 5.0},
        {"expectile": 0.6, "beta": 1.0},
        {"expectile": 0.6, "beta": 5.0},
    ]
    again = make_config(json.loads(json.dumps(config.record(), sort_keys=True)))  # as a checkpoint keeps it
    assert again.member_knobs == config.member_knobs
    assert make_config(yaml.safe_load(config.to_yaml())) == config
    assert make_config(run_values(sweep={"tau": np.array([0.1, 0.2])})).member_seeds == (0, 0)
    assert make_config(run_values()).member_knobs == ({},)


SHARED = "it sets a shape or a choice that all members share."
CAN = (
    "What can be: actor_learning_rate, actor_weight_decay, max_grad_norm, gamma, tau, critic_learning_rate, "
    "critic_weight_decay, value_learning_rate, expectile, beta"
)


@pytest.mark.parametrize(
    ("sweep", "words"),
    [
        ({"expectle": [0.7]}, f"`expectle` cannot be swept: there is no such knob. Did you mean `expectile`? {CAN}"),
        ({"hidden_sizes": [[8], [16]]}, f"`hidden_sizes` cannot be swept: {SHARED} {CAN}"),
        ({"critic_loss": ["mse", "huber"]}, f"`critic_loss` cannot be swept: {SHARED} {CAN}"),
        ({"batch_size": [8, 16]}, "`batch_size` cannot be swept"),
        ({"reward": [1.0, 2.0]}, "`reward` cannot be swept"),
        ({"expectile": []}, "`expectile` = [] is not legal: must be a list of numbers"),
        ({"expectile": 0.7}, "`expectile` = 0.7 is not legal: must be a list of numbers"),
        ({}, "must be a mapping from knobs to lists of numbers"),
        (7, "must be a mapping from knobs to lists of numbers"),
        ({"expectile": [0.7, 0.8, 0.7]}, "`expectile` has the same value twice: 0.7, 0.8, 0.7"),
        ({"expectile": [0.7, 1.5]}, "`expectile` = 1.5 is not legal: must be a number >= 0.5 and < 1.0"),
        ({"expectile": [0.7, float("nan")]}, "`sweep.expectile.1` = nan is not legal"),
        ({"expectile": [0.7, True]}, "`sweep.expectile.1` = True is not legal"),
        ({"beta": [1.0, None]}, "`sweep.beta.1` = None is not legal"),
        ([{"beta": [1.0]}, {"beta": [2.0]}], "names a knob twice: beta, beta"),
        ({"tau": list(np.linspace(0.1, 0.9, 3000))}, "3,000 combinations x 2 seeds are too many members: at most 4,096"),
        ({name: list(np.linspace(0.1, 0.9, 2000)) for name in ("gamma", "tau", "beta")}, "8,000,000,000 combinations"),
    ],
)
def test_refusals_are_one_line(sweep, words):
    with pytest.raises(ConfigError) as caught:
        make_config(run_values(sweep=sweep, seeds=[0, 1]))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("algo", "sweep", "words"),
    [
        ("cal_ql", {"gamma": [0.9, 0.99]}, "`gamma` cannot be swept: the data that all members share is processed with it"),
        ("cal_ql", {"failure_reward": [0.0, -1.0]}, "`failure_reward` cannot be swept: the data"),
        ("iql", {"n_step": [1, 3]}, "`n_step` cannot be swept: the data that all members share is processed with it"),
        ("cql", {"num_cql_samples": [2, 4]}, "`num_cql_samples` cannot be swept"),
        ("redq", {"subset_size": [1, 2]}, "`subset_size` cannot be swept"),
        ("sac", {"alpha": ["auto", 0.1]}, "`sweep.alpha.0` = 'auto' is not legal"),
        ("rlpd", {"target_entropy": [-1.0, -2.0]}, "`target_entropy` would do nothing: alpha is a fixed number"),
        ("sac", {"alpha": [0.1], "target_entropy": [1.0]}, "`target_entropy` would do nothing"),
        ("xql", {"expectile": [0.7, 0.9]}, "`expectile` would do nothing: vanilla_value_loss is false"),
        ("cql", {"cql_clip_diff_min": [0, 2], "cql_clip_diff_max": [1]}, "cql_clip_diff_min = 2.0 must be below"),
    ],
)
def test_refusals_by_algorithm(algo, sweep, words):
    with pytest.raises(ConfigError) as caught:
        swept(algo, **sweep)
    assert words in str(caught.value)


def test_gamma_is_swept_over_single_steps_only():
    """Over several steps the rows that all members share are summed with it."""
    assert [own["gamma"] for own in swept(gamma=[0.9, 0.99]).member_knobs] == [0.9, 0.9, 0.99, 0.99]
    with pytest.raises(
        ConfigError, match="`gamma` cannot be swept: the data that all members share is processed with it"
    ) as caught:
        make_config(run_values("iql", algo_kwargs={"n_step": 3}, sweep={"gamma": [0.9, 0.99]}))
    assert "gamma" not in str(caught.value).partition("What can be:")[2]
    with pytest.raises(ConfigError, match="`gamma` cannot be swept"):
        make_learner("sac", seeds=(0, 1), n_step=3, member_knobs=[{"gamma": 0.9}, {"gamma": 0.99}])


def test_a_fault_is_named_with_its_line(tmp_path, capsys):
    (tmp_path / "c.yaml").write_text("algo: iql\nenv_id: Pendulum-v1\nsweep:\n  tau: [0.1, 3]\n")
    done = call_cli(capsys, "train", tmp_path / "c.yaml", code=2)
    assert "c.yaml:3: in `sweep`: `tau` = 3" in done.stderr
    for text, words in (
        ("tau", "must look like expectile=0.7,0.8,0.9"),
        ("tau=", "must look like"),
        ("tau=0.1,,0.2", "must look like"),
        ("tau=x", "`sweep.tau.0` = 'x' is not legal"),
    ):
        assert words in call_cli(capsys, "train", "iql/pendulum", "--sweep", text, code=2).stderr
    twice = call_cli(capsys, "train", "iql/pendulum", "--sweep", "tau=0.1", "--sweep", "tau=0.2", code=2)
    assert "`tau` was given before" in twice.stderr


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    """An offline and an online sweep of two knobs and two seeds each."""
    folder = tmp_path_factory.mktemp("sweeps")
    results = {"iql": tiny_run(folder / "iql", sweep=SWEEP, seeds=[3, 8])}
    results["sac"] = tiny_run(folder / "sac", "sac", sweep=SAC_SWEEP, seeds=[3, 8])
    return folder, results


@pytest.mark.parametrize("algo", ["iql", "sac"])
def test_members_follow_their_solo_runs(algo, runs, tmp_path):
    folder, results = runs
    rows = metric_rows(folder / algo)
    for member in (0, 5):
        record = results[algo].members[member]
        tiny_run(tmp_path / str(member), algo, seed=record.seed, algo_kwargs=record.knobs)
        mine = [row for row in rows if row["member"] == member]
        solo = metric_rows(tmp_path / str(member))
        assert len(mine) == len(solo) > 10
        for left, right in zip(mine, solo, strict=True):
            assert {name: left[f"knob/{name}"] for name in record.knobs} == record.knobs
            assert set(left) - {f"knob/{name}" for name in record.knobs} == set(right)
            for name in right:
                if name.startswith("train/"):
                    assert left[name] == pytest.approx(right[name], rel=1e-4, abs=1e-5), (left, name)


def test_the_result_and_the_policy_show_the_combinations(runs):
    folder, results = runs
    found = results["iql"].combinations
    assert [one.knobs for one in found] == [{"expectile": e, "beta": b} for e in (0.9, 0.6) for b in (1.0, 5.0)]
    assert [one.members for one in found] == [[0, 1], [2, 3], [4, 5], [6, 7]]
    returns = results["iql"].final_evaluation.member_means
    assert [one.return_mean for one in found] == pytest.approx([np.mean(returns[i : i + 2]) for i in (0, 2, 4, 6)])
    assert [one.return_std for one in found] == pytest.approx([np.std(returns[i : i + 2], ddof=1) for i in (0, 2, 4, 6)])
    seen = [record.last_return for record in results["iql"].members]  # in training
    by_training = Policy.load(folder / "iql").combinations
    assert IQL.load(folder / "iql").combinations == by_training
    assert [one.return_mean for one in by_training] == pytest.approx([np.mean(seen[i : i + 2]) for i in (0, 2, 4, 6)])
    report = IQL.load(folder / "iql").evaluate(2)
    intervals = [one.pop("return_interval") for one in report["combinations"]]
    episodes = np.array(report["returns"]).reshape(4, -1)
    assert [one.pop("return_std") for one in report["combinations"]] == pytest.approx(episodes.std(axis=1))  # as everywhere
    expected = [asdict(one) for one in found]  # the same episodes, which training never saw
    assert [one.pop("std_over_seeds") for one in report["combinations"]] == [one.pop("return_std") for one in expected]
    assert report["combinations"] == expected
    assert intervals == [mean_interval(np.array(returns[i : i + 2])) for i in (0, 2, 4, 6)]
    assert report["return_interval"] is None  # combinations are no seeds of one thing
    assert report["members"][2]["knobs"] == {"expectile": 0.9, "beta": 5.0}
    assert [one["members"] for one in report["combinations"]] == [[0, 1], [2, 3], [4, 5], [6, 7]]


def test_best_combination_is_one_that_lost_the_fewest_members():
    def record(tau, score, status="training"):
        return MemberRecord(0, status=status, last_return=score, knobs={"tau": tau})

    found = combinations([record(0.1, 5.0), record(0.1, 9.0, "diverged"), record(0.2, 1.0), record(0.2, 3.0)])
    assert [(one.return_mean, one.diverged) for one in found] == [(5.0, 1), (2.0, 0)]
    assert [one.return_std for one in found] == [None, pytest.approx(2**0.5)]  # one value has no deviation
    assert best_combination(found).knobs == {"tau": 0.2}
    assert best_combination(combinations([record(0.1, None)])) is None
    assert combinations([MemberRecord(0, last_return=1.0)]) == []


@pytest.mark.parametrize("algo", ["iql", "sac"])
def test_a_sweep_resumes_exactly_and_with_no_other(algo, runs, tmp_path):
    folder, _ = runs
    sweep = SWEEP if algo == "iql" else SAC_SWEEP
    with pytest.raises(Cut):
        tiny_run(tmp_path, algo, sweep=sweep, seeds=[3, 8], callbacks=[CutAt("log", 70)])
    for other in ({**sweep, "tau": [0.1]}, dict(reversed(sweep.items())), None):
        with pytest.raises(ConfigError, match="was written with another config: .*sweep was "):
            tiny_run(tmp_path, algo, sweep=other, seeds=[3, 8], resume=True)
    tiny_run(tmp_path, algo, sweep=sweep, seeds=[3, 8], resume=True)
    assert_same_run(folder / algo, tmp_path)


@pytest.mark.parametrize("algo", ["iql", "sac"])
def test_a_member_goes_on_alone_with_its_knobs(algo, runs, tmp_path):
    """Cut in the middle: alone it goes on as the member does among the others, exported or resumed."""
    folder, results = runs
    sweep, record = SWEEP if algo == "iql" else SAC_SWEEP, results[algo].members[5]
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", algo, sweep=sweep, seeds=[3, 8], callbacks=[CutAt("log", 70)])
    export_member(tmp_path / "cut", tmp_path / "exported", member=5)
    whole = load_checkpoint(checkpoints(folder / algo)[-1])
    for manager, checkpoint in (
        ExperimentManager.resuming(tmp_path / "cut", tmp_path / "alone", 5),
        ExperimentManager.resuming(tmp_path / "exported"),
    ):
        start = checkpoint or load_checkpoint(checkpoints(tmp_path / "exported")[-1])  # in place it is found under the lock
        assert start.position == 60
        assert (manager.config.sweep, manager.config.seeds, manager.config.seed) == (None, None, 8)
        assert {name: getattr(manager.config.algo_kwargs, name) for name in record.knobs} == record.knobs
        result = manager.train(resume=True, checkpoint=checkpoint)
        last = load_checkpoint(result.checkpoint)
        assert result.members[0].knobs == {}
        for name, value in last.learner_tensors.items():
            assert torch.allclose(value[0].double(), whole.tensors[name][5].double(), rtol=1e-3, atol=1e-5), name
    mine = [row for row in metric_rows(folder / algo) if row["member"] == 5]
    exported = metric_rows(tmp_path / "exported")
    assert [set(row) | {f"knob/{name}" for name in sweep} for row in exported] == [set(row) for row in mine]
    assert {row["member"] for row in exported} == {0}
    assert (
        make_config(run_values(algo, seed=8, algo_kwargs=record.knobs))
        == ExperimentManager.open(tmp_path / "exported").config
    )


def test_an_export_is_an_ordinary_run(runs, tmp_path):
    folder, _ = runs
    path = export_member(folder / "iql", tmp_path / "deep" / "one", member=6)
    policy, all_of_them = Policy.load(path), Policy.load(folder / "iql")
    observation = [1.0, 0.0, 0.0]
    assert policy.predict(observation) == pytest.approx(all_of_them.predict(observation, member=6), abs=1e-6)
    assert policy.evaluate(2).returns[0] == pytest.approx(all_of_them.evaluate(2).returns[6], rel=1e-3)
    assert json.loads((path / "run.json").read_text())["status"] == "finished"
    manager, checkpoint = ExperimentManager.finetuning(path, {"env_steps": 20})
    assert manager.train(resume=True, checkpoint=checkpoint).env_step == 20
    lone = IQL.load(folder / "iql").save(tmp_path / "lone")
    assert Policy.load(export_member(lone, tmp_path / "two", member=6)).config == policy.config
    older = checkpoints(folder / "iql")[0]
    early = export_member(older, tmp_path / "three", member=6)
    assert load_checkpoint(checkpoints(early)[-1]).step < 120
    assert json.loads((early / "run.json").read_text())["status"] == "exported"


def test_a_whole_sweep_is_finetuned(tmp_path):
    tiny_run(tmp_path, sweep={"expectile": [0.6, 0.9]}, total_timesteps=40)
    manager, checkpoint = ExperimentManager.finetuning(tmp_path, {"env_steps": 20})
    result = manager.train(resume=True, checkpoint=checkpoint)
    assert [record.knobs for record in result.members] == [{"expectile": 0.6}, {"expectile": 0.9}]
    assert result.env_step == 20


def test_an_export_is_refused_whole(runs, tmp_path):
    folder, _ = runs
    run, out = folder / "iql", tmp_path / "out"
    for words, request in (
        ("members 0, 2, 4, 6 have seed 3; say which with --member", {"seed": 3}),
        ("no member has seed 5; there are 3, 8", {"seed": 5}),
        ("member 8 not found: the checkpoint has members 0 to 7", {"member": 8}),
        ("pass either --member or --seed", {}),
        ("pass either --member or --seed", {"member": 0, "seed": 3}),
    ):
        with pytest.raises(ConfigError, match=words):
            export_member(run, out, **request)
    with pytest.raises(ConfigError, match="already exists; choose another --out"):
        export_member(run, tmp_path, member=0)
    with pytest.raises(CheckpointError, match="there is no run or checkpoint here"):
        export_member(tmp_path / "absent", out, member=0)
    (tmp_path / "file").write_text("")
    with pytest.raises(StorageError, match="cannot be written"):
        export_member(run, tmp_path / "file" / "out", member=0)
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file"]


def test_a_failed_export_leaves_nothing(runs, tmp_path, monkeypatch):
    folder, _ = runs

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("rl_training.storage.replace_file", full)
    with pytest.raises(StorageError, match="No space left"):
        export_member(folder / "iql", tmp_path / "out", member=0)
    assert list(tmp_path.iterdir()) == []


def test_the_command_line_from_sweep_to_a_member_alone(tmp_path, capsys):
    (tmp_path / "tiny.yaml").write_text(yaml.safe_dump(run_values(learning_rate_schedule="constant")))
    run, one = tmp_path / "run", tmp_path / "one"
    done = call_cli(
        capsys,
        *("train", tmp_path / "tiny.yaml", "--sweep", "expectile=0.6,0.9", "--sweep", "actor_learning_rate=3e-4"),
        *("--seeds", "0..1", "--run-dir", run),
    )
    assert "seed 1 (expectile=0.9, actor_learning_rate=0.0003): return -" in done.stdout
    lines = done.stdout.splitlines()
    assert lines[4].startswith("combinations over their seeds, on new episodes; the returns above are of the last evaluation")
    assert lines[5].split() == ["expectile", "actor_learning_rate", "return", "std", "members"]
    assert [line.split()[0] for line in lines[6:8]] == ["0.6", "0.9"]
    assert lines[8].startswith("best: expectile=0.")
    text = call_cli(capsys, "evaluate", run, "--episodes", "2").stdout
    assert "member 3 seed 1 (expectile=0.9, actor_learning_rate=0.0003): -" in text
    assert lines[8].endswith(" (mean of 2 seeds, on these new episodes)")
    assert lines[9].startswith(f"may it be chance? `rl-training compare {run} --against all` tells")
    assert "\nreturn " not in text  # a mean over combinations is of nothing
    headings = r"\nexpectile +actor_learning_rate +return +std +95 % of the mean +members\n"
    assert re.search(headings + r"0.6 .* to -?\d+\.\d +2\n", text)
    assert re.search(r"\nbest: expectile=0\..* \(mean of 2 seeds, on these episodes\)\n", text)
    report = json.loads(call_cli(capsys, "evaluate", run, "--episodes", "2", "--json").stdout)
    assert report["members"][3]["knobs"] == {"expectile": 0.9, "actor_learning_rate": 3e-4}
    again = json.loads(call_cli(capsys, "resume", run, "--json").stdout)
    assert [one["members"] for one in again["combinations"]] == [[0, 1], [2, 3]]
    assert again["members"][2]["knobs"]["expectile"] == 0.9
    assert "(expectile=0." in call_cli(capsys, "predict", run, "--obs", "[1, 0, 0]").stderr

    ambiguous = call_cli(capsys, "export-member", run, "--seed", 1, "--out", one, code=2)
    assert "members 1, 3 have seed 1; say which with --member" in ambiguous.stderr
    exported = json.loads(call_cli(capsys, "export-member", run, "--member", 3, "--out", one, "--json").stdout)
    assert exported == {"run_dir": str(one), "algo": "iql", "seed": 1}
    assert "already exists" in call_cli(capsys, "export-member", run, "--member", 3, "--out", one, code=2).stderr
    solo = json.loads(call_cli(capsys, "evaluate", one, "--episodes", "2", "--json").stdout)
    assert solo["return_mean"] == pytest.approx(report["members"][3]["return_mean"], rel=1e-3)
    further = json.loads(call_cli(capsys, "resume", one, "--total-timesteps", 160, "--json").stdout)
    assert further["step"] == 160
    assert [row["step"] for row in metric_rows(one) if "train/critic_loss" in row] == list(range(10, 161, 10))
    config = yaml.safe_load((one / "config.yaml").read_text())
    assert (config["sweep"], config["seeds"], config["seed"], config["algo_kwargs"]["expectile"]) == (None, None, 1, 0.9)
    by_seed = tmp_path / "by-seed"
    call_cli(capsys, "export-member", one, "--seed", 1, "--out", by_seed)
    assert "finished" in (by_seed / "run.json").read_text()


def test_a_member_is_not_exported_into_its_own_run(runs):
    folder, _ = runs
    with pytest.raises(ConfigError, match="is inside the run"):
        export_member(folder / "iql", folder / "iql" / "checkpoints" / "mine", member=0)


def test_diverged_members_count_with_their_last_good_policies():
    """To leave failures out would flatter what failed; `compare` counts the same members."""
    records = [MemberRecord(0, status="stopped", status_step=9), MemberRecord(1, status="diverged", status_step=30)]
    evaluation = Evaluation(np.array([[1.0, 3.0], [100.0, 100.0]]), np.full((2, 2), 5))
    report = evaluation_report(evaluation, records)
    assert (report["return_mean"], report["std_over_seeds"]) == (51.0, pytest.approx(98 / 2**0.5))
    assert "diverged_at" not in report["members"][0]
    assert report["members"][0]["stopped_at"] == 9
    assert report["members"][1]["diverged_at"] == 30
