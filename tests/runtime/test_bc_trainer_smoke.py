"""Short runs of behaviour cloning: checkpoint, metrics, evaluation; on all episodes and on the best."""

import pytest

from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.runtime import build_offline_dataset, load_checkpoint, train_bc
from tests.contract import check_short_run
from tests.helpers import run_values

RECIPE = {"kind": "random", "size": 4000, "seed": 3}


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    check_short_run("bc", tmp_path)


def test_a_deterministic_policy_trains_too(tmp_path):
    result = train_bc(make_config(run_values("bc", algo_kwargs={"policy": "deterministic"})), tmp_path)
    assert "actor/log_std" not in load_checkpoint(result.checkpoint).tensors


@pytest.mark.parametrize("top", ["10%", 0.1, " 10 %"])
def test_the_best_tenth_of_the_episodes(top):
    whole = build_offline_dataset(make_config(run_values("bc", algo_kwargs={"dataset": RECIPE})))
    config = make_config(run_values("bc", algo_kwargs={"dataset": {**RECIPE, "top": top}}))
    assert config.algo_kwargs.dataset[0].top == pytest.approx(0.1)
    best = build_offline_dataset(config)
    assert sorted(best.episode_returns()) == sorted(whole.episode_returns())[-2:]
    assert best.fingerprint != whole.fingerprint


@pytest.mark.parametrize("top", ["0%", "ten", 1.5, -1, True])
def test_shares_that_are_none_are_refused(top):
    with pytest.raises(ConfigError, match="top"):
        make_config(run_values("bc", algo_kwargs={"dataset": {**RECIPE, "top": top}}))
