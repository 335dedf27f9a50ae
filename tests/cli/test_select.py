"""`rl-training select`: what is printed, what comes back as JSON, and what is refused."""

import json
import sys
from types import ModuleType, SimpleNamespace

import numpy as np
import pytest

from rl_training.api.selecting import choose
from rl_training.errors import ConfigError
from tests.helpers import call_cli

LOGGED = {
    "value": 5.0,
    "interval": [4.5, 5.5],
    "return_mean": 50.0,
    "return_std": 10.0,
    "slope": 10.0,
    "offset": 0.0,
}


def policy(name, value, verdict="trust", std=1.0):
    interval = [None, None] if value is None else [value - 2 * std, value + 2 * std]
    place = {"run": name.partition("@")[0].partition(":")[0], "step": 100, "member": 0, "seed": 0, "algo": "iql"}
    found = {"value": value, "std": std, "interval": interval, "verdict": verdict, "reasons": []}
    return {"name": name, **place, "estimates": {}, "scores": {}, **found}


def report(*policies, **logged):
    figures = {"data": "log.csv", "fingerprint": "f", "rows": 100, "episodes": 10, "gamma": 0.99}
    return {**figures, "logged": {**LOGGED, **logged}, "policies": list(policies)}


THREE = report(policy("runs/a", 4.0), policy("runs/b:0", 8.0), policy("runs/b:1", 6.0, "doubt"))


@pytest.fixture
def judged(monkeypatch):
    """The off-policy report that `select` gets, and what it was asked for."""
    asked = {"report": THREE}

    def ask(runs, data, **options):
        asked.update(runs=runs, data=data, **options)
        return SimpleNamespace(policies=[SimpleNamespace(name=one["name"]) for one in asked["report"]["policies"]])

    def answered(_question, **options):
        asked.update(options)
        return SimpleNamespace(report=asked["report"])

    for name, functions in {"off_policy": {"ask": ask}, "kept_estimates": {"answered": answered}}.items():
        module = ModuleType(f"rl_training.api.{name}")
        vars(module).update(functions)
        monkeypatch.setitem(sys.modules, f"rl_training.api.{name}", module)
    return asked


def test_what_is_printed(judged, capsys):
    done = call_cli(capsys, "select", "runs/a", "runs/b", "--data", "log.csv", "--budget", "4")
    lines = done.stdout.splitlines()
    assert lines[0].startswith("3 policies by log.csv; estimates are discounted, with 90 % intervals")
    assert lines[0].endswith("; +- is one standard deviation")
    assert lines[1].split() == ["policy", "estimate", "verdict", "results", "expected", "return", "best"]
    assert lines[2].split()[:6] == ["1", "runs/b:0", "8", "[6,", "10]", "trust"]
    assert [line.split()[1] for line in lines[2:5]] == ["runs/b:0", "runs/b:1", "runs/a"]
    assert lines[5] == "try first: runs/b:1 x1, runs/b:0 x2, runs/a x1"
    assert lines[-1].startswith("Not sure: runs/b:0 is ahead, with a chance of ")
    assert "no real episode of runs/b:0 was seen, and estimates alone settle nothing" in lines[-1]
    assert (judged["runs"], judged["data"], judged["checkpoints"]) == (["runs/a", "runs/b"], "log.csv", "latest")


def test_options_reach_the_evaluation(judged, capsys):
    call_cli(
        capsys, "select", "a", "--data", "d.csv", "--checkpoints", "all", "--device", "cpu", "--format", "csv", "--again"
    )
    assert (judged["checkpoints"], judged["device"], judged["format"], judged["again"]) == ("all", "cpu", "csv", True)


def test_json_and_results(judged, capsys):
    results = ["--result", "runs/b:1=95,93", "--result", "runs/b:1=94", "--result", "runs/b:0=20"]
    done = call_cli(capsys, "select", "runs/a", "runs/b", *results, "--json")
    found = json.loads(done.stdout)
    assert (found["chosen"], found["candidates"][0]["results"]) == ("runs/b:1", [95.0, 93.0, 94.0])
    assert sum(found["try_first"].values()) == len(found["plan"]) == 10
    assert sum(one["chance"] for one in found["candidates"]) == pytest.approx(1.0)
    assert judged["data"] is None


def test_a_choice_is_sure_only_with_results():
    far = report(policy("a", 1.0, std=0.01), policy("b", 1000.0, std=0.01))
    assert [choose(far, {"b": [1e4] * count}).sure for count in (0, 1, 2)] == [False, False, True]
    assert "only one real episode" in choose(far, {"b": [1e4]}).conclusion
    assert choose(far, {"b": [1e4] * 2}).conclusion == "b is the best of 2: a chance of 100.0%, with 2 real episodes of it."


