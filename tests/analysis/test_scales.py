"""Scores on one scale: what is normalised, what is said to be, and what may be either."""

import json

import pytest

from rl_training.analysis.comparison import compare
from rl_training.envs.reference_scores import normalized_score
from rl_training.errors import ConfigError
from tests.analysis.known_scores import GOOD
from tests.analysis.runs import write_run

PUBLISHED = [53.0, 54.0, 55.0, 56.0, 57.0]
RETURNS = [1700.0, 1750.0, 1720.0, 1800.0, 1690.0]
SAID = "two scales may be compared here: say which with --scores normalized, or --scores returns."


def evaluated(path, returns=RETURNS, env="Hopper-v5", data=None, **more):
    """What `evaluate --json` prints, with the data that was learned from."""
    rows = [{"member": k, "seed": k, "return_mean": value} for k, value in enumerate(returns)]
    told = {} if data is None else {"data": {"name": data, "fingerprint": data}}
    path.write_text(json.dumps({"env_id": env, "members": rows, **told, **more}))
    return path


def scores_in(path, values):
    path.write_text(json.dumps(values))
    return path


@pytest.mark.parametrize("returns", [RETURNS, [32.1, 38.3, 43.3]])
def test_published_scores_beside_returns_are_no_verdict_without_reservation(tmp_path, returns):
    """Also where the returns are so low that they look alike."""
    ours = evaluated(tmp_path / "ours.json", returns)
    peers = scores_in(tmp_path / "peers.json", {"corl": {"Hopper-v5": PUBLISHED}})
    found = compare([ours, peers])
    assert f"Scores of corl look normalised (0 to 100) and those of ours returns, so {SAID}" in found.conclusion
    assert found.units == {"ours": "returns", "corl": None}
    run = write_run(tmp_path / "run", [returns], env_id="Hopper-v5")
    assert SAID in compare([run, peers]).conclusion
    assert SAID in compare({"ours": run, "corl": {"Hopper-v5": PUBLISHED}}).conclusion


def test_scores_of_another_order_in_two_files_are_told(tmp_path):
    ours = scores_in(tmp_path / "ours.json", {"ours": {"x": [1500.0, 1600.0]}})
    peers = scores_in(tmp_path / "peers.json", {"corl": {"x": [90.0, 95.0]}})
    assert f"those of ours of another order, so {SAID}" in compare([ours, peers]).conclusion
    assert SAID not in compare([ours, peers], scores="returns").conclusion
    both = scores_in(tmp_path / "both.json", {"random": {"x": [20.0, 22.0]}, "sac": {"x": [480.0, 490.0]}})
    assert SAID not in compare([both]).conclusion  # what one file holds is on one scale


@pytest.mark.parametrize(
    ("env", "ours", "theirs"),
    [
        ("Hopper-v5", RETURNS, [1650.0, 1600.0]),
        ("Pendulum-v1", [-150.0, -160.0], [-1500.0, -1400.0]),
        ("CartPole-v1", [480.0, 500.0], [90.0, 95.0]),
        ("FrankaKitchen-v1", [2.0, 3.0], [2.5, 3.5]),  # `kitchen` has returns of at most 4
        ("kitchen-mixed-v0", [2.0, 3.0], [2.5, 3.5]),
    ],
)
def test_ordinary_returns_in_a_file_are_not_doubted(tmp_path, env, ours, theirs):
    peers = scores_in(tmp_path / "peers.json", {"corl": {env: theirs}})
    assert SAID not in compare([evaluated(tmp_path / "ours.json", ours, env), peers]).conclusion


def test_scores_that_cannot_be_returns_of_their_task_are_told(tmp_path):
    peers = scores_in(tmp_path / "peers.json", {"corl": {"kitchen-mixed-v0": PUBLISHED}})
    assert SAID in compare([evaluated(tmp_path / "ours.json", [2.0, 3.0], "kitchen-mixed-v0"), peers]).conclusion


def test_returns_are_put_on_the_scale_of_scores_that_are_said_to_be_normalised(tmp_path):
    ours = evaluated(tmp_path / "ours.json")
    peers = scores_in(tmp_path / "peers.json", {"corl": {"Hopper-v5": PUBLISHED}})
    found = compare([ours, peers], scores="normalized")
    assert (found.normalization, found.normalization_by_task) == ("reference", "reference")
    assert found.units == {"ours": "returns", "corl": "normalized"}
    expected = [normalized_score(value, "Hopper-v5") for value in RETURNS]
    assert found.cells["ours"]["Hopper-v5"].mean == pytest.approx(sum(expected) / 5)
    assert found.cells["corl"]["Hopper-v5"].mean == found.overall["corl"].mean == 55.0  # not normalised a second time
    assert found.pairs_by_task["Hopper-v5"] == found.pairs
    assert SAID not in found.conclusion
    again = compare([ours, peers], scores="normalized", normalize="reference")
    assert again.as_dict() == found.as_dict()
    for normalize in ("none", "min-max"):
        with pytest.raises(ConfigError, match="scores that are normalised keep their scale; leave it out"):
            compare([ours, peers], scores="normalized", normalize=normalize)
    away = scores_in(tmp_path / "away.json", {"corl": {"Mine-v0": PUBLISHED}})
    with pytest.raises(ConfigError, match="there are none for Mine-v0; the groups cannot be put on one scale"):
        compare([evaluated(tmp_path / "mine.json", env="Mine-v0"), away], scores="normalized")
    assert (
        compare({"a": {"Mine-v0": PUBLISHED}, "b": {"Mine-v0": PUBLISHED}}, scores="normalized").optimality_gap["a"] == 45.0
    )


def test_values_of_single_tasks_are_normalised_where_it_was_asked_for(tmp_path):
    groups = {name: {"Hopper-v5": RETURNS, "Walker2d-v5": [2000.0, 2100.0]} for name in "ab"}
    found = compare(groups, normalize="reference")
    hopper = [normalized_score(value, "hopper") for value in RETURNS]
    assert found.cells["a"]["Hopper-v5"].mean == pytest.approx(sum(hopper) / 5)
    assert found.scores["a"]["Hopper-v5"].tolist() == RETURNS
    for name in ("a", "b"):
        for env in ("Hopper-v5", "Walker2d-v5"):
            write_run(tmp_path / name / env, [RETURNS], "iql" if name == "a" else "bc", env_id=env)
    chosen = compare([tmp_path / "a", tmp_path / "b"])
    assert (chosen.normalization, chosen.normalization_by_task) == ("reference", None)
    assert chosen.cells["iql"]["Hopper-v5"].mean == pytest.approx(sum(RETURNS) / 5)


def test_scores_that_are_said_to_be_returns_are_normalised_like_those_of_runs():
    groups = {name: {"Hopper-v5": RETURNS, "Walker2d-v5": RETURNS} for name in "ab"}
    assert compare(groups).normalization is None
    assert compare(groups, scores="returns").normalization == "reference"


def test_a_unit_that_nobody_could_mean_is_refused():
    with pytest.raises(ConfigError, match="--scores 'raw': must be one of returns, normalized"):
        compare({"a": GOOD, "b": GOOD}, scores="raw")
