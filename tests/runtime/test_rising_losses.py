"""Losses on held-out rows that part from those on training rows: by hand, with rare failures, and of a real network."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rl_training.data import TransitionDataset
from rl_training.runtime.validating.concerns import Loss, RisingLosses
from rl_training.runtime.validating.held_out import _means
from rl_training.runtime.validating.validation import Validation
from tests.helpers import Notes, generator, tiny_run


def critic(mean, error=0.0):
    return {"critic_loss": Loss(mean, error)}


def after(*evaluations):
    """Whether each of some evaluations, of losses on held-out and on training rows, is doubtful."""
    rising = RisingLosses()
    return [bool(rising.observe(critic(*held), critic(*trained), 0.1)) for held, trained in evaluations]


def test_a_concern_needs_a_rise_a_gap_and_a_training_loss_that_does_not_follow():
    assert after(((1.0,), (1.0,)), ((0.8,), (0.5,)), ((1.2,), (0.4,))) == [False, False, True]
    assert after(((1.0,), (1.0,)), ((2.0,), (2.0,)), ((4.0,), (4.0,))) == [False, False, False]  # the targets grow
    assert after(((3.0,), (1.0,)), ((4.5,), (1.5,)), ((9.0,), (3.0,))) == [False, False, False]  # each in its proportion
    assert after(((1.0,), (1.0,)), ((1.1,), (1.0,)), ((1.2,), (1.0,))) == [False, False, False]  # a small gap
    assert after(((0.8,), (0.5,)), ((0.83,), (0.45,)), ((0.9,), (0.4,))) == [False, False, True]  # slowly, since the lowest
    assert after(((0.8,), (0.5,)), ((1.2,), (0.4,)), ((1.2,), (0.4,))) == [False, True, True]  # as long as it stays so


def test_a_gap_that_may_be_chance_is_none():
    for error, doubtful in ((0.3, True), (0.35, False)):
        assert after(((0.8,), (0.5,)), ((1.2, error), (0.4,)))[-1] == doubtful
        assert after(((0.8,), (0.5,)), ((1.2,), (0.4, error)))[-1] == doubtful


def test_the_lowest_loss_is_remembered_over_a_checkpoint():
    rising = RisingLosses()
    rising.observe(critic(0.8), critic(0.5), 0.1)
    (concern,) = RisingLosses(**rising.state()).observe(critic(1.2, 0.1), critic(0.4, 0.02), 0.1)
    assert concern.code == "rising-losses"
    assert "`critic_loss` was 0.8 and is 1.2 +- 0.1, 0.4 +- 0.02 on training rows" in concern.text


def test_losses_that_overflow_are_no_losses():
    rising = RisingLosses()
    rising.observe(critic(0.8), critic(0.5), 0.1)
    assert not rising.observe({}, critic(0.4), 0.1)
    assert not rising.observe(critic(9.0), {}, 0.1)
    assert rising.observe(critic(9.0), critic(0.4), 0.1)
    assert _means({"critic_loss": [np.inf, 1.0], "actor_loss": [1.0, 3.0], "q_mean": [1.0, 1.0]}, {0: "a", 1: "b"}) == {
        "actor_loss": 2.0
    }


def test_a_loss_that_doubles_is_told_at_the_last_of_two_evaluations_and_a_smaller_rise_needs_another():
    for last, fleeting in ((1.2, True), (1.7, False)):
        rising = RisingLosses()
        rising.observe(critic(0.8), critic(0.5), 0.1)
        (concern,) = rising.observe(critic(last), critic(0.4), 0.1)
        assert concern.fleeting == fleeting


def test_a_likelihood_that_falls_while_mean_actions_are_as_near_as_ever_is_no_concern():
    """A spread that is too sure makes it fall; where actions are farther from the logged ones too, data was memorised."""
    for distance, doubtful in ((0.105, False), (0.12, True)):
        rising = RisingLosses()
        rising.observe({"actor_loss": Loss(-6.3)}, {"actor_loss": Loss(-6.0)}, 0.1)
        found = rising.observe({"actor_loss": Loss(-3.6)}, {"actor_loss": Loss(-8.0)}, distance)
        assert bool(found) == doubtful


class Rows:
    """Packed rows of one column, the share of the loss that a row has."""

    layout = SimpleNamespace(batch=lambda rows: rows)

    def __init__(self, shares):
        self._shares = np.asarray(shares, np.float32)[:, None]

    def __len__(self):
        return len(self._shares)

    def fetch(self, rows):
        return self._shares[rows]


class Scaled:
    """A learner whose loss is that of the rows, times a number."""

    model = SimpleNamespace(device="cpu", members=1, seed_tensor=torch.zeros(1, dtype=torch.int64))
    model.trained = SimpleNamespace(groups=())

    def __init__(self, times=1.0):
        self._times = times

    def loss(self, batch, _step):
        return None, {"critic_loss": self._times * batch.mean((1, 2))}


def measured(held_out, training, times=(1.0, 1.0)):
    """The losses on rows of both kinds, as the rule is given them."""
    validation = Validation(Rows(held_out), 256, 25_600, Rows(training), policy=None)
    pairs = [validation.compared(Scaled(factor))[kind] for kind, factor in enumerate(times)]
    return [critic(one.means["critic_loss"][0], one.errors["critic_loss"][0]) for one in pairs]


def with_failures(rows, rate, draw):
    """Losses of rows: about 1, and 600 where the rare failure is, such as a web that breaks."""
    return np.where(draw.random(rows) < rate, 600.0, draw.exponential(1.0, rows))


def test_the_error_is_how_far_means_of_other_rows_of_the_kind_differ():
    draw = generator(1)
    found = [measured(draw.exponential(1.0, 900), with_failures(4_000, 0.002, draw)) for _ in range(60)]
    for kind in (0, 1):
        means, errors = zip(*(pair[kind]["critic_loss"] for pair in found), strict=True)
        assert np.std(means) == pytest.approx(np.mean(errors), rel=0.25)


def test_of_a_single_row_nothing_is_sure():
    assert not np.isfinite(measured([1.0], [1.0] * 9)[0]["critic_loss"].error)


@pytest.mark.parametrize("seed", range(20))
def test_rare_failures_are_not_taken_for_memorised_data_while_values_rise(seed):
    """The held-out rows happen to have twice as many as the others, and failures cost more as values grow."""
    draw, rising = generator(seed), RisingLosses()
    held_out, training = with_failures(1_400, 0.004, draw), with_failures(13_000, 0.002, draw)
    for grown in np.linspace(1.0, 2.0, 6):
        losses = [np.where(rows == 600.0, rows * grown, rows) for rows in (held_out, training)]
        assert not rising.observe(*measured(*losses), 0.1)


def test_memorised_data_is_found_among_rare_failures():
    draw, rising = generator(0), RisingLosses()
    held_out, training = with_failures(4_000, 0.005, draw), with_failures(13_000, 0.005, draw)
    assert not rising.observe(*measured(held_out, training), 0.1)
    assert rising.observe(*measured(held_out, training, times=(1.5, 0.3)), 0.1)


def test_a_large_network_on_little_data_is_found_to_memorise_it(tmp_path):
    """Noise of 0.3 in the actions of 300 rows; beside it the same network on more rows, for as long."""
    warned = {}
    for rows in (300, 3_000):
        draw = generator(1)
        seen, ends = draw.normal(size=(rows, 4)), np.arange(rows) % 30 == 29
        arrays = {"observations": seen, "actions": np.clip(0.5 * seen[:, :2] + 0.3 * draw.normal(size=(rows, 2)), -1, 1)}
        arrays |= {"rewards": seen[:, 0], "next_observations": seen, "terminals": ends, "timeouts": np.zeros(rows, bool)}
        data, notes = TransitionDataset.from_dict(arrays, action_low=[-1, -1], action_high=[1, 1]), Notes()
        kwargs = {"hidden_sizes": [256, 256], "batch_size": 64, "actor_learning_rate": 1e-3}
        kwargs["validation"] = {"fraction": 0.2}
        every = {"total_timesteps": 600, "eval_interval": 100, "log_interval": 1_000, "checkpoint_interval": 1_000}
        tiny_run(tmp_path / str(rows), "bc", env_id=None, dataset=data, reporter=notes, algo_kwargs=kwargs, **every)
        warned[rows] = any("`bc_loss` was" in text and "memorise the data" in text for text in notes.warnings)
    assert warned == {300: True, 3_000: False}
