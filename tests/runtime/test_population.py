"""Members of a population: frozen one by one, evaluated side by side, never mixed."""

import math
import re

import numpy as np
import pytest
import torch
from scipy import stats

from rl_training.analysis.logged_run import LoggedRun
from rl_training.api.evaluating.report import evaluation_report
from rl_training.api.evaluating.spread import crossed_interval, mean_interval
from rl_training.api.policy import Policy
from rl_training.envs.evaluation import Evaluation
from rl_training.errors import ConfigError, DivergedError
from rl_training.experiment.kept_warnings import kept_in
from rl_training.report.cautions import cautions_of
from rl_training.runtime.callbacks import Callback, EarlyStopping
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from tests.helpers import Cut, CutAt, assert_same_run, checkpoints, metric_rows, tiny_run


class Poison(Callback):
    """Puts NaN into one member's weights after a log row."""

    def __init__(self, step, members):
        self.step, self.members = step, members

    def on_start(self, learner):
        self.learner = learner

    def on_log(self, step, rows):
        if step == self.step:
            self.learner.model.trained.flat[self.members, 0] = math.nan


def test_a_diverged_member_is_frozen_and_the_others_go_on(finished, tmp_path):
    tiny_run(tmp_path / "sick", seeds=[0, 7], callbacks=[Poison(50, [1])])
    rows = metric_rows(tmp_path / "sick")
    assert [row for row in rows if row.get("event") == "diverged"] == [
        {"step": 60, "member": 1, "seed": 7, "event": "diverged"}
    ]
    assert not any(row["member"] == 1 and row["step"] > 60 for row in rows)
    healthy = [row for row in metric_rows(finished("iql", [0, 7]).run_dir) if row["member"] == 0]
    assert [row for row in rows if row["member"] == 0] == healthy
    last = load_checkpoint(tmp_path / "sick" / "checkpoints" / "step-000000120")
    assert all(torch.isfinite(value).all() for name, value in last.tensors.items() if not name.startswith("transforms"))
    assert last.tensors["adam/count/actor"].tolist() == [120, 50]
    assert [record["status"] for record in last.state["members"]] == ["training", "diverged"]


@pytest.mark.parametrize("algo", ["iql", "sac"])
def test_a_checkpoint_between_a_divergence_and_the_next_log_row_is_written_and_exact(algo, tmp_path):
    sick = {"seeds": [0, 7], "log_interval": 50}
    tiny_run(tmp_path / "whole", algo, callbacks=[Poison(50, [1])], **sick)
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", algo, callbacks=[Poison(50, [1]), CutAt("checkpoint", 60)], **sick)
    state = load_checkpoint(checkpoints(tmp_path / "cut")[-1]).state
    assert [record["status"] for record in state["members"]] == ["training", "diverged"]
    assert all(column[0] and column[1] == 0.0 for name, column in state["recent_metrics"].items() if name.endswith("loss"))
    tiny_run(tmp_path / "cut", algo, resume=True, **sick)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(("members", "whose"), [([1], "seed 7"), ([0, 1], "seeds 0 and 7")])
def test_a_warning_of_divergence_has_one_place(tmp_path, members, whose):
    tiny_run(tmp_path, seeds=[0, 7, 8], callbacks=[Poison(50, members)])
    (kept,) = kept_in(tmp_path)
    assert kept["at"] == "step 60"
    frozen = "frozen at the last good state from before, while the others continue"
    assert re.fullmatch(rf"{whose} met NaN or inf in \w.* by step 60; {frozen}", kept["text"])
    assert [one.text for one in cautions_of(LoggedRun.load(tmp_path))] == [kept["text"]]


def test_online_a_diverged_member_stands_still_with_its_environment(finished, tmp_path):
    tiny_run(tmp_path / "sick", "sac", seeds=[0, 7], callbacks=[Poison(50, [1])])
    runs = (tmp_path / "sick", finished("sac", [0, 7]).run_dir)
    sick, well = ([row for row in metric_rows(run) if row["member"] == 0] for run in runs)
    assert sick == well
    last = load_checkpoint(checkpoints(tmp_path / "sick")[-1])
    assert [record["status"] for record in last.state["members"]] == ["training", "diverged"]
    assert [episode["length"] for episode in last.state["episodes"]] == [120, 60]
    assert torch.isfinite(last.tensors["online/observations"]).all()
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", "sac", seeds=[0, 7], callbacks=[Poison(50, [1]), CutAt("log", 100)])
    tiny_run(tmp_path / "cut", "sac", seeds=[0, 7], resume=True)
    again = load_checkpoint(checkpoints(tmp_path / "cut")[-1])
    assert all(torch.equal(value, again.tensors[name]) for name, value in last.tensors.items())


def test_a_solo_run_that_diverges_keeps_its_last_good_checkpoint(tmp_path):
    with pytest.raises(DivergedError, match=r"seed 0 met NaN or inf in .*_loss.* by step 60.*step-000000040"):
        tiny_run(tmp_path, callbacks=[Poison(50, [0])])
    names = sorted(path.name for path in (tmp_path / "checkpoints").glob("step-*"))
    assert names[-1] == "step-000000040"
    tensors = load_checkpoint(tmp_path / "checkpoints" / names[-1]).tensors
    assert all(torch.isfinite(value).all() for name, value in tensors.items() if not name.startswith("transforms"))
    assert '"status": "DivergedError"' in (tmp_path / "run.json").read_text()


def test_all_members_diverged_is_an_error(tmp_path):
    with pytest.raises(DivergedError):
        tiny_run(tmp_path, seeds=[0, 1], callbacks=[Poison(50, [0, 1])])


