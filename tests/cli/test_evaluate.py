"""What `evaluate` says of the episodes that it ran: how many, where, and of what its figures are."""

import json
import re

import numpy as np
import pytest

from rl_training.analysis.logged_run import LoggedRun
from rl_training.envs.reference_scores import normalized_score
from rl_training.errors import DivergedError
from rl_training.experiment.manager import ExperimentManager
from rl_training.output import return_text
from tests.helpers import call_cli, checkpoints, tiny_run
from tests.runtime.test_population import Poison


def test_the_file_says_on_what_was_evaluated(finished, capsys):
    run = finished("iql", [0, 7]).run_dir
    report = json.loads(call_cli(capsys, "evaluate", run, "--episodes", "3", "--json").stdout)
    assert [report[key] for key in ("episodes", "seed", "environment")] == [3, None, "as registered"]
    assert len(report["returns"]) == 6
    other = ("--seed", 5, "--env", "Pendulum-v1", "--env-kwargs", "{g: 9.0}")
    report = json.loads(call_cli(capsys, "evaluate", run, "--episodes", "2", *other, "--json").stdout)
    assert [report[key] for key in ("episodes", "seed", "environment")] == [2, 5, "{'g': 9.0}"]


def test_time_limit_and_wrappers_of_the_run_are_in_the_file(tmp_path, capsys):
    wrapper = {"name": "ClipReward", "kwargs": {"min_reward": -9.0}}
    tiny_run(tmp_path, max_episode_steps=50, total_timesteps=10, env_wrappers=[wrapper])
    report = json.loads(call_cli(capsys, "evaluate", tmp_path, "--episodes", "1", "--json").stdout)
    assert report["environment"] == ExperimentManager.open(tmp_path).config.final_environment.making
    assert report["environment"].startswith("50, name='ClipReward'")


def test_a_single_episode_has_no_deviation_and_no_interval(finished, capsys):
    solo, both = finished("iql").run_dir, finished("iql", [0, 7]).run_dir
    text = call_cli(capsys, "evaluate", solo, "--episodes", "1").stdout
    assert re.search(r"1 episode per member\nreturn -\d+\.\d over 1 episode\n$", text)
    report = json.loads(call_cli(capsys, "evaluate", solo, "--episodes", "1", "--json").stdout)
    assert (report["return_std"], report["return_interval"]) == (0.0, None)
    text = call_cli(capsys, "evaluate", both, "--episodes", "1").stdout
    assert re.search(r"\nreturn -\S+ \+- \S+ over 2 seeds  \(95 % of the mean", text)
    assert re.search(r"\n  member 0 seed 0: -\d+\.\d\n", text)
    text = call_cli(capsys, "evaluate", solo, "--episodes", "3").stdout
    assert re.search(r"\nreturn -\S+ \+- \S+ over 3 episodes  \(95 % of the mean", text)


def test_one_seed_of_a_combination_has_no_deviation_and_no_interval(tmp_path, capsys):
    tiny_run(tmp_path, sweep={"expectile": [0.6, 0.9]}, total_timesteps=10)
    text = call_cli(capsys, "evaluate", tmp_path, "--episodes", "2", "--normalize", "--reference", "hopper").stdout
    assert re.search(r"\nscore: D4RL hopper: -20.2\S+ is 0, ", text)
    assert re.search(r"\nexpectile +return +std +score +members\n0.6 +-\S+ +- +-\S+ +1\n", text)
    assert "(of one seed, on these episodes)" in text
    report = json.loads(call_cli(capsys, "evaluate", tmp_path, "--episodes", "2", "--json").stdout)
    found = [(one["std_over_seeds"], one["return_interval"]) for one in report["combinations"]]
    assert (found, report["return_interval"]) == ([(None, None)] * 2, None)
    one = json.loads(call_cli(capsys, "evaluate", tmp_path, "--episodes", "2", "--member", "1", "--json").stdout)
    assert "combinations" not in one
    assert one["return_interval"][0] < one["return_mean"] < one["return_interval"][1]


