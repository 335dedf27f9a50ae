"""A short run of REDQ's trainer: several updates per environment step, the policy once per round."""

import pytest

from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.runtime import load_checkpoint
from tests.contract import check_short_run
from tests.helpers import checkpoints, run_values


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    check_short_run("redq", tmp_path)
    last = load_checkpoint(checkpoints(tmp_path)[-1])
    assert (last.env_step, last.step) == (120, 224)
    assert last.tensors["adam/count/actor"].tolist() == [112]
    assert last.tensors["critic/0/weight"].shape == (1, 3, 4, 16)


def test_the_published_defaults():
    kwargs = make_config({"algo": "redq", "env_id": "Pendulum-v1"}).algo_kwargs
    assert (kwargs.num_critics, kwargs.subset_size, kwargs.gradient_updates_per_step) == (10, 2, 20)
    assert (kwargs.actor_interval, kwargs.learning_starts, kwargs.hidden_sizes) == (None, 5000, (256, 256))


def test_a_subset_larger_than_the_ensemble_is_refused():
    with pytest.raises(
        ConfigError, match="in `algo_kwargs`: `subset_size` = 4 is not legal: must be at most num_critics = 3"
    ):
        make_config(run_values("redq", algo_kwargs={"subset_size": 4}))
