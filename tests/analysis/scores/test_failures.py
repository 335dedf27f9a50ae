"""Members and runs that diverged, or were killed: how they count, and what is said of them."""

import json
import socket

import pytest

from rl_training.analysis.comparison import compare
from rl_training.errors import ConfigError
from tests.analysis.runs import write_run
from tests.analysis.scores.test_run_scores import LAST, WORSE, without_environment


@pytest.fixture
def runs(tmp_path):
    """Two populations on one task."""
    write_run(tmp_path / "one", [LAST])
    write_run(tmp_path / "two", [WORSE], "td3_bc")
    return tmp_path


def test_a_member_that_diverged_before_any_evaluation_counts_as_the_worst(runs):
    """To leave it out would flatter what failed, and is not said of it either."""
    two = write_run(runs / "two", [[-1.0, None, -2.0]], "td3_bc", events=[("diverged", 1), ("diverged", 2)])
    found = compare([runs / "one", runs / "two"])
    assert list(found.scores["td3_bc"]["Pendulum-v1"]) == [-1.0, min(LAST), -2.0]
    who = "td3_bc: 1 of 3 members of"
    assert found.warnings == [
        f"{who} {two} diverged before any evaluation; they count with the lowest score of their task",
        f"{who} {two} diverged; their last evaluation counts",
    ]
    files = compare({"td3_bc": two, "peers": {"Pendulum-v1": [-99.0, 0.0]}})
    assert list(files.scores["td3_bc"]["Pendulum-v1"]) == [-1.0, -99.0, -2.0]


def test_a_run_that_diverged_before_any_evaluation_counts_as_the_worst(tmp_path):
    """Also one alone, as a seed is that was trained by itself, and where all of a group failed on a task."""
    for algo, hopper in (("iql", [[5.0, 6.0]]), ("bc", [])):
        write_run(tmp_path / f"{algo}-a", [[1.0, 2.0]], algo)
        status = "finished" if hopper else "DivergedError"
        write_run(tmp_path / f"{algo}-b", hopper, algo, env_id="Hopper-v5", status=status)
    lost = write_run(tmp_path / "bc-c", [], "bc", seeds=[7], status="DivergedError")
    found = compare([f"iql={tmp_path}/iql-*", f"bc={tmp_path}/bc-*"])
    assert found.tasks == ["Pendulum-v1", "Hopper-v5"]
    assert found.scores["bc"]["Hopper-v5"].tolist() == [5.0]
    assert found.scores["bc"]["Pendulum-v1"].tolist() == [1.0, 2.0, 1.0]
    told = f"bc: 1 of 1 members of {lost} diverged before any evaluation; they count with the lowest score of their task"
    assert told in found.warnings
    with pytest.raises(ConfigError, match=r"^there is only one group \(iql\).*bc: no member has any .* \(1 of 1 diverged\)"):
        compare([f"iql={tmp_path}/iql-*", f"bc={lost}"])


def test_a_metric_that_tells_no_quality_has_no_worst_value_for_those_that_diverged(tmp_path):
    for algo in ("iql", "td3_bc"):
        without_environment(tmp_path / algo, algo, "f1" * 32)
    lines = (tmp_path / "iql" / "metrics.jsonl").read_text().splitlines(keepends=True)
    diverged = json.dumps({"step": 50, "member": 1, "seed": 1, "event": "diverged"}) + "\n"
    (tmp_path / "iql" / "metrics.jsonl").write_text(lines[0] + diverged)
    found = compare([tmp_path], metric="validation/action_distance")
    assert found.scores["iql"]["logs"].tolist() == [0.2]
    assert "iql: 1 of 2 members of" in found.warnings[0]
    assert "have no score, which may flatter it" in found.warnings[0]


def test_a_run_that_was_killed_before_its_first_evaluation_is_to_be_resumed(runs):
    new = write_run(runs / "new", [], "bc", status="running")
    with pytest.raises(ConfigError, match="has not finished; wait for its first evaluation$"):
        compare([runs / "one", new])
    (new / "run.lock").write_text(json.dumps({"host": socket.gethostname(), "pid": 1, "since": "2026-01-01T00:00:00+00:00"}))
    with pytest.raises(ConfigError, match=r"its process is gone; go on with `rl-training resume .*new`$"):
        compare([runs / "one", new])
    write_run(runs / "new", [LAST], "bc", status="running")
    assert (
        f"{new}: has not finished, and its process is gone; its scores are those after 100 steps" in compare([runs]).warnings
    )


def test_members_that_diverged_are_told_once(runs):
    two = write_run(runs / "two", [[-1.0, None]], "td3_bc", status="DivergedError")
    who = "td3_bc: 1 of 2 members of"
    assert [warning for warning in compare([runs]).warnings if "diverged" in warning] == [
        f"{two}: diverged in every member; its scores are those after 100 steps",
        f"{who} {two} diverged before any evaluation; they count with the lowest score of their task",
    ]


def test_a_group_that_diverged_as_a_whole_is_told_with_the_verdict(runs):
    write_run(runs / "two", [WORSE], "td3_bc", events=[("diverged", k) for k in range(len(WORSE))])
    told = "Every member of td3_bc diverged, so its scores are of policies before that."
    assert told in compare([runs]).conclusion
    write_run(runs / "two", [WORSE], "td3_bc", events=[("diverged", 0)])
    assert told not in compare([runs]).conclusion


def test_a_combination_that_diverged_does_not_keep_others_from_being_compared(tmp_path):
    returns = [[-10.0, -11.0, None, None, -20.0, -21.0]]
    sweep = {"seeds": [0, 1], "sweep": {"expectile": [0.7, 0.8, 0.9]}}
    run = write_run(tmp_path / "run", returns, events=[("diverged", 2), ("diverged", 3)], **sweep)
    found = compare([run])
    assert list(found.scores) == ["iql expectile=0.7", "iql expectile=0.9"]
    left_out = "iql expectile=0.8: no member has any eval/return_mean (2 of 2 diverged), so it is left out"
    assert found.warnings == [left_out]
    write_run(tmp_path / "run", [[-10.0, -11.0, None, None, None, None]], **sweep)
    empty = [f"iql expectile={value}: no member has any eval/return_mean, so it is left out" for value in ("0.8", "0.9")]
    with pytest.raises(ConfigError) as error:
        compare([run])
    only = "there is only one group (iql expectile=0.7); name two or more to compare"
    assert str(error.value) == "; ".join([only, *empty])
    (tmp_path / "peers.json").write_text(json.dumps({"corl": {"Pendulum-v1": WORSE}}))
    found = compare([run, tmp_path / "peers.json"])
    assert (list(found.scores), found.warnings) == (["iql expectile=0.7", "corl"], empty)


def test_scores_of_a_diverged_run_are_told_with_all_their_steps(tmp_path):
    write_run(tmp_path / "one", [[1.0, 2.0], [3.0, None]], status="DivergedError")
    write_run(tmp_path / "two", [[1.0, 2.0]], "td3_bc")
    told = f"{tmp_path / 'one'}: diverged in every member; its scores are those after 50 to 100 steps"
    assert told in compare([tmp_path / "one", tmp_path / "two"]).warnings