def test_where_the_log_cannot_tell_all_are_tried(judged, capsys):
    judged["report"] = report(*(policy(name, None, "cannot tell", 0.0) for name in "abc"))
    done = call_cli(capsys, "select", "a", "b", "c", "--budget", "3")
    assert "try first: a x1, b x1, c x1\n" in done.stdout
    assert done.stdout.endswith(
        "Nothing is known: the log cannot tell what any of these policies is worth, and there are no results. "
        "Try each of them, and pass what they reach with --result.\n"
    )


def test_an_estimate_that_cannot_be_told_is_not_used():
    honest, wild = (report(policy("a", 5.0), policy("b", 6.0), policy("c", v, "cannot tell")) for v in (None, 1e9))
    assert choose(honest, {}).plan == choose(wild, {}).plan


def test_who_leads_is_said_by_expected_return_and_by_chance():
    """Of two that are nearly equal one is ahead; a third, of which nothing is known, is the best more often than either."""
    found = choose(report(policy("a", 5.0, std=0.2), policy("b", 5.02, std=0.2), policy("c", None, "cannot tell")), {})
    chance = {one.name: one.chance for one in found.candidates}
    assert found.chosen.name == "b"
    assert chance["c"] > chance["b"]
    assert found.conclusion.startswith(
        "Not sure: b has the highest expected return and c the highest chance to be the best, "
        f"{chance['c']:.1%} beside {chance['b']:.1%}, but no real episode of b was seen"
    )


def test_the_table_says_whose_estimate_is_not_used(judged, capsys):
    """The lowest estimate cannot be told, so its policy is an average one and ranks above one that is known to be worse."""
    judged["report"] = report(policy("a", 4.0), policy("b", 5.0), policy("c", 6.0), policy("d", 1.0, "cannot tell"))
    done = call_cli(capsys, "select", "a", "b", "c", "d")
    rows = {line.split()[1]: line for line in done.stdout.splitlines()[2:6]}
    assert int(rows["d"].split()[0]) < int(rows["a"].split()[0])
    assert "1 [-1, 3]" in rows["d"]
    assert "cannot tell, not used" in rows["d"]
    assert not [name for name in "abc" if "not used" in rows[name]]
    assert "\nnot used: the log cannot tell what it returns, which says nothing against it:" in done.stdout
    every = choose(judged["report"], {}).plain()["candidates"]
    assert {one["name"]: one["counted"] for one in every} == {"a": True, "b": True, "c": True, "d": False}


def test_doubt_is_wider_than_trust():
    found = [
        choose(report(policy("a", 4.0), policy("b", 5.0), policy("c", 9.0, verdict)), {}) for verdict in ("trust", "doubt")
    ]
    assert found[0].chosen.name == found[1].chosen.name == "c"
    assert found[0].chosen.chance > found[1].chosen.chance


def test_a_log_that_does_not_map_values_to_returns_is_said(judged, capsys):
    judged["report"] = {**THREE, "logged": {**LOGGED, "slope": -1.0}}
    done = call_cli(capsys, "select", "runs/a")
    assert done.stderr.startswith("warning: the log does not show that a higher discounted value goes with a higher return")
    assert "Nothing is known" in done.stdout


def test_results_are_in_the_unit_of_returns():
    """The line of the log maps values to returns, so a result as expected changes the order of nothing."""
    before, after = choose(THREE, {}), choose(THREE, {"runs/b:0": [80.0, 80.0]})
    assert [one.name for one in before.candidates] == [one.name for one in after.candidates]
    assert before.chosen.expected_return == pytest.approx(76.0, abs=8.0)
    assert np.isfinite(after.expected_loss)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--result", "runs/b=3"], "'runs/b': is none of the candidates runs/a, runs/b:0, runs/b:1. Did you mean `runs/b:"),
        (["--result", "runs/a"], "--result 'runs/a': must look like runs/a=3.1"),
        (["--result", "runs/a=x"], "--result 'x': must be numbers"),
        (["--result", "runs/a=nan"], "the result of 'runs/a': must be finite"),
        (["--budget", "0"], "budget"),
        (["--checkpoints", "first"], "--checkpoints 'first': must be latest, best or all"),
        (["--format", "csv"], "--format says how to read files: pass --data PATH too"),
    ],
)
def test_what_is_refused(judged, capsys, arguments, message):
    done = call_cli(capsys, "select", "runs/a", "runs/b", *arguments, code=2)
    assert message in done.stderr
    assert done.stderr.count("\n") == 1


def test_one_policy_is_no_choice():
    with pytest.raises(ConfigError, match="there is one policy, so nothing to choose"):
        choose(report(policy("a", 1.0)), {})
