"""Transitions over several steps: by hand, against a naive sum, and the same offline, streamed and collected."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.config.loading import make_config
from rl_training.data import ReplayBuffer, TransitionDataset, compute_returns_to_go
from rl_training.data.n_step import NStep
from rl_training.data.processing import process_dataset
from rl_training.data.row_blocks import BLOCK
from rl_training.data.row_view import RowView
from tests.helpers import generator, run_values

FIELDS = ("rewards", "next_observations", "terminals", "discounts")
flags = st.lists(st.sampled_from(["", "", "", "terminal", "timeout"]), min_size=1, max_size=25)


def log(ends, dim=2, seed=0):
    """Rows with the given ends, one of '', 'terminal' and 'timeout' each; every value is another number."""
    draw, rows = generator(seed), len(ends)
    arrays = {
        "observations": draw.normal(size=(rows, dim)).astype(np.float32),
        "actions": draw.uniform(-1, 1, (rows, 1)).astype(np.float32),
        "rewards": draw.normal(size=rows).astype(np.float32),
        "next_observations": draw.normal(size=(rows, dim)).astype(np.float32),
        "terminals": np.array([end == "terminal" for end in ends]),
        "timeouts": np.array([end == "timeout" for end in ends]),
    }
    arrays["timeouts"][-1] = not arrays["terminals"][-1]
    bounds = {"action_low": [-1.0], "action_high": [1.0]}
    return TransitionDataset(**arrays, **{name: np.array(value, dtype=np.float32) for name, value in bounds.items()})


def packed(data, needs=(), **kwargs):
    values = {"dataset": {"path": "x"}, "normalize_observations": False, "reward": {"normalize": False}, **kwargs}
    config = make_config(run_values("cal_ql", env_id=None, algo_kwargs=values))
    processed = process_dataset(RowView(data), config.algo_kwargs, data.spaces, needs=needs)
    return {name: value.numpy() for name, value in processed.layout.columns(torch.from_numpy(processed.rows)).items()}


def naive(data, n_step, gamma):
    """Every row's steps, one after another."""
    found = {name: [] for name in FIELDS}
    ends = data.terminals | data.timeouts
    for row in range(len(data)):
        total, taken = 0.0, 0
        while taken < n_step:
            at = row + taken
            total += gamma**taken * float(data.rewards[at])
            taken += 1
            if ends[at]:
                break
        values = (total, data.next_observations[at], float(data.terminals[at]), gamma**taken)
        for name, value in zip(FIELDS, values, strict=True):
            found[name].append(value)
    return {name: np.array(values, dtype=np.float32) for name, values in found.items()}


def test_three_steps_by_hand():
    """Rows 0 to 3 end truly, 4 and 5 by a time limit: fewer steps there, and a bootstrap from what was seen last."""
    rows = np.arange(6)
    data = TransitionDataset.from_dict(
        {
            "observations": rows[:, None] + 0.0,
            "actions": rows[:, None] / 5.0,
            "rewards": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
            "next_observations": rows[:, None] + 1.0,
            "terminals": rows == 3,
            "timeouts": rows == 5,
        },
        action_low=[0.0],
        action_high=[1.0],
    )
    found = packed(data, ("next_actions", "returns_to_go"), n_step=3, gamma=0.5, tail="zero")
    assert found["rewards"].tolist() == [3.0, 6.0, 8.0, 8.0, 32.0, 32.0]
    assert found["next_observations"][:, 0].tolist() == [3.0, 4.0, 4.0, 4.0, 6.0, 6.0]
    assert found["terminals"].tolist() == [0.0, 1.0, 1.0, 1.0, 0.0, 0.0]
    assert found["discounts"].tolist() == [0.125, 0.125, 0.25, 0.5, 0.25, 0.5]
    known = found["next_actions"][:, 0] * 0.5 + 0.5  # after three steps the action of row 3; after a cut there is none
    assert known == pytest.approx(np.array([0.6, 0.6, 0.6, 0.6, np.nan, np.nan]), nan_ok=True)
    assert found["returns_to_go"].tolist() == [4.0, 6.0, 8.0, 8.0, 32.0, 32.0]  # those of the row itself
    assert found["observations"][:, 0].tolist() == rows.tolist()


@settings(max_examples=60, deadline=None)
@given(ends=flags, n_step=st.integers(2, 7), gamma=st.just(0.0) | st.floats(1e-30, 0.99))
def test_rows_are_those_of_a_naive_sum(ends, n_step, gamma):
    data = log(ends)
    found, expected = packed(data, n_step=n_step, gamma=gamma), naive(data, n_step, gamma)
    for name in FIELDS:
        assert found[name] == pytest.approx(expected[name], rel=1e-6, abs=1e-6), name