def test_what_diverged_after_the_checkpoint_is_told(tmp_path, capsys):
    with pytest.raises(DivergedError):
        tiny_run(tmp_path / "all", seeds=[0, 7], callbacks=[Poison(50, [0, 1])])
    done = call_cli(capsys, "evaluate", tmp_path / "all", "--episodes", "1", "--json")
    what = "what is measured is step-000000040, from before"
    assert done.stderr == f"warning: training diverged later (seeds 0, 7, 2 of 2 members); {what}\n"
    tiny_run(tmp_path / "one", seeds=[0, 7], callbacks=[Poison(100, [1])])
    early = checkpoints(tmp_path / "one")[0]
    done = call_cli(capsys, "evaluate", early, "--episodes", "1")
    assert "training diverged later (seed 7, 1 of 2 members)" in done.stderr
    for quiet in ((tmp_path / "one",), (early, "--member", "0")):  # it knows; it did not diverge
        assert call_cli(capsys, "evaluate", *quiet, "--episodes", "1").stderr == ""
    (tmp_path / "one" / "metrics.jsonl").unlink()  # then nobody knows
    assert call_cli(capsys, "evaluate", early, "--episodes", "1").stderr == ""


def test_the_spread_over_seeds_is_not_that_of_episodes(finished, capsys):
    run = finished("iql", [0, 7]).run_dir
    report = json.loads(call_cli(capsys, "evaluate", run, "--episodes", "3", "--json").stdout)
    means = [row["return_mean"] for row in report["members"]]
    assert report["std_over_seeds"] == pytest.approx(np.std(means, ddof=1))
    assert report["return_std"] == pytest.approx(np.std(report["returns"]))
    text = call_cli(capsys, "evaluate", run, "--episodes", "3").stdout
    whole, spread = return_text(report["return_std"]), return_text(report["std_over_seeds"])
    assert f"\nreturn {return_text(report['return_mean'])} +- {spread} over 2 seeds  (95 % of the mean: " in text
    assert f"\n  +- is from seed to seed; it is {whole} over all 6 episodes, and below over those of each member\n" in text
    one = json.loads(call_cli(capsys, "evaluate", run, "--episodes", "3", "--member", "1", "--json").stdout)
    assert one["std_over_seeds"] is None


def test_every_member_and_combination_has_its_normalised_score(tmp_path, capsys):
    tiny_run(tmp_path, sweep={"expectile": [0.6, 0.9]}, seeds=[0, 7], total_timesteps=10)
    asked = ("evaluate", tmp_path, "--episodes", "2", "--normalize", "--reference", "hopper")
    report = json.loads(call_cli(capsys, *asked, "--json").stdout)
    rows = [report, *report["members"], *report["combinations"]]
    assert [row["normalized_score"] for row in rows] == [normalized_score(row["return_mean"], "hopper") for row in rows]
    assert len(rows) == 7
    assert re.search(
        r"\n  member 3 seed 7 \(expectile=0.9\): -\S+ \+- \S+ \(score -\d+\.\d\)\n", call_cli(capsys, *asked).stdout
    )


def test_the_file_says_what_the_policy_learned_from(finished, tmp_path, capsys):
    run = finished("iql").run_dir
    (tmp_path / "iql.json").write_text(call_cli(capsys, "evaluate", run, "--episodes", "1", "--json").stdout)
    report = json.loads((tmp_path / "iql.json").read_text())
    recorded = json.loads((run / "run.json").read_text())["dataset"]["fingerprint"]
    assert report["data"] == {"name": LoggedRun.load(run).data, "fingerprint": recorded}
    assert "different data" not in call_cli(capsys, "compare", f"a={tmp_path / 'iql.json'}", f"b={run}").stderr
    online = json.loads(call_cli(capsys, "evaluate", finished("sac").run_dir, "--episodes", "1", "--json").stdout)
    assert online["data"] is None


def test_members_that_diverged_are_told_once(tmp_path, capsys):
    tiny_run(tmp_path, seeds=[0, 7], callbacks=[Poison(100, [1])])
    text = call_cli(capsys, "evaluate", tmp_path, "--episodes", "1").stdout
    assert re.search(r"\n  member 1 seed 7: -\S+ \(diverged at step \d+\)\n", text)
    assert text.endswith("\n1 of 2 members diverged; their last good policies count\n")