def evaluation(*means):
    returns = np.array([[mean, mean] for mean in means], dtype=np.float64)
    return Evaluation(returns, np.ones_like(returns, dtype=np.int64))


def test_early_stopping_rules_by_member():
    rule = EarlyStopping(patience=2, min_delta=1.0, threshold=100.0)
    assert rule.on_evaluation(1, evaluation(0.0, 0.0, 0.0), [0, 1, 2]) == []
    assert rule.on_evaluation(2, evaluation(0.5, 5.0, 100.0), [0, 1, 2]) == [2]
    state = rule.state_dict()
    again = EarlyStopping(patience=2, min_delta=1.0, threshold=100.0)
    again.load_state_dict(state)
    for one in (rule, again):
        assert one.on_evaluation(3, evaluation(0.9, 6.5, 0.0), [0, 1]) == [0]


def test_early_stopping_freezes_members_and_ends_the_run(tmp_path):
    result = tiny_run(tmp_path, seeds=[0, 1, 2], early_stopping={"threshold": -1e9})
    assert result.step == 40
    assert {record.status for record in result.members} == {"stopped"}
    assert load_checkpoint(result.checkpoint).step == 40
    rows = metric_rows(tmp_path)
    assert sum(row.get("event") == "stopped" for row in rows) == 3


def test_early_stopping_resumes_exactly(tmp_path):
    changes = {"seeds": [0, 1, 2], "early_stopping": {"patience": 1}, "total_timesteps": 300}
    tiny_run(tmp_path / "whole", **changes)

    class Stop(Exception):
        pass

    class CutAt(Callback):
        def on_checkpoint(self, step, path):
            if step == 90:
                raise Stop

    with pytest.raises(Stop):
        tiny_run(tmp_path / "cut", callbacks=[CutAt()], **changes)
    tiny_run(tmp_path / "cut", resume=True, **changes)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    statuses = [
        r["status"] for r in load_checkpoint(next((tmp_path / "cut" / "checkpoints").glob("step-*"))).state["members"]
    ]
    assert "stopped" in statuses


def test_the_interval_of_a_mean_over_few_members_is_wider_than_their_range():
    """Two values one from their mean: the standard error is 1, and Student's distribution with one degree has 12.706."""
    assert mean_interval(np.array([1.0, 3.0])) == pytest.approx([2.0 - 12.706, 2.0 + 12.706], abs=1e-2)
    assert mean_interval(np.array([1.0, 2.0, 3.0])) == pytest.approx([2.0 - 4.303 / 3**0.5, 2.0 + 4.303 / 3**0.5], abs=1e-2)
    assert mean_interval(np.array([5.0])) == [5.0, 5.0]


def test_luck_of_episodes_that_all_members_share_is_in_the_interval():
    """Members one from their mean and episodes five: standard errors 1 and 5, together 26 with 26^2 / (1 + 25^2) degrees."""
    returns = np.array([[0.0, 10.0], [2.0, 12.0]])
    reach = stats.t.ppf(0.975, 26.0**2 / 626.0) * 26.0**0.5
    assert crossed_interval(returns) == pytest.approx([6.0 - reach, 6.0 + reach], rel=1e-3)
    assert crossed_interval(np.full((2, 3), 4.0)) == [4.0, 4.0]
    assert crossed_interval(returns[:, :1]) == mean_interval(returns[:, 0])


def test_intervals_over_shared_episodes_hold_the_truth():
    draw, held = np.random.default_rng(0), 0
    for _ in range(400):
        members, episodes, both = draw.normal(0, 1, (5, 1)), draw.normal(0, 4, (1, 20)), draw.normal(0, 2, (5, 20))
        low, high = crossed_interval(members + episodes + both)
        held += low <= 0.0 <= high
    assert held / 400 == pytest.approx(0.95, abs=0.03)


def test_the_same_episodes_for_all_members_are_known(finished):
    policy = Policy.load(finished("iql", [0, 7]).run_dir)
    own, shared = policy.evaluate(3), policy.evaluate(3, seed=5)
    assert (own.same_episodes, shared.same_episodes) == (False, True)
    report = evaluation_report(shared, policy.members)
    assert report["return_interval"] == crossed_interval(shared.returns)
    assert evaluation_report(own, policy.members)["return_interval"] == mean_interval(own.returns.mean(axis=1))


def test_policy_of_a_population(finished):
    policy = Policy.load(finished("iql", [0, 7]).run_dir)
    report = evaluation_report(policy.evaluate(3), policy.members)
    assert [row["seed"] for row in report["members"]] == [0, 7]
    assert report["return_mean"] == pytest.approx(np.mean([row["return_mean"] for row in report["members"]]))
    low, high = report["return_interval"]
    assert low <= report["return_mean"] <= high
    assert len(report["returns"]) == len(report["lengths"]) == 6
    one = evaluation_report(policy.evaluate(3), policy.members, 1)
    assert one["return_mean"] == report["members"][1]["return_mean"]
    best = int(np.argmax([member.last_return for member in policy.members]))
    observation = [1.0, 0.0, 0.0]
    assert policy.predict(observation) == policy.predict(observation, member=best)
    assert policy.predict(observation, member=0) != policy.predict(observation, member=1)
    with pytest.raises(ConfigError, match="member = 2 is not legal: must be an integer from 0 to 1"):
        policy.predict(observation, member=2)


def test_a_member_evaluates_like_its_solo_run(finished, tmp_path):
    tiny_run(tmp_path, seed=7)
    both, solo = Policy.load(finished("iql", [0, 7]).run_dir).evaluate(3), Policy.load(tmp_path).evaluate(3)
    assert both.returns[1] == pytest.approx(solo.returns[0], rel=1e-3)
