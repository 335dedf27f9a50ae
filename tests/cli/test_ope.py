"""`rl-training ope`, and `select` after it, on runs that were trained from a log with named columns."""

import json
from functools import partial

import numpy as np
import pytest

from rl_training import IQL, evaluate_off_policy
from rl_training.api.off_policy import ask, named_policies
from rl_training.cli.choosing import _print_estimates, _value_cells
from rl_training.errors import ConfigError, DatasetError
from rl_training.ope.fqe import FQEOptions
from rl_training.storage import OPE_FILE as FILE
from tests.helpers import call_cli, run_cli, tiny_run
from tests.logs import plant, table, write_csv

QUICK = ("--rows", "2000", "--steps", "40")
BUDGET = {"rows": 2000, "steps": 40}


@pytest.fixture(scope="module", autouse=True)
def _few_networks():
    """What a report holds does not depend on how many networks are fitted; one test has all, in a process of its own."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("rl_training.ope.evaluation.FQEOptions", partial(FQEOptions, ensemble=3))
        yield


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A log, a population of two and a solo run that were trained on it."""
    folder = tmp_path_factory.mktemp("ope")
    log = write_csv(folder / "log.csv", table(plant(rows=1800, length=45)))
    data = {"env_id": None, "algo_kwargs": {"dataset": {"path": str(log)}}}
    tiny_run(folder / "two", seeds=[3, 4], **data)
    tiny_run(folder / "bc", "bc", **data)
    return folder


@pytest.fixture(scope="module")
def report(trained):
    return evaluate_off_policy([trained / "two", trained / "bc"], **BUDGET).plain()


def test_what_a_report_holds(report, trained):
    assert (report["rows"], report["episodes"], report["gamma"]) == (1800, 40, 0.99)
    assert [one["name"] for one in report["policies"]] == [
        f"{trained / 'two'}:0",
        f"{trained / 'two'}:1",
        f"{trained / 'bc'}",
    ]
    assert [one["seed"] for one in report["policies"]] == [3, 4, 0]
    for one in report["policies"]:
        assert set(one["estimates"]) == {"fqe", "model", "dr", "wpdis"}
        assert one["verdict"] in ("trust", "doubt", "cannot tell")
        assert one["interval"][0] < one["value"] < one["interval"][1]
        assert set(one["support"]["actions"]) == {"action_0"}
        assert set(one["support"]["observations"]) == {"obs_0", "obs_1", "obs_2"}
    assert report["policies"][0]["scores"]["td_error"] > 0.0
    assert report["policies"][2]["scores"]["td_error"] is None  # no critics
    assert report["logged"]["return_mean"] == pytest.approx(plant(rows=1800, length=45)["rewards"].sum() / 40, rel=1e-4)
    mapped = report["logged"]["offset"] + report["logged"]["slope"] * report["logged"]["value"]
    assert mapped == pytest.approx(report["logged"]["return_mean"])  # for `select`
    assert json.loads(json.dumps(report, allow_nan=False)) == report


@pytest.mark.parametrize(("penalty", "told"), [(-1000.0, True), (-4.0, False)])
def test_rare_penalties_that_the_data_lacks_are_told(tmp_path, penalty, told):
    """All but one row have rewards within about 4 of each other."""
    columns = table(plant(rows=900, length=45))
    later = write_csv(tmp_path / "later.csv", columns)
    lowest = min(columns["reward"])
    columns["reward"] = [lowest + penalty, *columns["reward"][1:]]
    data = {"dataset": {"path": str(write_csv(tmp_path / "early.csv", columns))}}
    tiny_run(tmp_path / "run", env_id=None, algo_kwargs=data)
    warnings = [one for one in ask([tmp_path / "run"], later).warnings if "rare penalties cost" in one]
    assert bool(warnings) == told
    assert all(f"rewards down to {lowest + penalty:.4g}, and none here is below {lowest:.4g}" in one for one in warnings)
    record = json.loads((tmp_path / "run" / "run.json").read_text())
    del record["dataset"]["reward_min"]  # as in a run of an earlier version
    (tmp_path / "run" / "run.json").write_text(json.dumps(record))
    assert not [one for one in ask([tmp_path / "run"], later).warnings if "rare penalties cost" in one]


def test_a_report_is_the_same_again_and_in_python(report, trained):
    assert evaluate_off_policy([trained / "two", trained / "bc"], **BUDGET).plain() == report
    alone = IQL.load(trained / "two").ope(**BUDGET)
    assert [one["member"] for one in alone["policies"]] == [0, 1]


