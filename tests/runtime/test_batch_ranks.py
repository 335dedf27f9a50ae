"""Ranks that share every batch: the steps of one process up to the order of sums, and their own bits again and again."""

import os
from functools import partial

import pytest
import torch

from rl_training.algorithms.learner import Step
from rl_training.errors import ConfigError
from rl_training.registry import REGISTRY
from rl_training.rng import Draws
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.runtime.sharing.ranks import BatchRanks
from tests.contract import make_learner
from tests.helpers import CutAt, assert_same_run, checkpoints, metric_rows, small_batch, tiny_run
from tests.runtime.test_ranks import FREELY, on_ranks

forked = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forks of the test")
ROWS = 8


def gradients(learner, batch, part):
    step = Step(Draws.of_steps(learner.model.seed_tensor, 0, part=part), learner.learned_groups)
    return learner.gradients(learner.training_loss(batch, step)[0], learner.learned_groups)


def part_of(batch, number, parts):
    rows = slice(number * ROWS // parts, (number + 1) * ROWS // parts)
    values = {name: getattr(batch, name) for name in batch.__slots__}
    return type(batch)(**{name: None if value is None else value[:, rows] for name, value in values.items()})


@pytest.mark.parametrize("algo", [algo for algo, spec in REGISTRY.items() if not spec.online])
def test_the_gradient_of_a_batch_is_the_mean_of_those_of_its_parts_or_the_learner_says_that_it_is_not(algo):
    learner, batch = make_learner(algo, seeds=(0, 1)), small_batch(members=2, batch=ROWS)
    whole = gradients(learner, batch, (0, 1))
    halves = [gradients(learner, part_of(batch, number, 2), (number, 2)) for number in range(2)]
    apart = max(
        ((halves[0][name] + halves[1][name]) / 2 - value).abs().max() / value.abs().max() for name, value in whole.items()
    )
    assert (apart > 1e-3) == learner.mixes_rows
    assert apart < 1e-5 or learner.mixes_rows


def test_dropout_and_weights_by_a_mean_over_the_batch_mix_rows():
    assert not make_learner("rebrac", normalize_q=False).mixes_rows
    assert not make_learner("xql", vanilla_value_loss=True).mixes_rows
    assert make_learner("iql", actor_dropout=0.1).mixes_rows


def test_the_numbers_of_parts_are_those_of_the_whole():
    seeds = torch.tensor([3, 4])
    parts = [Draws.of_steps(seeds, 5, part=(number, 4)) for number in range(4)]
    whole = Draws.of_steps(seeds, 5)
    for draw, shape in (("normals", (3, 2, 2)), ("uniforms", (2, 1))):
        drawn = torch.cat([getattr(one, draw)("noise", shape) for one in parts], dim=-2)
        assert torch.equal(drawn, getattr(whole, draw)("noise", (*shape[:-2], 8, shape[-1])))
    assert torch.equal(parts[3].uniforms("for all rows", (10,)), whole.uniforms("for all rows", (10,)))


def train(run_dir, rank=0, **arguments):
    del rank
    return tiny_run(run_dir, **{"algo": "cql", **arguments})


def apart(first, second):
    """How far the parameters of two runs are apart, as a share of the largest of each tensor."""
    one, other = (load_checkpoint(checkpoints(run)[-1]).tensors for run in (first, second))
    names = [
        name for name, value in one.items() if not name.startswith(("adam/", "transforms/")) and value.is_floating_point()
    ]
    shares = [(one[name] - other[name]).abs().max() / one[name].abs().max() for name in names]
    return float(torch.stack(shares).max())  # NaN if any is: Python's own `max` would depend on the order


@forked
def test_two_ranks_take_the_steps_of_one_process_and_resume_with_their_own_bits(tmp_path):
    one, two, cut = tmp_path / "one", tmp_path / "two", tmp_path / "cut"
    train(one)
    assert on_ranks(2, tmp_path, partial(train, two)) == [0, 0]
    assert apart(one, two) < 1e-4
    for mine, theirs in zip(metric_rows(one), metric_rows(two), strict=True):
        assert mine == pytest.approx(theirs, rel=1e-3, abs=1e-4)

    assert on_ranks(2, tmp_path, partial(train, cut, callbacks=[CutAt("checkpoint", 60)])) == [71, 1]
    assert on_ranks(2, tmp_path, partial(train, cut, resume=True)) == [0, 0]
    assert_same_run(two, cut)


@forked
def test_what_two_ranks_saved_goes_on_in_one_process_and_says_that_bits_may_differ(tmp_path, capsys):
    whole, run = tmp_path / "whole", tmp_path / "run"
    train(whole, **FREELY)
    assert on_ranks(2, tmp_path, partial(train, run, total_timesteps=60, **FREELY)) == [0, 0]
    train(run, resume=True, **FREELY)
    assert "not bit-exact: the checkpoint was written with batch_parts 2 (now 1)" in capsys.readouterr().err
    assert apart(whole, run) < 1e-4
    assert on_ranks(2, tmp_path, partial(train, run, resume=True, total_timesteps=140, **FREELY)) == [0, 0]


@forked
def test_two_members_on_four_ranks_share_batches_and_stop_alike(tmp_path):
    changes = {"algo": "iql", "seeds": [0, 1], "early_stopping": {"patience": 1}, "total_timesteps": 80}
    train(tmp_path / "one", **changes)
    assert on_ranks(4, tmp_path, partial(train, tmp_path / "four", **changes)) == [0] * 4
    assert apart(tmp_path / "one", tmp_path / "four") < 1e-4


@forked
def test_a_loss_that_mixes_rows_is_refused_once(tmp_path):
    assert on_ranks(2, tmp_path, partial(train, tmp_path / "run", algo="td3_bc")) == [2, 2]
    assert "TD3BC with these knobs takes more than means" in (tmp_path / "error-0").read_text()
    assert (tmp_path / "error-1").read_text() == ""
    assert not (tmp_path / "run").exists()


def test_ranks_that_came_to_different_parameters_do_not_save(monkeypatch):
    ranks = BatchRanks(1, 0, 2)
    monkeypatch.setattr(ranks, "_exchange", lambda message: [message, {"values": ["another digest"]}])
    with pytest.raises(ConfigError, match="different parameters"):
        ranks.all_rows({"actor/0/weight": torch.ones(1, 2)})