def test_one_step_is_what_the_data_says():
    """Bit for bit, with no place for discounts."""
    data = log(["", "", "terminal", "", "timeout", ""])
    found = packed(data, n_step=1)
    assert set(found) == {"observations", "actions", "rewards", "next_observations", "terminals"}
    for name, value in found.items():
        assert np.array_equal(value, getattr(data, name)), name


def test_steps_go_on_from_block_to_block():
    """The blocks in which long data is passed are no boundaries."""
    data = log([""] * (BLOCK + 5), dim=1)
    found = packed(data, n_step=4, gamma=0.9)["rewards"][BLOCK - 6 : BLOCK + 3]
    rewards = data.rewards.astype(np.float64)
    expected = sum(0.9**k * rewards[BLOCK - 6 + k : BLOCK + 3 + k] for k in range(3))
    expected[:-1] += 0.9**3 * rewards[BLOCK - 3 : BLOCK + 5]
    assert found == pytest.approx(expected, abs=1e-5)


def transitions(logs, row):
    """One transition of each member."""
    names = ("observations", "actions", "rewards", "next_observations", "terminals", "timeouts")
    return {name: np.stack([getattr(data, name)[row] for data in logs]) for name in names}


def collected(logs, capacity, n_step, gamma, returns=None):
    """A buffer per number of transitions added; every one but the first two was restored from what the last one held."""
    buffer = ReplayBuffer(capacity, 2, 1, members=len(logs), n_step=NStep(n_step, gamma), returns=returns)
    for row in range(len(logs[0])):
        buffer.add(transitions(logs, row))
        yield buffer
        if row:
            held, state = buffer.rows(buffer.oldest, buffer.added), (buffer.added, buffer.ready.tolist())
            buffer = ReplayBuffer(capacity, 2, 1, members=len(logs), n_step=NStep(n_step, gamma), returns=returns)
            buffer.restore(held, *state)


@settings(max_examples=60, deadline=None)
@given(
    ends=st.lists(flags, min_size=1, max_size=3), n_step=st.integers(2, 5), capacity=st.integers(1, 30), whole=st.booleans()
)
def test_collected_transitions_are_those_of_the_data(ends, n_step, capacity, whole):
    """A transition may be sampled once its steps are taken or its episode has ended, and is then the row of that log.

    With returns it waits for the end of its episode, and its return is that of the log, too.
    """
    rows = min(map(len, ends))
    logs = [log(own[:rows], seed=seed) for seed, own in enumerate(ends)]
    returns = (lambda *episode: compute_returns_to_go(*episode, 0.9)) if whole and capacity >= rows else None
    needs = ("returns_to_go",) if returns else ()
    expected = [packed(data, needs, n_step=n_step, gamma=0.9) for data in logs]
    for buffer in collected(logs, capacity, n_step, 0.9, returns):
        for member, data in enumerate(logs):
            done = data.terminals | data.timeouts
            last = np.flatnonzero(done[: buffer.added]).max(initial=-1) + 1
            ready = last if returns else max(last, buffer.added - n_step + 1, 0)
            assert buffer.ready[member] == ready
            held = buffer.layout.columns(torch.from_numpy(buffer.rows(buffer.oldest, max(buffer.oldest, ready))[member]))
            for name in (*FIELDS, *needs):
                assert np.array_equal(held[name].numpy(), expected[member][name][buffer.oldest : ready]), name


def test_idle_members_wait_for_nothing_and_a_cut_ends_an_episode():
    logs = [log([""] * 6, seed=seed) for seed in range(2)]
    buffer = ReplayBuffer(10, 2, 1, members=2, n_step=NStep(3, 0.5))
    for row in range(4):
        buffer.add(transitions(logs, row), idle={1})
    assert buffer.ready.tolist() == [2, 4]
    buffer.cut(0)
    assert buffer.ready.tolist() == [4, 4]
    last = buffer.layout.columns(torch.from_numpy(buffer.rows(3, 4)))
    assert last["discounts"][0].tolist() == [0.5]
    assert last["timeouts"][0].tolist() == [1.0]
    buffer.add(transitions(logs, 4), idle={1})
    assert buffer.ready.tolist() == [4, 5]
    assert buffer.layout.columns(torch.from_numpy(buffer.rows(3, 4)))["rewards"][0] == logs[0].rewards[3]


def test_single_steps_are_restored_from_sums_by_hand():
    """Rewards 1, 2, 4 and an end, then 8 and 16; two steps at gamma 0.5."""
    n_step, ends = NStep(2, 0.5), np.array([False, False, True, False, True])
    sums, taken = n_step.sums(np.array([1.0, 2.0, 4.0, 8.0, 16.0]), ends)
    assert sums.tolist() == [2.0, 4.0, 4.0, 16.0, 16.0]
    assert n_step.steps_taken(n_step.discounts(taken)).tolist() == [2, 2, 1, 2, 1]
    assert n_step.single_rewards(sums, taken).tolist() == [1.0, 2.0, 4.0, 8.0, 16.0]
