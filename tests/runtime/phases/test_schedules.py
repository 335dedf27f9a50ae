"""Learning-rate schedules: names, shares of the budget, final factors; exact values, and the numbers of plain names."""

from math import cos, pi

import pytest

from rl_training.config.loading import make_config
from rl_training.config.schedules import CONSTANT, ScheduleConfig
from rl_training.errors import ConfigError
from rl_training.runtime.phases.schedules import schedule_factor
from tests.helpers import assert_same_run, die_at_each, metric_rows, tiny_run


def schedules(value):
    return make_config({"algo": "iql", "learning_rate_schedule": value}).schedules


@pytest.mark.parametrize("total", [3, 7, 1000, 999_983])
def test_plain_names_give_their_numbers_bit_for_bit(total):
    for step in range(0, total, max(1, total // 50)):
        assert schedule_factor(ScheduleConfig(kind="cosine"), step, total) == 0.5 * (1.0 + cos(pi * (step / total)))
        assert schedule_factor(ScheduleConfig(kind="linear"), step, total) == 1.0 - step / total
        assert schedule_factor(CONSTANT, step, total) == 1.0


@pytest.mark.parametrize(
    ("kind", "expected"), [("linear", [1.0, 0.775, 0.55, 0.1, 0.1]), ("cosine", [1.0, 0.868198051533946, 0.55, 0.1, 0.1])]
)
def test_a_share_of_the_run_and_a_final_factor(kind, expected):
    schedule = ScheduleConfig(kind=kind, over=0.5, to=0.1)
    assert [schedule_factor(schedule, step, 80) for step in (0, 10, 20, 40, 79)] == pytest.approx(expected)


def test_one_for_all_groups_or_one_per_group():
    half = {"kind": "linear", "over": 0.5}
    assert set(schedules("cosine").values()) == {ScheduleConfig(kind="cosine")}
    assert set(schedules(half).values()) == {ScheduleConfig(kind="linear", over=0.5)}
    mixed = schedules({"actor": half, "critic": "cosine"})
    assert mixed["actor"] == ScheduleConfig(kind="linear", over=0.5)
    assert mixed["critic"] == ScheduleConfig(kind="cosine")
    assert mixed["value"] == CONSTANT


def test_a_record_has_names_as_they_are_written():
    config = make_config(
        {"algo": "iql", "learning_rate_schedule": {"actor": "cosine", "critic": {"kind": "linear", "to": 0.5}}}
    )
    recorded = config.record()["learning_rate_schedule"]
    assert (recorded["actor"], recorded["value"]) == ("cosine", "constant")
    assert recorded["critic"] == {"kind": "linear", "over": 1.0, "to": 0.5}
    assert make_config(config.record()).schedules == config.schedules


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (
            "cosin",
            "`learning_rate_schedule` = 'cosin' is not legal: must be one of constant, linear, cosine, or {",
        ),
        (
            {"actor": "cosin"},
            "`learning_rate_schedule.actor` = 'cosin' is not legal: must be one of constant, linear",
        ),
        ({"actor": {"kind": "cosin"}}, "`learning_rate_schedule.actor.kind` = 'cosin' is not legal"),
        ({"actor": {"over": 0.5}}, "`learning_rate_schedule.actor.kind` is required"),
        (
            {"actor": {"kind": "cosine", "over": 0.0}},
            "`learning_rate_schedule.actor.over` = 0.0 is not legal: must be a number",
        ),
        ({"actor": {"kind": "cosine", "over": 1.5}}, "`learning_rate_schedule.actor.over` = 1.5 is not legal"),
        (
            {"actor": {"kind": "cosine", "to": 1.0}},
            "`learning_rate_schedule.actor.to` = 1.0 is not legal: must be a number",
        ),
        ({"actor": {"kind": "constant", "to": 0.5}}, "`over` and `to` have no effect on a constant schedule"),
        ({"actor": {"kind": "cosine", "form": 1}}, "unknown key `learning_rate_schedule.actor.form`"),
    ],
)
def test_what_is_not_legal_is_refused(value, words):
    with pytest.raises(ConfigError) as caught:
        schedules(value)
    assert words in str(caught.value)


@pytest.mark.parametrize(("algo", "unit"), [("iql", "step"), ("sac", "env_step")])
def test_a_run_follows_its_schedule_and_resumes(algo, unit, tmp_path):
    settings = {"learning_rate_schedule": {"actor": {"kind": "linear", "over": 0.5, "to": 0.25}}, "eval_interval": 200}
    tiny_run(tmp_path / "whole", algo, **settings)
    rows = [row for row in metric_rows(tmp_path / "whole") if "train/actor_loss" in row]
    expected = {step: max(1.0 - 0.75 * (step - 1) / 60, 0.25) for step in range(10, 121, 10)}
    assert {row[unit]: row["train/learning_rate_factor/actor"] for row in rows} == pytest.approx(expected)
    assert all("train/learning_rate_factor/critic" not in row for row in rows)

    def cut(**options):
        tiny_run(tmp_path / "cut", algo, **settings, **options)

    die_at_each(cut, [("log", 50), ("log", 100)])
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_a_budget_that_a_schedule_spans_is_fixed(tmp_path):
    settings = {
        "learning_rate_schedule": {"critic": {"kind": "linear", "over": 0.1}},
        "total_timesteps": 20,
        "eval_interval": 200,
    }
    tiny_run(tmp_path, **settings)
    with pytest.raises(ConfigError, match="a schedule spans the whole run, so its budget is fixed"):
        tiny_run(tmp_path, resume=True, **{**settings, "total_timesteps": 30})
