"""A short run of Cal-QL's trainer, and the returns it derives."""

import numpy as np
import pytest

from rl_training.config.loading import make_config
from rl_training.data import compute_returns_to_go
from rl_training.runtime import build_offline_dataset, process_offline_dataset
from tests.contract import check_short_run
from tests.helpers import metric_rows, run_values, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    check_short_run("cal_ql", tmp_path)


@pytest.mark.parametrize("tail", ["last_penalty", "last_reward", "zero", "none"])
def test_returns_come_from_the_processed_rewards_with_the_run_s_gamma(tail):
    reward = {"scale": 0.1, "shift": -0.5, "clip": [-1.2, 0.0]}
    config = make_config(run_values("cal_ql", algo_kwargs={"gamma": 0.9, "tail": tail, "reward": reward}))
    dataset = build_offline_dataset(config)
    data = process_offline_dataset(dataset, config)
    processed = np.clip(dataset.rewards * np.float32(0.1) - 0.5, -1.2, 0.0)
    expected = compute_returns_to_go(processed, dataset.terminals, dataset.timeouts, 0.9, tail)
    assert data.layout.fields[-1] == ("returns_to_go", 1)
    if tail == "none":
        assert np.isneginf(data.rows[:, -1]).all()  # every episode of Pendulum ends by its time limit
    else:
        assert data.rows[:, -1] == pytest.approx(expected, rel=1e-5)


def test_what_the_tail_says_reaches_the_floor(tmp_path):
    """With negative rewards a cut sum is an over-estimate: it floors values that the default does not."""
    shares = {}
    for tail in ("zero", "last_penalty", "none"):
        tiny_run(tmp_path / tail, "cal_ql", algo_kwargs={"tail": tail, "reward": {"scale": 1e-3}})
        rows = [row for row in metric_rows(tmp_path / tail) if "train/calibrated_fraction" in row]
        shares[tail] = max(row["train/calibrated_fraction"] for row in rows)
    assert shares["none"] == 0.0
    assert shares["zero"] > shares["last_penalty"]


def test_failed_episodes_of_a_sparse_task(tmp_path):
    result = tiny_run(tmp_path, "cal_ql", algo_kwargs={"failure_reward": -5.0})
    assert result.step == 120
