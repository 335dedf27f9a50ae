"""A short run of ReBRAC's trainer, the next actions it derives, and its options from a config."""

import numpy as np
import pytest

from rl_training.config.loading import make_config
from rl_training.data import TransitionDataset
from rl_training.runtime import load_checkpoint
from tests.contract import check_short_run
from tests.helpers import metric_rows, run_values, small_arrays, tiny_run


def test_a_short_run_leaves_checkpoints_metrics_and_an_evaluation(tmp_path):
    rows = check_short_run("rebrac", tmp_path)
    assert all("train/bc_loss" in row for row in rows)


def test_the_published_networks_are_the_defaults(finished):
    tensors = load_checkpoint(finished("rebrac").checkpoint).tensors
    assert {"critic/0/scale", "critic/1/offset"} <= set(tensors)
    assert "actor/0/scale" not in tensors
    assert tensors["adam/count/actor"].tolist() == [60]  # every second of 120 steps


@pytest.mark.parametrize("weight", [0.0, 1.0])
def test_the_next_actions_of_the_data_reach_the_target(weight, tmp_path):
    """Runs on data that differ in their stored next actions alone differ only where these have a weight."""
    arrays = small_arrays(rows=400, length=100)
    losses = []
    for number, sign in enumerate((1.0, -1.0)):
        stored = {**arrays, "next_actions": sign * np.roll(arrays["actions"], -1, axis=0)}
        data = TransitionDataset.from_dict(stored, action_low=[-1, -1], action_high=[1, 1])
        tiny_run(tmp_path / str(number), "rebrac", env_id=None, dataset=data, algo_kwargs={"critic_bc_coef": weight})
        rows = metric_rows(tmp_path / str(number))
        losses.append([row["train/critic_loss"] for row in rows if "train/critic_loss" in row])
    assert (losses[0] == losses[1]) == (weight == 0.0)


def test_members_may_differ_in_their_weights(tmp_path):
    sweep = {"actor_bc_coef": [0.0, 0.1], "critic_bc_coef": [0.1, 0.0]}
    knobs = tiny_run(tmp_path, "rebrac", sweep=sweep, algo_kwargs={"normalize_q": False}).learner.knobs
    assert knobs.actor_bc_coef.flatten().tolist() == pytest.approx([0.0, 0.0, 0.1, 0.1])
    assert knobs.critic_bc_coef.flatten().tolist() == pytest.approx([0.1, 0.0, 0.1, 0.0])


def test_it_goes_on_in_an_environment(tmp_path):
    result = tiny_run(tmp_path, "rebrac", finetune={"env_steps": 30})
    assert load_checkpoint(result.checkpoint).env_step == 30


@pytest.mark.parametrize(("variance", "weight"), [(1 / 3, 0.4), (2.0, 0.4), (1 / 30, 4.0), (0.0, 4e5)])
def test_narrow_actions_are_cloned_more(variance, weight):
    """TD3+BC's balance of 1 / 2.5 for actions that fill their range, more in proportion where they do not."""
    kwargs = make_config(run_values("rebrac")).algo_kwargs
    assert kwargs.actor_bc_coef == "auto"
    assert kwargs.fitted(lambda: variance).actor_bc_coef == pytest.approx(weight)
    assert kwargs.model_copy(update={"actor_bc_coef": 0.001}).fitted(lambda: variance).actor_bc_coef == 0.001
