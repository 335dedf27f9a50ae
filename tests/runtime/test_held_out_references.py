"""Two references of held-out rows: the ends of a range where the log rests, and the command of the row before."""

import numpy as np
import pytest
import torch

from rl_training.config.algorithms.bc import BCKnobs
from rl_training.config.algorithms.iql import IQLKnobs
from rl_training.config.algorithms.td3_bc import TD3BCKnobs
from rl_training.data import TransitionDataset
from rl_training.data.row_view import RowView
from rl_training.runtime.validating.concerns import Concern, concerns, gathered
from rl_training.runtime.validating.held_out import figures_line
from rl_training.runtime.validating.policy_check import _previous
from tests.helpers import generator
from tests.runtime.test_policy_check import ROWS, Stub, check_of


def logged(observations, actions):
    """Twenty episodes of one or two observations and a feed of 0 to 10."""
    ends = np.arange(ROWS) % 100 == 99
    zeros = np.zeros(ROWS)
    arrays = {"observations": observations, "next_observations": observations, "actions": actions, "rewards": zeros}
    arrays |= {"terminals": zeros.astype(bool), "timeouts": ends}
    return TransitionDataset.from_dict(arrays, action_low=[0], action_high=[10], action_names=["feed"])


def codes(figures, knobs=None):
    return [one.code for one in concerns(figures, knobs or TD3BCKnobs())]


def batches(*, habit=0.0, seed=0):
    """A feed that is shut while the first observation is below 0, but by habit, and follows the second one above it."""
    draw = generator(seed)
    seen = draw.uniform(-1.0, 1.0, (ROWS, 2))
    shut = (seen[:, 0] < 0.0) & (draw.uniform(size=ROWS) >= habit)
    return seen, logged(seen, np.where(shut, 0.0, 5.5 + 4.0 * seen[:, 1])[:, None])


def feeding(least):
    """A policy that is right where the feed is open, and commands `least`, of -1 to 1, where it is shut."""

    def act(seen, _member):
        return torch.where(seen[:, :1] < 0.0, torch.full_like(seen[:, :1], least), 0.1 + 0.8 * seen[:, 1:])

    return Stub(act)


@pytest.mark.parametrize(("least", "found"), [(-1.0, []), (-0.985, []), (-0.93, ["missed-bound"]), (0.0, ["missed-bound"])])
def test_a_feed_that_never_shuts_is_named_unless_it_is_that_near(least, found):
    _, data = batches()
    figures = check_of(data).figures(feeding(least))[0]
    assert codes(figures) == found
    assert figures["low_distance/feed"] == pytest.approx((1.0 + least) / 2.0, abs=1e-6)
    assert figures["low_data/feed"] == pytest.approx(0.0, abs=0.02)
    assert figures["low_reached/feed"] == (least <= -0.99)
    assert not any(name.startswith("high_") for name in figures)  # hardly ever full


def test_what_is_never_shut_is_told_with_its_column_and_a_way_out():
    _, data = batches()
    figures = check_of(data).figures(feeding(-0.93))[0]
    (concern,) = concerns(figures, TD3BCKnobs())
    assert "the log has action `feed` at its lowest value" in concern.text
    assert "its own is there in 0% and 3.5% of the range away on average (the logged one 0.0%)" in concern.text
    assert concern.text.endswith("Train longer (total_timesteps); if it stays so: Lower algo_kwargs.alpha")


def test_a_feed_that_is_shut_by_chance_shows_nothing():
    """Of rows alike half are shut: a policy that does the mean of both never is, and need not be."""
    _, data = batches(habit=0.5)
    figures = check_of(data).figures(feeding(-0.45))[0]
    assert figures["at_bound_data"] > 0.2
    assert codes(figures) == []


def test_few_rows_at_an_end_are_not_looked_at():
    seen, data = batches()
    object.__setattr__(data, "actions", np.where(seen[:, :1] < -0.98, 0.0, 5.0 + 4.0 * seen[:, :1]).astype(np.float32))
    assert not any("low_" in name for name in check_of(data).figures(feeding(-0.5))[0])


