"""Runs over several steps: offline, online and from one to the other, cut and resumed, alone and as a population."""

from functools import partial

import pytest
import torch

import rl_training
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from tests.helpers import assert_same_run, die_at_each, fingerprint, is_online, run_values, tiny_run

FINETUNE = {"env_steps": 250, "buffer_capacity": 230}
RUNS = [  # episodes of Pendulum end at 200 steps: the ring has been overwritten by then, or not yet
    ("td3_bc", None, [("checkpoint", 30), ("log", 75)]),
    ("iql", FINETUNE, [("checkpoint", 50), ("log", 125), ("checkpoint", 200), ("log", 225)]),
    ("cal_ql", FINETUNE, [("log", 125), ("checkpoint", 200), ("log", 225)]),
    ("sac", None, [("checkpoint", 50), ("log", 125), ("checkpoint", 200), ("log", 225)]),
    ("rlpd", None, [("checkpoint", 50), ("log", 125), ("log", 225)]),
]


def run(path, algo, finetune=None, n_step=3, seeds=(0, 7), **options):
    kwargs = {"learning_starts": 30, "buffer_capacity": 90} if is_online(algo) else {}
    changes = {"log_interval": 25, "eval_interval": 100, "checkpoint_interval": 50 if finetune or is_online(algo) else 30}
    changes |= {"total_timesteps": 250 if is_online(algo) else 100, "algo_kwargs": {**kwargs, "n_step": n_step}}
    return tiny_run(path, algo, finetune=finetune, seeds=list(seeds), **changes, **options)


@pytest.mark.parametrize(("algo", "finetune", "cuts"), RUNS)
def test_cut_and_resumed_equals_uninterrupted(algo, finetune, cuts, tmp_path):
    run(tmp_path / "whole", algo, finetune)
    die_at_each(partial(run, tmp_path / "cut", algo, finetune), cuts)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    run(tmp_path / "single", algo, finetune, n_step=1)
    several, single = (fingerprint(tmp_path / name)[0] for name in ("whole", "single"))
    assert any(several[name].shape == single[name].shape and not several[name].equal(single[name]) for name in single)


def test_every_batch_has_the_discount_of_its_steps(tmp_path, monkeypatch):
    """Three steps and fewer at an end: gamma cubed, squared, and itself; a learner is never shown a row in the making."""
    original, seen = rl_training.SACAlgorithm.loss, set()

    def spy(learner, batch, step):
        seen.update(batch.discounts.unique().tolist())
        return original(learner, batch, step)

    monkeypatch.setattr(rl_training.SACAlgorithm, "loss", spy)
    run(tmp_path, "sac", seeds=[0])
    assert seen == {float(torch.tensor(0.99**steps)) for steps in (1, 2, 3)}


@pytest.mark.parametrize(
    ("algo", "kwargs", "words"),
    [
        ("iql", {"n_step": 0}, "`algo_kwargs.n_step` = 0 is not legal: must be an integer >= 1"),
        ("sac", {"n_step": 10, "learning_starts": 9}, "`n_step` = 10 leaves nothing to learn from at the first update"),
        ("sac", {"n_step": 10, "buffer_capacity": 9, "learning_starts": 20}, "`buffer_capacity` = 9"),
        ("bc", {"n_step": 3}, "unknown key `algo_kwargs.n_step`"),
    ],
)
def test_refusals(algo, kwargs, words):
    with pytest.raises(ConfigError) as caught:
        make_config(run_values(algo, algo_kwargs=kwargs))
    assert words in str(caught.value)


def test_a_finetune_on_fresh_data_alone_needs_a_head_start(tmp_path):
    """And keeps its steps: rows of the data have them already."""
    fresh = {"env_steps": 60, "replay": "fresh"}
    with pytest.raises(ConfigError, match="`n_step` = 5 leaves nothing to learn from at the first update"):
        make_config(run_values("iql", algo_kwargs={"n_step": 5}, finetune={**fresh, "learning_starts": 4}))
    with pytest.raises(ConfigError, match="`algo_kwargs.n_step` cannot change online: the data is processed with it"):
        make_config(run_values("iql", finetune={**fresh, "algo_kwargs": {"n_step": 5}}))
    with pytest.raises(ConfigError, match="`algo_kwargs.gamma` cannot change online: the data is processed with it"):
        make_config(
            run_values(
                "iql", algo_kwargs={"n_step": 5}, finetune={**fresh, "learning_starts": 5, "algo_kwargs": {"gamma": 0.9}}
            )
        )
    assert tiny_run(tmp_path, "iql", algo_kwargs={"n_step": 5}, finetune={**fresh, "learning_starts": 5}).env_step == 60


def test_prior_data_needs_no_head_start():
    """Until enough steps are taken, batches are prior data alone."""
    config = make_config(run_values("rlpd", algo_kwargs={"n_step": 10, "learning_starts": 0}))
    assert config.algo_kwargs.n_step > config.algo_kwargs.learning_starts
