"""Packed rows: the optional fields that a learner needs, each with the numbers of the row it belongs to."""

from dataclasses import replace

import numpy as np
import torch

from rl_training.config.loading import make_config
from rl_training.data import TransitionDataset
from rl_training.data.processing import process_dataset
from rl_training.data.row_view import RowView
from rl_training.data.subsets import split_views
from tests.helpers import run_values, small_arrays

ACTIONS = [0.0, 1.0, 2.0, 3.0, 4.0, 5.0, 6.0]


def episodes(**optional):
    """Three episodes: rows 0 to 2 end truly, 3 and 4 by a time limit, 5 and 6 with the data; the actions are 0 to 6."""
    rows = np.arange(7)
    arrays = {
        "observations": rows[:, None].astype(np.float32),
        "actions": np.array(ACTIONS)[:, None],
        "rewards": np.ones(7),
        "next_observations": rows[:, None] + 1.0,
        "terminals": rows == 2,
        "timeouts": rows == 4,
    }
    return TransitionDataset.from_dict({**arrays, **optional}, action_low=[0.0], action_high=[6.0])


def columns(data, view=None, needs=("next_actions",)):
    kwargs = make_config(run_values("cal_ql", env_id=None, algo_kwargs={"dataset": {"path": "x"}})).algo_kwargs
    processed = process_dataset(view or RowView(data), kwargs, data.spaces, needs=needs)
    return {name: value.numpy() for name, value in processed.layout.columns(torch.from_numpy(processed.rows)).items()}


def test_next_actions_are_those_of_the_following_row_of_the_episode():
    """Mapped like the actions; at a true end the row's own, which no target uses; after a cut they are unknown."""
    found = columns(episodes())
    real = found["next_actions"][:, 0] * 3.0 + 3.0
    assert np.array_equal(real, np.array([1, 2, 2, 4, np.nan, 6, np.nan]), equal_nan=True)
    assert (found["actions"][:, 0] * 3.0 + 3.0).tolist() == ACTIONS


def test_stored_next_actions_are_taken_as_they_are():
    stored = np.array([6.0, 5.0, 4.0, 3.0, 2.0, 1.0, 0.0])[:, None]
    found = columns(episodes(next_actions=stored))
    assert (found["next_actions"] * 3.0 + 3.0).tolist() == stored.tolist()


def test_next_actions_take_no_room_unless_they_are_needed():
    assert "next_actions" not in columns(episodes(next_actions=np.ones((7, 1))), needs=())


def test_a_view_of_some_episodes_sees_no_action_of_another():
    """The held-out part of a dataset: what follows a row in the data may be another episode in the view, or none."""
    data = TransitionDataset.from_dict(small_arrays(rows=200, length=7))
    whole = columns(replace(data, next_actions=None))
    train, held = split_views(data, 0.3)
    for view in (train, held):
        rows = view.absolute(np.arange(len(view)))
        assert np.array_equal(columns(data, view)["next_actions"], whole["next_actions"][rows], equal_nan=True)