def test_the_command_prints_a_table_and_keeps_the_report(trained):
    done = run_cli("ope", trained / "bc", "--data", trained / "log.csv", *QUICK)
    assert "1,800 rows, 40 episodes" in done.stdout
    header = next(line for line in done.stdout.splitlines() if line.startswith("policy"))
    assert [word for word in ("fqe", "model", "dr", "wpdis", "verdict") if word not in header] == []
    assert "(the log)" in done.stdout
    assert f"{trained / 'bc'}: to know more: " in done.stdout
    assert f"kept in {trained / 'bc' / FILE}" in done.stdout
    assert "trained on these rows" in done.stderr
    kept = json.loads((trained / "bc" / FILE).read_text())
    assert kept["policies"][0]["algo"] == "bc"
    again = run_cli("ope", trained / "bc", "--data", trained / "log.csv", *QUICK)
    assert again.stdout == done.stdout
    assert "this was evaluated before" in again.stderr


def test_values_of_policies_that_are_evaluated_together_are_said_to_be_so(report, capsys):
    told = "these policies share learned features: with others beside them, their values"
    _print_estimates(report)
    assert capsys.readouterr().out.count(told) == 1
    _print_estimates({**report, "policies": report["policies"][:1]})
    assert told not in capsys.readouterr().out


def test_the_first_reason_decides_and_the_others_add_to_it(report, capsys):
    one = {**report["policies"][0], "verdict": "cannot tell", "reasons": ["it decides", "it adds"]}
    _print_estimates({**report, "policies": [one]})
    shown = capsys.readouterr().out
    assert f"{one['name']}: cannot tell: it decides\n{one['name']}: also: it adds\n" in shown


def test_policies_are_listed_by_verdict_then_by_value(report, capsys):
    """A value that cannot be told is no reason to come first, however high it is."""
    verdicts = {"wild": ("cannot tell", 900.0), "low": ("trust", -5.0), "none": ("cannot tell", None)}
    verdicts |= {"high": ("trust", 4.0), "maybe": ("doubt", 800.0)}
    policies = [
        {**report["policies"][0], "name": name, "verdict": verdict, "value": value, "reasons": ["it lies"]}
        for name, (verdict, value) in verdicts.items()
    ]
    _print_estimates({**report, "policies": policies})
    lines = capsys.readouterr().out.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith("(the log)"))
    order = ["high", "low", "maybe", "wild", "none"]
    assert [line.split()[0] for line in lines[start + 1 : start + 6]] == order
    assert [line for line in lines if line.endswith(": it lies")] == [
        "high, low: trust: it lies",
        "maybe: doubt: it lies",
        "wild, none: cannot tell: it lies",
    ]


def test_json_is_all_that_is_printed(trained, capsys):
    done = call_cli(capsys, "ope", trained / "two", "--checkpoints", "all", "--json", *QUICK)
    found = json.loads(done.stdout)
    steps = {one["step"] for one in found["policies"]}
    assert len(steps) > 1
    assert {one["name"] for one in found["policies"]} == {f"{trained / 'two'}@{step}:{m}" for step in steps for m in (0, 1)}


def test_select_ranks_what_ope_estimated(trained, capsys, monkeypatch):
    monkeypatch.setattr("rl_training.api.off_policy.ask", partial(ask, **BUDGET))
    name = f"{trained / 'two'}:1"
    done = call_cli(capsys, "select", trained / "two", trained / "bc", "--result", f"{name}=-5,-6", "--budget", "3", "--json")
    found = json.loads(done.stdout)
    assert {one["name"] for one in found["candidates"]} == {f"{trained / 'two'}:0", name, str(trained / "bc")}
    assert next(one for one in found["candidates"] if one["name"] == name)["results"] == [-5.0, -6.0]
    assert len(found["plan"]) == 3
    assert not found["sure"]


def test_a_log_of_one_long_episode_is_cut_and_said_so(trained, tmp_path, capsys):
    columns = plant(rows=1500, length=10_000)
    log = write_csv(tmp_path / "one.csv", table(columns))
    found = evaluate_off_policy([trained / "bc"], str(log), **BUDGET).plain()
    assert (found["episodes"], found["whole_episodes"]) == (30, 1)
    assert any("the data has 1 episode, so 30 parts of it count as episodes" in text for text in found["warnings"])
    (policy,) = found["policies"]
    assert policy["verdict"] == "trust" or "parts of 1 are no 30 episodes" in policy["advice"]
    _print_estimates(found)
    assert "one.csv: 1,500 rows, 30 parts of 1 episode, which count as episodes\n" in capsys.readouterr().out


def test_rows_that_leave_few_episodes_are_cut_and_said_so(trained):
    """40 episodes of 45 rows: 450 rows are 10 of them, each 2 or 3 parts of about 20 rows."""
    asked = ask([trained / "bc"], str(trained / "log.csv"), rows=450)
    (told,) = [text for text in asked.warnings if "count as episodes" in text]
    assert told.startswith("the rows that are used have 10 episodes of 40, so 20 parts of them count as episodes")
    assert not [text for text in ask([trained / "bc"], str(trained / "log.csv")).warnings if "count as episodes" in text]


