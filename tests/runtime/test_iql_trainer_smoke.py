"""A short run of IQL's trainer: checkpoint, metrics, evaluation."""

import pytest

from rl_training.config.loading import make_config
from rl_training.runtime import build_offline_dataset, load_checkpoint, process_offline_dataset, train_iql
from rl_training.runtime.phases.build import total_steps
from rl_training.runtime.trainer import TrainOptions
from tests.contract import check_short_run
from tests.helpers import metric_rows, run_values, small_dataset


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    check_short_run("iql", tmp_path)
    assert (tmp_path / "timings.jsonl").read_text().count("\n") == 12


def test_losses_fall_on_a_fixed_batch_of_data(tmp_path):
    cloning = {"beta": 0.0}  # otherwise the weights of the loss grow with the advantages
    budget = {"total_timesteps": 400, "eval_interval": 400, "checkpoint_interval": 400}
    train_iql(make_config(run_values(**budget, algo_kwargs=cloning)), tmp_path)
    losses = [row["train/actor_loss"] for row in metric_rows(tmp_path) if "train/actor_loss" in row]
    assert sum(losses[-5:]) < sum(losses[:5])


@pytest.mark.parametrize(
    ("budgets", "expected"),
    [({"max_updates": 50}, 50), ({"max_epochs": 2}, 38), ({"max_epochs": 100, "max_updates": 999}, 120)],
)
def test_the_first_budget_reached_ends_the_run(tmp_path, budgets, expected):
    """600 rows in batches of 32 are 19 steps an epoch."""
    settings = make_config(run_values(**budgets))
    assert total_steps(settings, 19) == expected
    assert train_iql(settings, tmp_path).step == expected


def test_training_without_an_environment(tmp_path):
    config = make_config(run_values(env_id=None, algo_kwargs={"dataset": None}))
    result = train_iql(config, tmp_path, TrainOptions(dataset=small_dataset()))
    assert result.evaluation is None
    assert not any("eval/return_mean" in row for row in metric_rows(tmp_path))


def test_transforms_are_fitted_once_and_travel_with_the_checkpoint(tmp_path):
    reward = {"scale": 2.0, "shift": 1.0, "clip": [-3.0, 5.0], "normalize": True}
    config = make_config(run_values(algo_kwargs={"normalize_observations": True, "reward": reward}))
    dataset = build_offline_dataset(config)
    data = process_offline_dataset(dataset, config)
    returns = [episode.total_reward for episode in dataset.episodes()]
    scale = 2.0 * 1000 / (max(returns) - min(returns))
    columns = dict(zip([name for name, _ in data.layout.fields], data.rows.T[[0, 3, 4, 5, 8]], strict=True))
    assert columns["rewards"] == pytest.approx((dataset.rewards * scale + 1.0).clip(-3, 5), rel=1e-4)
    assert columns["actions"] == pytest.approx(dataset.actions[:, 0] / 2.0)
    assert columns["observations"].mean() == pytest.approx(0.0, abs=1e-4)
    assert columns["observations"].std() == pytest.approx(1.0, abs=5e-3)
    stored = load_checkpoint(train_iql(config, tmp_path).checkpoint).tensors
    assert stored["transforms/observation_mean"].tolist() == pytest.approx(data.transforms.observation_mean.tolist())
    assert stored["transforms/reward"].tolist() == pytest.approx([scale, 1.0, -3.0, 5.0])