def walk(*, observed, seed=0):
    """A feed that a controller moves a little in each row, or only every fifth, and what is observed of it."""
    draw = generator(seed)
    feed = np.clip(5.0 + np.cumsum(0.1 * draw.normal(size=ROWS)), 0.0, 10.0)
    feed = feed if observed != "held" else np.repeat(draw.uniform(0.0, 10.0, ROWS // 5), 5)
    noise = draw.normal(size=ROWS)
    seen = noise if observed == "nothing" else feed / 5.0 - 1.0 + (0.5 * noise if observed == "held" else 0.0)
    return logged(seen[:, None], feed[:, None])


def test_the_command_before_is_a_reference_within_episodes():
    data = walk(observed="nothing")
    feed = data.actions[:, 0].astype(np.float64)
    same = ~data.timeouts[:-1]
    wanted = np.abs(np.diff(feed))[same].mean()
    figures = check_of(data).references
    assert figures["persistence_distance/feed"] == pytest.approx(wanted, rel=1e-4)
    assert figures["persistence_distance"] == pytest.approx(wanted / 10.0, rel=1e-4)
    shown = f", the command before {wanted / 10.0:.1%})"
    assert shown in figures_line(check_of(data).figures(Stub(lambda seen, _member: 0.0 * seen)))


def test_the_command_before_is_that_of_the_same_episode_in_any_order_of_episodes():
    data = walk(observed="nothing")
    before = _previous(RowView(data, [3, 1]), np.array([0, 1, 100, 199]), data.spaces)[:, 0]
    assert np.isnan(before).tolist() == [True, False, True, False]
    wanted = data.actions[[300, 198], 0] / 5.0 - 1.0
    assert before[[1, 3]] == pytest.approx(wanted, abs=1e-6)


def test_commands_that_nothing_observed_tells_are_named():
    data = walk(observed="nothing")
    (concern,) = (one for one in concerns(check_of(data).figures(Stub(lambda seen, _m: 0.01 * seen))[0], IQLKnobs()))
    assert concern.code == "hidden-memory"
    assert "depend on something that is not observed" in concern.text


@pytest.mark.parametrize("observed", ["all", "held"])
def test_commands_that_are_observed_or_held_are_no_hidden_memory(observed):
    """A command that is held for some rows is predicted by the one before, but not where it moves."""
    data = walk(observed=observed)
    figures = check_of(data).figures(Stub(lambda seen, _member: seen.clamp(-1, 1)))[0]
    assert "hidden-memory" not in codes(figures, BCKnobs())
    assert observed == "all" or figures["persistence_distance"] < 0.7 * figures["cloning_distance"]


def test_figures_of_an_earlier_version_have_neither():
    known = ("low_", "high_", "moved_", "persistence_")
    figures = check_of(batches()[1]).figures(feeding(-0.5))[0]
    assert codes({name: value for name, value in figures.items() if not name.startswith(known)}) == []


def test_as_far_as_a_constant_is_not_far_where_logged_actions_are_mostly_chance():
    figures = check_of(batches()[1]).figures(feeding(-1.0))[0]
    mostly = {"action_distance": 0.084, "constant_distance": 0.082, "cloning_distance": 0.064}
    assert "far-from-data" not in codes({**figures, **mostly})
    assert "far-from-data" in codes({**figures, **mostly, "cloning_distance": 0.03})
    assert "far-from-data" in codes({**figures, **mostly, "action_distance": 0.2})


def test_more_steps_and_fewer_are_joined_in_one_remedy():
    rising = Concern("rising-losses", "they rise", "Train for fewer steps (total_timesteps)")
    longer = Concern("unsettled-values", "they are low", "Train longer (total_timesteps), or lower algo_kwargs.gamma")
    other = Concern("poor-clone", "it is far", "Check the data")
    alone, shared = (gathered({0: [longer, other]}, {0: "0"}, also) for also in ((), (rising,)))
    assert alone["unsettled-values"][0] == longer
    remedies = {code: one.remedy for code, (one, _) in shared.items()}
    assert remedies["unsettled-values"] == remedies["rising-losses"]
    assert remedies["rising-losses"].startswith("More steps are needed, and with more steps the networks memorise the data")
    assert shared["poor-clone"][0] == other
    assert gathered({0: [other]}, {0: "0"}, (rising,))["rising-losses"][0] == rising
