"""What configs should reach: the packaged records are whole and up to date, and bad files are refused."""

import json

import pytest

from rl_training.analysis.bootstrap import interval
from rl_training.config.expectation import expectation_path, read_expectations, recipe_digest, write_expectation
from rl_training.config.loading import load_config, packaged_configs
from rl_training.errors import ConfigError

RECORDED = {name: known for name in packaged_configs() if (known := read_expectations(name)) is not None}
RESULTS = [(name, case) for name, known in RECORDED.items() for case in known.results]


def test_every_pendulum_config_says_what_it_should_reach():
    assert [name for name in packaged_configs() if "/pendulum" in name and not RECORDED.get(name)] == []


@pytest.mark.parametrize(("name", "case"), RESULTS)
def test_records_are_up_to_date(name, case):
    """A config that is changed must be measured again: `python -m benchmarks.expected NAME`."""
    known = RECORDED[name].results[case]
    config = load_config(name, known.settings)
    assert known.recipe == recipe_digest(name)
    assert (known.step if known.env_step is None else known.env_step) == config.total_timesteps
    assert (known.iqm, *known.interval) == pytest.approx(interval(known.scores), abs=1e-3)
    assert known.command.startswith("python -m benchmarks.")


def test_configs_that_leave_their_data_open_say_what_they_need():
    for name in packaged_configs():
        if name.endswith("/d4rl-locomotion"):
            assert "benchmarks.locomotion" in RECORDED[name].needs


def test_results_are_kept_by_name(tmp_path):
    name, case = RESULTS[0]
    own = tmp_path / "own.yaml"
    own.write_text(packaged_configs()[name])
    assert read_expectations(str(own)) is None
    assert recipe_digest(str(own)) == recipe_digest(name)
    own.write_text(f"# another comment\n{packaged_configs()[name]}")
    assert recipe_digest(str(own)) == recipe_digest(name)
    for other in ("first", "second", "first"):
        path = write_expectation(str(own), other, RECORDED[name].results[case])
    assert path == tmp_path / "own.expected.json" == expectation_path(str(own))
    assert list(read_expectations(str(own)).results) == ["first", "second"]


def test_what_was_said_of_a_result_stays_when_it_is_measured_again(tmp_path):
    own, known = tmp_path / "own.yaml", RECORDED["bc/pendulum"].results["Pendulum-v1"]
    own.write_text(packaged_configs()["bc/pendulum"])
    assert "random actions" in known.weak
    write_expectation(str(own), "first", known)
    for name in ("first", "second"):
        write_expectation(str(own), name, known.model_copy(update={"weak": None}))
    results = read_expectations(str(own)).results
    assert (results["first"].weak, results["second"].weak) == (known.weak, None)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"scores": [1.0, 2.0]}, "2 `scores` for 8 `seeds`"),
        ({"seeds": [1, 1, 2, 3, 4, 5, 6, 7]}, "one each"),
        ({"seeds": [1], "scores": [1.0]}, "seeds"),
        ({"episodes": 0}, "episodes"),
        ({"colour": "red"}, "unknown key"),
    ],
)
def test_files_that_cannot_be(tmp_path, change, said):
    own = tmp_path / "own.yaml"
    (tmp_path / "own.expected.json").write_text(json.dumps({"results": {"it": {**_result(), **change}}}))
    with pytest.raises(ConfigError, match=said) as caught:
        read_expectations(str(own))
    assert str(tmp_path / "own.expected.json") in str(caught.value)


def test_a_file_that_is_not_json(tmp_path):
    (tmp_path / "own.expected.json").write_text("{")
    with pytest.raises(ConfigError, match="is not valid JSON"):
        read_expectations(str(tmp_path / "own.yaml"))


def _result():
    measured = {
        "iqm": 1.0,
        "interval": [0.0, 2.0],
        "minutes": 1.0,
        "device": "cpu",
        "versions": {},
        "recipe": "",
        "command": "",
    }
    return {"episodes": 20, "seeds": list(range(8)), "scores": [1.0] * 8, "step": 10, **measured}
