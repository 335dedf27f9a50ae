"""The replay buffer: a ring per member, the same batch type, draws that are a function of seed and step."""

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rl_training.data import Batch, ReplayBuffer
from rl_training.errors import ConfigError


def transition(number, members=1, terminal=False, timeout=False):
    """A transition in which every value tells its number and member."""
    value = number + np.arange(members, dtype=np.float32)[:, None] / 10.0
    return {
        "observations": np.repeat(value, 3, axis=1),
        "actions": np.repeat(value / 1000.0, 2, axis=1),
        "rewards": -value[:, 0],
        "next_observations": np.repeat(value + 1.0, 3, axis=1),
        "terminals": np.full(members, terminal),
        "timeouts": np.full(members, timeout),
    }


def filled(capacity, count, members=1):
    buffer = ReplayBuffer(capacity, 3, 2, members=members)
    for number in range(count):
        buffer.add(transition(number, members))
    return buffer


@given(capacity=st.integers(1, 12), count=st.integers(1, 40), members=st.integers(1, 3))
def test_it_holds_the_last_transitions_and_nothing_else(capacity, count, members):
    buffer = filled(capacity, count, members)
    held = range(max(0, count - capacity), count)
    assert len(buffer) == len(held)
    rewards = buffer.layout.columns(torch.from_numpy(buffer.rows(held.start, held.stop)))["rewards"]
    expected = [[-(number + member / 10.0) for number in held] for member in range(members)]
    assert rewards.numpy() == pytest.approx(np.array(expected, dtype=np.float32))
    batch = buffer.sample(64, seed=list(range(members)), step=5)
    for member in range(members):
        assert {round(-float(r) - member / 10.0) for r in batch.rewards[member]} <= set(held)


def test_batches_are_whole_rows_of_the_right_type():
    buffer = filled(10, 7)
    batch = buffer.sample(32, seed=3, step=1)
    assert isinstance(batch, Batch)
    assert batch.observations.shape == (32, 3)
    assert batch.actions.dtype == torch.float32
    assert torch.allclose(batch.next_observations, batch.observations + 1.0)
    assert torch.allclose(batch.rewards, -batch.observations[:, 0])
    assert batch.returns_to_go is None
    assert torch.equal(batch.rewards, buffer.sample(32, seed=3, step=1).rewards)
    assert not torch.equal(batch.rewards, buffer.sample(32, seed=3, step=2).rewards)
    assert set((-buffer.sample(500, seed=1).rewards).tolist()) == set(range(7))


def test_members_draw_what_they_would_draw_alone():
    together = filled(50, 30, members=2)
    alone = filled(50, 30)
    batch = together.sample(16, seed=[4, 9], step=2)
    assert torch.equal(batch.observations[0], alone.sample(16, seed=4, step=2).observations)
    assert torch.allclose(batch.observations[1], alone.sample(16, seed=9, step=2).observations + 0.1)


def test_next_actions_of_new_transitions_are_unknown():
    """They have a place beside those of prior data, and come back from a checkpoint as they were."""
    prior = np.arange(13, dtype=np.float32)[None]
    buffer, other = (ReplayBuffer(4, 3, 2, prior=lambda _: prior, next_actions=True) for _ in range(2))
    for number in range(6):
        buffer.add(transition(number))
    assert torch.isnan(buffer.sample(32, seed=1).next_actions).all()
    assert buffer.gather(torch.tensor([[0]])).next_actions.tolist() == [[[11.0, 12.0]]]
    other.restore(buffer.rows(2, 6), 6)
    assert torch.equal(buffer.storage.nan_to_num(-1.0), other.storage.nan_to_num(-1.0))


def test_true_ends_and_time_limits_stay_apart():
    buffer = ReplayBuffer(4, 3, 2)
    buffer.add(transition(0, terminal=True))
    buffer.add(transition(1, timeout=True))
    buffer.add(transition(2, terminal=True, timeout=True))
    columns = buffer.layout.columns(torch.from_numpy(buffer.rows(0, 3)))
    assert columns["terminals"].tolist() == [[1.0, 0.0, 1.0]]
    assert columns["timeouts"].tolist() == [[0.0, 1.0, 0.0]]


@pytest.mark.parametrize("capacity", [4, 9, 100])
def test_rows_come_back_as_they_were(capacity):
    buffer, other = filled(capacity, 23), ReplayBuffer(capacity, 3, 2)
    other.restore(buffer.rows(23 - len(buffer), 23), 23)
    assert len(other) == len(buffer)
    for both in (buffer, other):
        both.add(transition(23))
    assert torch.equal(buffer.sample(50, seed=1).rewards, other.sample(50, seed=1).rewards)


def test_wrong_use_is_refused():
    with pytest.raises(ConfigError, match="capacity 0"):
        ReplayBuffer(0, 3, 2)
    with pytest.raises(ConfigError, match="nothing to sample yet"):
        ReplayBuffer(5, 3, 2).sample(4)
    with pytest.raises(ConfigError, match="2 seeds were given for a replay buffer of 1 members"):
        filled(5, 3).sample(4, seed=[0, 1])
    with pytest.raises(ConfigError, match=r"\(2, 11\) was added; \(1, 11\) is needed"):
        filled(5, 3).add(transition(3, members=2))
