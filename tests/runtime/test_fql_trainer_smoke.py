"""A short run of FQL's trainer, its options from a config, and its policy in an environment."""

import numpy as np
import pytest

from rl_training.api import Policy
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.runtime import load_checkpoint
from tests.contract import check_short_run
from tests.helpers import generator, metric_rows, run_values, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    rows = check_short_run("fql", tmp_path)
    assert all({"train/flow_loss", "train/distill_loss"} <= set(row) for row in rows)


def test_the_options_train_from_a_config(tmp_path):
    options = {"q_aggregation": "min", "normalize_q": True, "alpha": 0.3, "flow_steps": 2}
    result = tiny_run(tmp_path, "fql", seeds=[0, 1], algo_kwargs=options)
    assert result.learner.knobs.flow_steps == 2
    assert len(metric_rows(tmp_path)) == 2 * (12 + 3)


def test_both_policies_are_in_the_checkpoint_and_predictions_sample_the_one_step_policy(finished):
    result = finished("fql")
    tensors = load_checkpoint(result.checkpoint).tensors
    assert tensors["actor/0/weight"].shape == (1, 3 + 1, 16)  # observation and noise
    assert tensors["flow/0/weight"].shape == (1, 3 + 1 + 1, 16)  # observation, point and time
    assert not any(name.startswith("target/flow") for name in tensors)
    policy = Policy.load(result.checkpoint)
    rows = generator().normal(size=(5, 3)).astype(np.float32)
    assert np.array_equal(policy.predict(rows), policy.predict(rows))
    assert not np.array_equal(policy.predict(rows), policy.predict(rows, deterministic=False))
    assert np.abs(policy.predict(rows, deterministic=False)).max() <= 2.0


def test_it_goes_on_in_an_environment(tmp_path):
    result = tiny_run(tmp_path, "fql", finetune={"env_steps": 30})
    assert load_checkpoint(result.checkpoint).env_step == 30


@pytest.mark.parametrize(("variance", "weight"), [(1 / 3, 2.0), (1 / 30, 20.0)])
def test_narrow_actions_are_cloned_more(variance, weight):
    kwargs = make_config(run_values("fql")).algo_kwargs
    assert kwargs.normalize_q
    assert kwargs.fitted(lambda: variance).alpha == pytest.approx(weight)
    with pytest.raises(ConfigError, match="`alpha: auto` is a balance with a normalised Q value"):
        make_config(run_values("fql", algo_kwargs={"normalize_q": False}))
