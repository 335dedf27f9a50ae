"""What `ope` found is used again by `ope` and `select` if exactly the same is asked, and never if anything differs."""

import json
import shutil
from functools import partial
from types import SimpleNamespace

import pytest

from rl_training.api import kept_estimates
from rl_training.api.off_policy import ask
from rl_training.storage import OPE_FILE, OPE_FOLDER
from tests.helpers import call_cli, tiny_run
from tests.logs import plant, table, write_csv
from tests.report.test_off_policy import policy, report

QUICK = ("--rows", "600", "--steps", "20")
BEFORE = "this was evaluated before"


@pytest.fixture(scope="module")
def made(tmp_path_factory):
    """Two logs and two runs that were trained on the first; nothing is evaluated yet."""
    folder = tmp_path_factory.mktemp("kept")
    for seed, name in enumerate(("log", "late")):
        write_csv(folder / f"{name}.csv", table(plant(rows=600, length=30, seed=seed)))
    data = {"env_id": None, "algo_kwargs": {"dataset": {"path": str(folder / "log.csv")}}}
    tiny_run(folder / "iql", seeds=[3, 4], **data)
    tiny_run(folder / "bc", "bc", **data)
    return folder


@pytest.fixture
def runs(made, tmp_path):
    return shutil.copytree(made, tmp_path / "made")


@pytest.fixture(autouse=True)
def evaluations(monkeypatch):
    """Every question that was evaluated; the answers are made up, one value for each policy."""
    counted = []

    def answer(asked, **_):
        counted.append(asked)
        named = {"data": asked.data, "fingerprint": asked.dataset.fingerprint, "gamma": asked.gamma}
        entries = [
            {**policy(one.member, -10.0 * number), "name": one.name, "run": one.run, "advice": ""}
            for number, one in enumerate(asked.policies)
        ]
        return SimpleNamespace(plain=lambda: report(*entries, **named, warnings=list(asked.warnings)))

    monkeypatch.setattr(kept_estimates, "answer", answer)
    return counted


def ope(capsys, runs, *names, data="late.csv", more=()):
    given = [runs / name for name in names or ("iql", "bc")]
    return call_cli(capsys, "ope", *given, "--data", runs / data, *QUICK, *more)


def kept(run):
    return sorted((run / OPE_FOLDER).glob("*.json"))


def test_the_same_is_not_evaluated_twice(runs, capsys, evaluations):
    first = ope(capsys, runs)
    again = ope(capsys, runs)
    assert len(evaluations) == 1
    assert again.stdout == first.stdout
    assert (BEFORE in first.stderr, BEFORE in again.stderr) == (False, True)
    ope(capsys, runs, more=["--again"])
    assert len(evaluations) == 2
    assert len(kept(runs / "bc")) == len(kept(runs / "iql")) == 1


def test_order_and_place_do_not_matter(runs, capsys, evaluations, tmp_path):
    """The report is in the names and the order of now; policies that were moved are the same policies."""
    first = json.loads(ope(capsys, runs, more=["--json"]).stdout)
    moved = runs.rename(tmp_path / "elsewhere")
    found = json.loads(ope(capsys, moved, "bc", "iql", more=["--json"]).stdout)
    assert len(evaluations) == 1
    assert [one["name"] for one in found["policies"]] == [str(moved / "bc"), f"{moved / 'iql'}:0", f"{moved / 'iql'}:1"]
    values = [one["value"] for one in first["policies"]]
    assert [one["value"] for one in found["policies"]] == [values[2], *values[:2]]
    assert found["data"] == str(moved / "late.csv")


@pytest.mark.parametrize(
    "more", [["--gamma", "0.9"], ["--seed", "1"], ["--steps", "21"], ["--rows", "500"], ["--data", "log.csv"], ["iql"]]
)
def test_anything_else_is_evaluated_and_kept_beside(more, runs, capsys, evaluations):
    ope(capsys, runs)
    before = kept(runs / "iql")[0].read_bytes()
    names, data = ("iql", "bc"), "late.csv"
    if more == ["iql"]:
        names, more = ("iql",), []
    elif more[0] == "--data":
        data, more = "log.csv", []
    ope(capsys, runs, *names, data=data, more=more)
    assert len(evaluations) == 2
    assert len(kept(runs / "iql")) == 2
    assert before in [path.read_bytes() for path in kept(runs / "iql")]
    ope(capsys, runs)
    assert len(evaluations) == 2


