"""A short run of the trainer of TD3+BC, and its normalised observations."""

import numpy as np
import pytest
import torch

from rl_training.api import Policy
from rl_training.data import TransitionDataset
from rl_training.runtime import load_checkpoint
from tests.contract import check_short_run
from tests.helpers import Notes, metric_rows, small_arrays, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    rows = check_short_run("td3_bc", tmp_path)
    assert all("train/bc_loss" in row for row in rows)


def test_observations_are_normalised_by_default_and_the_statistics_travel(finished):
    result = finished("td3_bc")
    tensors = load_checkpoint(result.checkpoint).tensors
    assert tensors["transforms/observation_mean"].abs().max() > 0.0
    assert tensors["adam/count/actor"].tolist() == [60]  # every second of 120 steps
    policy = Policy.load(result.checkpoint)
    raw = np.array([[0.3, -0.2, 1.0]], dtype=np.float32)
    seen = (raw - tensors["transforms/observation_mean"].numpy()) / tensors["transforms/observation_std"].numpy()
    inside = policy.learner.act(torch.from_numpy(seen)).numpy()
    assert np.allclose(policy.predict(raw), inside * 2.0, atol=1e-6)


def test_metrics_are_whole_where_the_policy_is_not_due(tmp_path):
    result = tiny_run(tmp_path, "td3_bc", log_interval=7, total_timesteps=35, eval_interval=100, checkpoint_interval=100)
    assert result.step == 35
    rows = [row for row in metric_rows(tmp_path) if "train/critic_loss" in row]
    assert [row["step"] for row in rows] == [7, 14, 21, 28, 35]
    assert all("train/actor_loss" in row for row in rows)


@pytest.mark.parametrize(("width", "alpha"), [(1.0, 2.5), (0.5, 2.5 / 4), (0.1, 0.025)])
def test_an_automatic_alpha_follows_the_variance_of_the_logged_actions(width, alpha, tmp_path):
    """Uniform actions that fill their range get the published weight, those in its middle less, by their variance."""
    arrays = small_arrays(rows=4000, length=100)
    arrays["actions"] = np.linspace(-width, width, 8000, dtype=np.float32).reshape(4000, 2)
    data = TransitionDataset.from_dict(arrays, action_low=[-1, -1], action_high=[1, 1])
    said = Notes()
    result = tiny_run(tmp_path / "run", "td3_bc", env_id=None, dataset=data, reporter=said)
    assert result.learner.knobs.alpha == pytest.approx(alpha, rel=0.1)
    assert any(note.startswith("alpha: ") for note in said.notes)


@pytest.mark.parametrize(("knob", "told"), [("alpha", False), ("tau", True)])
def test_a_fitted_knob_is_told_only_where_a_member_uses_it(knob, told, tmp_path):
    said = Notes()
    tiny_run(tmp_path, "td3_bc", reporter=said, sweep={knob: [0.1, 0.2]}, total_timesteps=10)
    assert any("alpha: " in note for note in said.notes) is told