def test_missing_samples_are_told(trained, tmp_path):
    columns = table(plant(rows=1200, length=60), next_observations=False)
    kept = ~np.isin(np.arange(1200) % 60, (20, 21, 22))
    log = write_csv(tmp_path / "gaps.csv", {name: column[kept] for name, column in columns.items()})
    (told,) = [text for text in ask([trained / "bc"], str(log)).warnings if "time-gap" in text]
    assert "the time skips samples inside episodes, after 20 rows" in told
    assert "--cut-gaps" in told
    assert not [text for text in ask([trained / "bc"], str(log), cut_gaps=True).warnings if "time-gap" in text]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--gamma", "1.0"], "gamma = 1.0 is not legal"),
        (["--reward-lag", "1"], "--reward-lag says how to read files: pass --data PATH too"),
        (["--checkpoints", "best"], "no best checkpoint is recorded"),
    ],
)
def test_what_is_refused(arguments, message, trained, capsys):
    code = 4 if "best" in arguments else 2
    done = call_cli(capsys, "ope", trained / "bc", *arguments, *QUICK, code=code)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_data_with_other_columns_is_refused(trained, tmp_path):
    columns = plant(rows=200)
    other = {
        **columns,
        "observations": columns["observations"][:, :2],
        "next_observations": columns["next_observations"][:, :2],
    }
    np.savez(tmp_path / "other.npz", **other)
    with pytest.raises(DatasetError, match="the data has 2 observations and 1 actions, the policy 3 and 1"):
        evaluate_off_policy([trained / "bc"], str(tmp_path / "other.npz"), **BUDGET)


@pytest.mark.parametrize("again", [["bc", "bc"], ["two", "two:1"], ["two:1", "two:1"]])
def test_a_run_named_twice_is_refused(trained, again):
    with pytest.raises(ConfigError, match="named twice"):
        evaluate_off_policy([trained / name for name in again], **BUDGET)


def names_of(trained, *given, checkpoints="latest"):
    found = named_policies([f"{trained}/{one}" for one in given], checkpoints)
    return [one.name.removeprefix(f"{trained}/") for one in found]


def test_the_names_that_are_printed_are_taken(trained):
    assert names_of(trained, "two:1", "bc") == ["two:1", "bc"]
    assert names_of(trained, "two:1", "two:0", "bc:0") == ["two:1", "two:0", "bc"]
    every = names_of(trained, "two", checkpoints="all")
    assert names_of(trained, *every) == every
    steps = {name.partition(":")[0] for name in every}
    assert len(steps) > 1
    assert names_of(trained, max(steps)) == [f"{max(steps)}:0", f"{max(steps)}:1"]


def test_a_path_that_is_there_is_no_member(trained, tmp_path):
    (tmp_path / "bc:0").symlink_to(trained / "bc")
    assert names_of(tmp_path, "bc:0") == ["bc:0"]


def test_one_member_is_a_question_of_its_own(trained, capsys):
    done = call_cli(capsys, "ope", f"{trained / 'two'}:1", "--json", *QUICK)
    (found,) = json.loads(done.stdout)["policies"]
    assert (found["name"], found["run"], found["member"]) == (f"{trained / 'two'}:1", str(trained / "two"), 1)
    kept = json.loads((trained / "two" / FILE).read_text())
    assert [one["member"] for one in kept["policies"]] == [1]


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("two:2", 2, "two: member 2 not found: the checkpoint has members 0 to 1"),
        ("bc:1", 2, "bc: member 1 not found: the checkpoint has members 0 to 0"),
        ("none:1", 4, "none: there is no run or checkpoint here"),
        ("two@7:1", 2, "there is no checkpoint '7'"),
    ],
)
@pytest.mark.parametrize("command", ["ope", "select"])
def test_a_member_that_is_not_there_is_one_clear_error(trained, capsys, command, name, code, message):
    done = call_cli(capsys, command, trained / name, code=code)
    assert message in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1


def test_data_that_is_gone_is_asked_for(trained, tmp_path):
    log = write_csv(tmp_path / "log.csv", table(plant(rows=600, length=30)))
    tiny_run(tmp_path / "run", "bc", env_id=None, algo_kwargs={"dataset": {"path": str(log)}})
    log.unlink()
    with pytest.raises(ConfigError, match=r"the data of the run is not there; name data with --data PATH"):
        evaluate_off_policy([tmp_path / "run"], **BUDGET)


def test_a_zero_has_no_sign():
    """Where no reward is above 0, the highest possible value is minus zero."""
    assert _value_cells({"value": -0.0, "interval": [-6.025, -0.0]}) == ("0", "[-6.025, 0]")
