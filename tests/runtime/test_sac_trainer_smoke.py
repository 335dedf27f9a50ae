"""A short run of SAC's trainer: warm-up, replay, both counters and the budgets."""

import pytest

from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.runtime import load_checkpoint, train_sac
from rl_training.runtime.trainer import TrainOptions
from tests.contract import check_short_run
from tests.helpers import checkpoints, metric_rows, run_values, small_dataset, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    rows = check_short_run("sac", tmp_path)
    assert [row["step"] for row in rows[:3]] == [2, 12, 22]  # 9 steps of warm-up, the first update follows the ninth
    assert [path.name for path in checkpoints(tmp_path)][-1] == "env-000000120_step-000000112"


def test_warm_up_takes_random_actions_and_no_update(tmp_path):
    result = tiny_run(tmp_path, "sac", algo_kwargs={"learning_starts": 1000})
    assert (result.step, result.env_step) == (0, 120)
    rows = metric_rows(tmp_path)
    assert not any("train/critic_loss" in row for row in rows)
    assert load_checkpoint(result.checkpoint).tensors["adam/count/critic"].tolist() == [0]


def test_episodes_are_reported_once_they_are_whole(tmp_path):
    tiny_run(tmp_path, "sac", total_timesteps=410, log_interval=100, eval_interval=1000, checkpoint_interval=1000)
    rows = [row for row in metric_rows(tmp_path) if "eval/return_mean" not in row]
    assert ["data/episodes" in row for row in rows] == [False, True, True, True, True]
    assert [row["data/episodes"] for row in rows[1:]] == [1, 1, 2, 2]
    assert all(row["data/episode_length"] == 200 and row["data/episode_return"] < 0.0 for row in rows[1:])


@pytest.mark.parametrize(
    ("kwargs", "budget", "steps"),
    [
        ({"train_frequency": 4, "gradient_updates_per_step": 3}, {}, (84, 120)),  # 28 rounds, at 12, 16, ... 120
        ({}, {"max_updates": 50}, (50, 58)),
        ({"gradient_updates_per_step": 4}, {"max_updates": 50}, (48, 20)),
    ],
)
def test_both_counters_are_kept_and_budgeted(tmp_path, kwargs, budget, steps):
    result = tiny_run(tmp_path, "sac", algo_kwargs=kwargs, **budget)
    assert (result.step, result.env_step) == steps


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"env_id": None}, "`env_id` is required: sac learns in an environment"),
        ({"max_epochs": 3}, "an online run has none; use `max_updates`"),
        ({"algo_kwargs": {"dataset": {"kind": "random"}}}, "sac learns online and takes no dataset; try rlpd"),
        ({"algo_kwargs": {"reward": {"normalize": True}}}, "fitted on a dataset"),
        ({"algo_kwargs": {"train_frequency": 0}}, "`algo_kwargs.train_frequency` = 0"),
        ({"algo_kwargs": {"buffer_capacity": 0}}, "`algo_kwargs.buffer_capacity` = 0"),
        ({"algo_kwargs": {"learning_starts": -1}}, "`algo_kwargs.learning_starts` = -1"),
        ({"max_updates": 3, "algo_kwargs": {"gradient_updates_per_step": 5}}, "less than one round"),
    ],
)
def test_settings_that_make_no_sense_online_are_refused(changes, words):
    with pytest.raises(ConfigError, match=words):
        make_config(run_values("sac", **changes))


def test_a_dataset_is_refused(tmp_path):
    with pytest.raises(ConfigError, match="sac learns online and takes no dataset"):
        train_sac(make_config(run_values("sac")), tmp_path, TrainOptions(dataset=small_dataset()))
