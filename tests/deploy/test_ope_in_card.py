"""`export --ope FILE`: the off-policy evaluation of the exported policy in its card, and of no other."""

import json

import pytest

from rl_training import ConfigError, export_policy
from tests.helpers import call_cli

ENTRY = {
    "value": -412.5,
    "interval": [-500.0, -300.0],
    "verdict": "doubtful",
    "reasons": ["the estimators disagree", "few <b>rows</b>\nare near"],
    "estimates": {"fqe": -410.0, "wis": None, "dr": {"value": -400.0}},
}


@pytest.fixture
def run(finished):
    return finished("iql", seeds=[0, 1]).run_dir


def policies(run, **changes):
    return {"policies": [{**ENTRY, "run": str(run), "step": 120, "member": member, **changes} for member in (0, 1)]}


def test_in_the_card(run, tmp_path, capsys):
    (tmp_path / "ope.json").write_text(json.dumps(policies(run)))
    call_cli(capsys, "export", run, "--out", tmp_path / "x", "--member", "1", "--ope", tmp_path / "ope.json")
    text = (tmp_path / "x" / "card.md").read_text()
    good = text.split("## How good it is")[1].split("##")[0]
    assert "a value of -412.5 (-500 to -300); verdict: doubtful" in good
    assert "the estimators disagree" in good
    assert "few &lt;b>rows&lt;/b> are near" in good
    assert "fqe -410" in good
    assert json.loads((tmp_path / "x" / "card.json").read_text())["ope"] == ENTRY


def test_without(run, tmp_path):
    made = export_policy(run, tmp_path / "x")
    assert "No off-policy evaluation was given." in (made.path / "card.md").read_text()
    assert made.card["ope"] is None


def test_in_python(run, tmp_path):
    assert export_policy(run, tmp_path / "x", ope=ENTRY).card["ope"]["verdict"] == "doubtful"
    with pytest.raises(ConfigError, match="no report of"):
        export_policy(run, tmp_path / "y", ope={**ENTRY, "step": 90})


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("", "not valid JSON"),
        ("[]", "not a JSON object"),
        ('{"a": 1}', "no `policies`"),
        ('{"policies": [3]}', "not a list of reports"),
        ('{"policies": []}', "no report of"),
        ('{"policies": [{"value": NaN}]}', "not valid JSON"),
        (policies("RUN", step=60), "no report of"),
        (policies("elsewhere"), "no report of"),
        ({"policies": policies("RUN")["policies"] * 2}, "more than one report"),
        (policies("RUN", verdict=3), "legal `verdict`"),
        (policies("RUN", value="much"), "legal `value`"),
        (policies("RUN", interval=[2.0, 1.0]), "legal `interval`"),
        (policies("RUN", reasons="no"), "legal `reasons`"),
        (policies("RUN", reasons=["x" * 3000]), "legal `reasons`"),
        (policies("RUN", estimates={"a": [[[[[1]]]]]}), "legal `estimates`"),
        (" " * 2**23, "at most"),
    ],
)
def test_wrong_files(run, tmp_path, capsys, text, told):
    given = text if isinstance(text, str) else json.dumps(text).replace("RUN", str(run))
    (tmp_path / "ope.json").write_text(given)
    done = call_cli(capsys, "export", run, "--out", tmp_path / "x", "--ope", tmp_path / "ope.json", code=2)
    assert told in done.stderr
    assert done.stderr.count("\n") == 1
    assert not (tmp_path / "x").exists()


def test_a_missing_file(run, tmp_path, capsys):
    done = call_cli(capsys, "export", run, "--out", tmp_path / "x", "--ope", tmp_path / "none.json", code=2)
    assert "is missing" in done.stderr
