"""Pruning: which combinations are stopped, that a resume repeats it, and what is refused."""

import pytest

from rl_training.config.run import PruningConfig
from rl_training.errors import ConfigError
from rl_training.experiment import make_config
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.runtime.checkpoints.member import member_of
from rl_training.runtime.pruning import RETURN, Pruning
from tests.helpers import Cut, CutAt, assert_same_run, checkpoints, metric_rows, run_values, tiny_run

TRIALS = [{"beta": float(beta)} for beta in (1, 2, 4, 8)]


def rows(values):
    return [{"member": member, RETURN: value} for member, value in values.items()]


def test_below_the_median_stops_with_all_seeds():
    rule = Pruning(PruningConfig(kind="median"), combinations=4, seeds=2, metric=RETURN)
    assert rule.on_metrics(1, [{"member": 0, "train/loss": 1.0}]) is None
    means = {0: 1.0, 1: 3.0, 2: 9.0, 3: 9.0, 4: 5.0, 5: 5.0, 6: 0.0, 7: 2.0}
    assert rule.on_metrics(2, rows(means)) == [0, 1, 6, 7]  # 2, 9, 5, 1; the median is 3.5
    assert rule.on_metrics(3, rows({2: 9.0, 3: 9.0, 4: 4.0, 5: 4.0})) == []  # those that stopped still count
    assert rule.on_metrics(4, rows({2: 1.0, 3: 0.0, 4: 4.0, 5: 4.0})) == [2, 3]


def test_the_first_evaluations_may_be_spared():
    rule = Pruning(PruningConfig(kind="median", first=2), 2, 1, RETURN)
    assert rule.on_metrics(1, rows({0: 1.0, 1: 2.0})) == []
    assert rule.on_metrics(2, rows({0: 1.0, 1: 2.0})) == [0]


def test_halving_keeps_one_in_so_many_at_ever_longer_intervals():
    rule = Pruning(PruningConfig(kind="halving", factor=2), 8, 1, RETURN)
    assert rule.on_metrics(1, rows({member: float(member) for member in range(8)})) == [0, 1, 2, 3]
    assert sorted(rule.on_metrics(2, rows({4: 4.0, 5: 1.0, 6: 6.0, 7: 2.0}))) == [5, 7]
    assert rule.on_metrics(3, rows({4: 4.0, 6: 6.0})) == []
    again = Pruning(PruningConfig(kind="halving", factor=2), 8, 1, RETURN)
    again.load_state_dict(rule.state_dict())
    for one in (rule, again):
        assert one.on_metrics(4, rows({4: 7.0, 6: 6.0})) == [6]
        assert one.on_metrics(8, rows({4: 7.0})) == []


def test_pruned_members_are_frozen_and_a_resume_repeats_it(tmp_path):
    changes = {"trials": TRIALS, "seeds": [3, 8], "pruning": {"kind": "median"}, "total_timesteps": 160}
    tiny_run(tmp_path / "whole", **changes)
    stopped = {row["member"] for row in metric_rows(tmp_path / "whole") if row.get("event") == "stopped"}
    assert len(stopped) >= 4
    assert len(stopped) % 2 == 0
    evaluated = [row["member"] for row in metric_rows(tmp_path / "whole") if RETURN in row and row["step"] == 160]
    assert set(evaluated) == set(range(8)) - stopped
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", callbacks=[CutAt("checkpoint", 40)], **changes)
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", resume=True, callbacks=[CutAt("evaluation", 80)], **changes)
    tiny_run(tmp_path / "cut", resume=True, **changes)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    alone = member_of(load_checkpoint(checkpoints(tmp_path / "whole")[-1]), evaluated[0])
    assert alone.state["config"]["pruning"] is None
    assert alone.state["callbacks"] == []


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({}, "`pruning` compares combinations of knobs, and there is one"),
        ({"trials": TRIALS, "early_stopping": {"patience": 1}}, "`pruning` and `early_stopping` exclude each other"),
        ({"trials": TRIALS, "env_id": None}, "`pruning` needs a score: set `env_id`, or `select_by`"),
    ],
)
def test_refusals(changes, words):
    with pytest.raises(ConfigError, match=words):
        make_config(run_values(pruning={"kind": "median"}, **changes))
