"""A short run of AWAC's trainer, continued in the environment with sampled actions."""

from tests.contract import check_short_run
from tests.helpers import metric_rows, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    rows = check_short_run("awac", tmp_path)
    assert all(0.0 < row["train/weight_mean"] <= 100.0 for row in rows)


def test_it_is_finetuned_in_the_environment(tmp_path):
    result = tiny_run(tmp_path, "awac", finetune={"env_steps": 60, "prior_ratio": 0.5})
    assert result.env_step == 60
    assert any("env_step" in row and "train/weight_mean" in row for row in metric_rows(tmp_path))
