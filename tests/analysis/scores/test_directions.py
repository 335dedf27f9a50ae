"""Which way a metric points, and what is said of one that is no score."""

import json

import pytest

from rl_training.analysis.comparison import compare
from rl_training.analysis.logged_run import LoggedRun
from rl_training.analysis.scores.directions import known_direction
from rl_training.errors import ConfigError
from rl_training.registry import REGISTRY
from tests.analysis.runs import write_run
from tests.helpers import tiny_run
from tests.logs import plant, table, write_csv

SMALL = [0.10, 0.11, 0.12, 0.13, 0.14, 0.15]
LARGE = [value + 0.5 for value in SMALL]


@pytest.fixture
def runs(tmp_path):
    """Two populations without an environment: every metric of the second is larger."""
    for algo, values in (("iql", SMALL), ("td3_bc", LARGE)):
        folder = write_run(tmp_path / algo, [], algo, env_id=None, seeds=range(6), algo_kwargs={"dataset": "data/logs"})
        names = ("validation/action_distance", "validation/critic_loss", "validation/q_policy", "eval/own")
        rows = [
            {"step": step, "member": k, "seed": k, **dict.fromkeys(names, value)}
            for step in (50, 100)
            for k, value in enumerate(values)
        ]
        (folder / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return tmp_path


@pytest.mark.parametrize(
    ("metric", "said", "caution"),
    [
        (
            "validation/action_distance",
            "iql is closer to the logged actions than td3_bc",
            "Closer to the logged actions is not",
        ),
        (
            "validation/critic_loss",
            "validation/critic_loss of iql is smaller than that of td3_bc",
            "not how good a policy is.",
        ),
    ],
)
def test_low_distances_and_losses_are_smaller_and_never_better(runs, metric, said, caution):
    found = compare([runs], metric=metric)
    assert (found.direction, found.lower_is_better, found.pairs[0].verdict) == ("lower", True, "smaller")
    assert found.conclusion.startswith(f"{said} on logs: probability of a smaller value 1.00 [")
    assert caution in found.conclusion
    assert compare([runs], metric=metric, lower_is_better=True).as_dict() == found.as_dict()
    assert compare([runs], metric=metric, against="iql").pairs[0].verdict == "larger"


def test_what_critics_expect_is_larger_or_smaller_and_never_better(runs):
    found = compare([runs], metric="validation/q_policy")
    assert (found.direction, found.lower_is_better, found.pairs[0].verdict) == ("none", False, "smaller")
    assert found.conclusion.startswith(
        "validation/q_policy of iql is smaller than that of td3_bc on logs: probability of a larger value 0.00 ["
    )
    assert found.conclusion.endswith("is no score: neither a larger nor a smaller value makes a better policy.")
    assert "improvement" not in found.conclusion
    assert compare([runs], metric="validation/q_policy", against="iql").pairs[0].verdict == "larger"


@pytest.mark.parametrize(
    ("options", "what"), [({"lower_is_better": True}, "--lower-is-better"), ({"by": "best"}, "--by best")]
)
def test_no_value_of_it_is_the_best(runs, options, what):
    with pytest.raises(ConfigError, match=f"^{what}: validation/q_policy is no score"):
        compare([runs], metric="validation/q_policy", **options)


@pytest.mark.parametrize("metric", ["eval/return_std", "eval/length_mean"])
def test_spread_and_length_of_episodes_are_no_score(metric):
    assert known_direction(metric) == "none"


def test_of_another_metric_the_caller_knows(runs):
    assert compare([runs], metric="eval/own").pairs[0].verdict == "worse"
    assert compare([runs], metric="eval/own", lower_is_better=True).pairs[0].verdict == "better"


@pytest.mark.parametrize("algo", REGISTRY)
def test_every_metric_of_every_algorithm_is_known(algo):
    names = [*REGISTRY[algo].learner.metric_names, "learning_rate_factor/actor"]
    assert [name for name in names if known_direction(f"train/{name}") is None] == []


def test_every_figure_of_a_policy_on_held_out_rows_is_known(tmp_path):
    log = write_csv(tmp_path / "log.csv", table(plant(rows=1200, length=40)))
    chosen = {"select_by": "action_distance", "algo_kwargs": {"dataset": {"path": str(log)}}}
    tiny_run(tmp_path / "run", env_id=None, **chosen)
    names = LoggedRun.load(tmp_path / "run").metrics("validation/")
    assert {"validation/score", "validation/at_bound", "validation/q_policy"} <= set(names)
    assert [name for name in names if known_direction(name) is None] == []
    assert {known_direction(name) for name in names if name.startswith("validation/action_distance")} == {"lower"}