def test_other_weights_or_estimators_are_another_question(runs, capsys, evaluations, monkeypatch):
    ope(capsys, runs, "bc")
    monkeypatch.setattr(kept_estimates, "_estimators", lambda: "later")
    ope(capsys, runs, "bc")
    assert len(evaluations) == 2
    data = {"env_id": None, "algo_kwargs": {"dataset": {"path": str(runs / "log.csv")}}}
    folder = shutil.move(runs / "bc" / OPE_FOLDER, runs / "aside")
    shutil.rmtree(runs / "bc")
    tiny_run(runs / "bc", "bc", seeds=[9], **data)
    shutil.move(folder, runs / "bc" / OPE_FOLDER)
    ope(capsys, runs, "bc")
    assert len(evaluations) == 3


def test_select_takes_what_ope_found(runs, capsys, evaluations, monkeypatch):
    monkeypatch.setattr("rl_training.api.off_policy.ask", partial(ask, rows=600, steps=20))
    ope(capsys, runs)
    arguments = ["select", runs / "iql", runs / "bc", "--data", runs / "late.csv"]
    done = call_cli(capsys, *arguments, "--result", f"{runs / 'iql'}:1=-3")
    assert BEFORE in done.stderr
    assert len(evaluations) == 1
    call_cli(capsys, *arguments, "--again")
    assert len(evaluations) == 2


def edited(path):
    path.write_text(path.read_text().replace('"verdict": "', '"verdict": "so ', 1))


def renamed(path):
    """The answer to another question under this name."""
    content = json.loads(path.read_text())
    content["question"]["seed"] = 7
    del content["sha256"]
    path.write_bytes(kept_estimates.canonical_json({**content, "sha256": _hash(content)}))


def emptied(path):
    content = {**json.loads(path.read_text()), "report": {}}
    del content["sha256"]
    path.write_bytes(kept_estimates.canonical_json({**content, "sha256": _hash(content)}))


def _hash(content):
    return kept_estimates.sha256(kept_estimates.canonical_json(content))


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (edited, "is damaged or was edited (its hash does not match)"),
        (lambda path: path.write_bytes(path.read_bytes()[:100]), "is not valid JSON"),
        (lambda path: path.write_text("[1]"), "is not a JSON object"),
        (renamed, "answers another question than its name says"),
        (emptied, "is missing"),
    ],
)
def test_what_cannot_be_trusted_is_evaluated_anew(change, message, runs, capsys, evaluations):
    ope(capsys, runs, "bc")
    (path,) = kept(runs / "bc")
    good = path.read_bytes()
    change(path)
    done = ope(capsys, runs, "bc")
    warned = [line for line in done.stderr.splitlines() if line.startswith(f"warning: {path}")]
    assert message in warned[0]
    assert warned[0].endswith("; the policies are evaluated anew")
    assert len(evaluations) == 2
    assert path.read_bytes() == good


def test_a_good_file_of_another_run_is_enough(runs, capsys, evaluations):
    ope(capsys, runs)
    edited(kept(runs / "iql")[0])
    done = ope(capsys, runs)
    assert "the policies are evaluated anew" in done.stderr
    assert len(evaluations) == 1


def test_links_are_not_followed(runs, capsys, tmp_path):
    """Neither a folder nor a file that is a link is written through, and a result that cannot be kept is still told."""
    outside = tmp_path / "outside"
    outside.mkdir()
    (runs / "bc" / OPE_FOLDER).symlink_to(outside)
    target = tmp_path / "target.json"
    target.write_text("mine")
    (runs / "bc" / OPE_FILE).symlink_to(target)
    done = ope(capsys, runs, "bc")
    assert f"the result is not kept: {runs / 'bc' / OPE_FOLDER}: is a link" in done.stderr
    assert "(the log)" in done.stdout
    assert list(outside.iterdir()) == []
    assert target.read_text() == "mine"
    assert not (runs / "bc" / OPE_FILE).is_symlink()


def test_the_page_shows_what_was_asked_last(runs, capsys):
    ope(capsys, runs, "bc")
    ope(capsys, runs, "bc", data="log.csv")
    assert json.loads((runs / "bc" / OPE_FILE).read_text())["data"].endswith("log.csv")
    ope(capsys, runs, "bc")
    assert json.loads((runs / "bc" / OPE_FILE).read_text())["data"].endswith("late.csv")
