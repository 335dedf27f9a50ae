"""A short run of TD3's trainer: the delayed policy, and the exploration noise on what it collects."""

import numpy as np
import pytest

from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.experiment.registry import get_spec
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.runtime.checkpoints.replay_store import read_replay
from rl_training.runtime.progress import QuietReporter
from rl_training.runtime.trainer import TrainOptions
from tests.contract import check_short_run
from tests.helpers import run_values, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    check_short_run("td3", tmp_path)


def test_policy_and_targets_move_every_second_step(finished):
    tensors = load_checkpoint(finished("td3").checkpoint).tensors
    assert tensors["adam/count/critic"].tolist() == [112]
    assert tensors["adam/count/actor"].tolist() == [56]


def test_exploration_noise_is_on_the_actions_that_are_stored(tmp_path):
    """Rows collected without noise are the policy's own; noise moves them, and they stay inside the bounds."""
    stored = {}
    for noise in (0.0, 5.0):
        result = tiny_run(tmp_path / str(noise), "td3", algo_kwargs={"exploration_noise": noise}, total_timesteps=60)
        rows = read_replay(load_checkpoint(result.checkpoint))
        stored[noise] = rows.reshape(-1, rows.shape[-1])[-40:, 3]
    assert np.ptp(stored[0.0]) < 1.0
    assert np.abs(stored[5.0]).max() == 1.0


def test_a_dataset_and_rewards_fitted_on_one_are_refused():
    with pytest.raises(ConfigError, match="td3 learns online and takes no dataset"):
        make_config(run_values("td3", algo_kwargs={"dataset": {"kind": "random"}}))
    with pytest.raises(ConfigError, match="fitted on a dataset"):
        make_config(run_values("td3", algo_kwargs={"reward": {"normalize": True}}))


def test_a_run_that_ends_before_its_first_update_says_so(tmp_path):
    reporter = QuietReporter()
    said = []
    reporter.warn = said.append
    config = make_config(run_values("td3", total_timesteps=30, algo_kwargs={"learning_starts": 1000}))
    assert get_spec("td3").train()(config, tmp_path, TrainOptions(reporter=reporter)).step == 0
    expected = "nothing will be learned online: the first update comes after learning_starts = 1,000 environment steps"
    assert [text for text in said if text.startswith(expected)]
