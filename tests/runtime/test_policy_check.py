"""What a policy does on logged rows, by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_training.config.algorithms.bc import BCKnobs
from rl_training.config.algorithms.cql import CQLKnobs
from rl_training.config.algorithms.iql import IQLKnobs
from rl_training.config.algorithms.td3_bc import TD3BCKnobs
from rl_training.data import TransitionDataset
from rl_training.data.returns import RewardRange
from rl_training.data.row_view import RowView
from rl_training.data.transforms import Transforms
from rl_training.runtime.validating.concerns import concerns, predictable
from rl_training.runtime.validating.held_out import figures_line
from rl_training.runtime.validating.policy_check import (
    LoggedRows,
    LoggedStarts,
    PolicyCheck,
    ReturnLimits,
    settled,
)
from tests.helpers import generator

ROWS = 2000


def log(*, noise=0.0, seed=0):
    """A heater of 0 to 100 % and a valve of -2 to 2 that follow one of two observations."""
    draw = generator(seed)
    observations = draw.uniform(-1.0, 1.0, (ROWS, 2))
    actions = np.stack((50.0 + 50.0 * observations[:, 0], 2.0 * observations[:, 1]), axis=1)
    actions += noise * draw.normal(size=actions.shape) * [50.0, 2.0]
    ends = np.arange(ROWS) % 100 == 99
    arrays = {
        "observations": observations,
        "actions": np.clip(actions, [0.0, -2.0], [100.0, 2.0]),
        "rewards": np.where(np.arange(ROWS) % 2 == 0, -3.0, -1.0),
        "next_observations": observations,
        "terminals": np.zeros(ROWS, dtype=bool),
        "timeouts": ends,
    }
    names = {"observation_names": ["a", "b"], "action_names": ["heat", "valve"]}
    return TransitionDataset.from_dict(arrays, action_low=[0, -2], action_high=[100, 2], **names)


class Stub:
    """A learner whose actions and values are functions of the observation."""

    class model:  # noqa: N801
        members = 2
        device = torch.device("cpu")

    knobs = TD3BCKnobs()
    step = 100_000

    def __init__(self, action, value=None):
        self._action, self._value = action, value

    def act(self, observations, *, deterministic):
        assert deterministic
        return torch.stack([self._action(one, member) for member, one in enumerate(observations)])

    def q_values(self, observations, actions):
        return None if self._value is None else self._value(observations, actions)


def check_of(data, transforms=None):
    transforms = transforms or Transforms.identity(2)
    view = RowView(data)
    rows = LoggedRows.raw(data, ROWS, data.spaces, transforms)
    return PolicyCheck(rows, ReturnLimits.of(view), LoggedStarts.of(view, transforms))


def test_distances_are_in_real_units_and_as_a_share_of_the_range():
    data = log()
    offset = torch.tensor([0.1, 0.0])  # 5 % of heat, 0.0 of the valve
    figures = check_of(data).figures(Stub(lambda seen, member: (seen + offset * member).clamp(-1, 1)))
    assert figures[0]["action_distance"] == pytest.approx(0.0, abs=1e-6)
    assert figures[1]["action_distance/heat"] == pytest.approx(5.0, abs=0.2)  # less where it is clamped
    assert figures[1]["action_distance/valve"] == pytest.approx(0.0, abs=1e-6)
    assert figures[1]["action_distance"] == pytest.approx(figures[1]["action_distance/heat"] / 100 / 2, rel=1e-6)
    heat = data.actions[:, 0]
    assert figures[0]["constant_distance/heat"] == pytest.approx(np.abs(heat - np.median(heat)).mean(), rel=1e-5)
    assert figures[0]["cloning_distance"] < 0.1 * figures[0]["constant_distance"]
    assert predictable(figures[0])
    assert not concerns(figures[0], IQLKnobs())


def test_random_actions_are_called_unpredictable():
    data, draw = log(), generator(3)
    scrambled = data.actions[draw.permutation(ROWS)]
    object.__setattr__(data, "actions", scrambled)
    assert not predictable(check_of(data).references)


def test_the_spread_of_cloning_is_that_of_actions_without_their_chance():
    figures = [check_of(log(noise=noise)).references for noise in (0.0, 0.8)]
    assert figures[0]["spread_cloning"] == pytest.approx(figures[0]["spread_data"], rel=0.02)
    assert figures[1]["spread_cloning"] < 0.9 * figures[1]["spread_data"]


def test_saturation_and_a_constant_policy_are_named():
    figures = check_of(log()).figures(Stub(lambda seen, _member: torch.ones_like(seen)))[0]
    assert (figures["at_bound"], figures["spread"]) == (1.0, 0.0)
    assert figures["at_bound_data"] == pytest.approx((np.abs(log().observations) >= 0.99).mean(), abs=1e-6)
    found = {one.code: one.text for one in concerns(figures, TD3BCKnobs())}
    assert set(found) == {"saturated-policy", "constant-policy", "far-from-data"}
    assert all("Lower algo_kwargs.alpha" in text for text in found.values())
    raised = [one.text for one in concerns(figures, CQLKnobs())]
    assert all("Raise algo_kwargs.cql_alpha" in text for text in raised)


def test_a_clone_that_is_farther_from_unseen_actions_than_a_plain_regression_is_named():
    figures = {**check_of(log()).figures(Stub(lambda seen, _member: seen))[0], "cloning_distance": 0.02}
    for distance, codes in ((0.023, []), (0.025, ["poor-clone"]), (0.9, ["far-from-data"])):
        found = concerns({**figures, "action_distance": distance}, BCKnobs())
        assert [one.code for one in found] == codes
        assert all("What it learned does not hold for rows it has not seen" in one.text for one in found)
    assert not concerns({**figures, "action_distance": 0.025}, IQLKnobs())  # it leaves the data on purpose


def test_values_are_in_real_units_beside_the_returns_that_are_possible():
    transforms = Transforms(np.zeros(2, np.float32), np.ones(2, np.float32), reward_scale=0.5)
    learner = Stub(lambda seen, _member: seen, lambda seen, _actions: torch.full(seen.shape[:2], -60.0))
    figures = check_of(log(), transforms).figures(learner)[0]
    assert figures["q_policy"] == pytest.approx(-120.0)
    assert (figures["possible_lowest"], figures["possible_highest"]) == pytest.approx((-300.0, -100.0))
    pairs = (1 - 0.99**100) / (1 - 0.99**2)  # of a reward of -3 and one of -1, in each of the episodes
    assert figures["reached_lowest"] == pytest.approx((-3.0 - 0.99) * pairs)
    assert figures["reached_highest"] == pytest.approx((-3.0 - 0.99) * pairs)
    assert not concerns(figures, IQLKnobs())
    for value, text in ((10.0, "overestimate"), (-300.0, "diverge, or a penalty")):
        wrong = Stub(lambda seen, _member: seen, lambda seen, _actions, value=value: torch.full(seen.shape[:2], value))
        (concern,) = concerns(check_of(log(), transforms).figures(wrong)[0], IQLKnobs())
        assert concern.code == "impossible-values"
        assert text in concern.text


def test_true_ends_allow_returns_of_a_single_reward():
    data = log()
    data.terminals[99] = True
    limits = ReturnLimits.of(RowView(data))
    assert limits.possible(0.99) == pytest.approx((-300.0, -1.0))


def test_a_goal_that_ends_an_episode_is_reached_once():
    """One of twenty episodes reaches it after a hundred steps; the others, which were cut, might have right after."""
    rewards, ends = np.zeros(ROWS), np.zeros(ROWS, dtype=bool)
    rewards[99], ends[99] = 1.0, True
    data = replace(log(), rewards=rewards, terminals=ends, timeouts=log().timeouts & ~ends)
    learner = Stub(lambda seen, _member: seen, lambda seen, _actions: torch.full(seen.shape[:2], 2.0))
    figures = check_of(data).figures(learner)[0]
    assert (figures["possible_lowest"], figures["possible_highest"]) == (0.0, 1.0)
    assert figures["start_possible"] == pytest.approx(0.99**99)  # beside 0.99**100 for a cut one
    assert [one.code for one in concerns(figures, IQLKnobs())] == ["impossible-values"]


@pytest.mark.parametrize(("value", "text"), [(-5.0, "not there yet"), (40.0, "overestimate")])
def test_values_that_are_still_on_their_way_are_told_from_values_that_overshoot(value, text):
    learner = Stub(lambda seen, _member: seen, lambda seen, _actions: torch.full(seen.shape[:2], value))
    (concern,) = concerns(check_of(log()).figures(learner)[0], IQLKnobs())
    assert text in concern.text


def test_a_policy_that_predicts_the_actions_refutes_that_they_are_random():
    figures = {"cloning_distance": 0.2, "constant_distance": 0.2, "action_distance": 0.1}
    assert predictable(figures)
    assert not predictable({**figures, "action_distance": 0.25})


def test_rewards_that_were_scaled_to_nothing_have_no_values():
    transforms = Transforms(np.zeros(2, np.float32), np.ones(2, np.float32), reward_scale=0.0)
    learner = Stub(lambda seen, _member: seen, lambda seen, _actions: torch.zeros(seen.shape[:2]))
    assert "q_policy" not in check_of(log(), transforms).figures(learner)[0]


def claim(value, *, steps=100_000, gamma=0.99, rewards=None):
    """The concerns about a policy whose critics say the same everywhere."""
    data = log() if rewards is None else replace(log(), rewards=rewards)
    learner = Stub(lambda seen, _member: seen, lambda seen, _actions: torch.full(seen.shape[:2], value))
    learner.step, learner.knobs = steps, TD3BCKnobs(gamma=gamma)  # targets move every other step
    figures = check_of(data).figures(learner)[0]
    return figures, [one.code for one in concerns(figures, learner.knobs)]


def varied():
    """Episodes that return from -500 to -50 without a discount."""
    return np.repeat(-np.linspace(5.0, 0.5, ROWS // 100), 100)


def test_values_are_compared_with_what_episodes_returned():
    figures, _ = claim(-100.0, rewards=varied())
    per_reward = (1 - 0.99**100) / (1 - 0.99)
    rest = -0.5 / 0.01 * 0.99**100  # at most, of every episode, since all were cut
    assert figures["start_value"] == pytest.approx(-100.0)
    assert figures["start_lowest"] == pytest.approx(-5.0 * per_reward)
    assert figures["start_return"] == pytest.approx(-2.75 * per_reward)
    assert figures["start_highest"] == pytest.approx(-0.5 * per_reward)
    assert figures["start_possible"] == pytest.approx(-0.5 * per_reward + rest)
    truly = replace(log(), rewards=varied(), terminals=log().timeouts, timeouts=np.zeros(ROWS, dtype=bool))
    starts = LoggedStarts.of(RowView(truly), Transforms.identity(2))
    assert starts.returned(0.99)["start_possible"] == pytest.approx(-0.5 * per_reward)


def test_goals_that_only_training_rows_reached_are_possible():
    nowhere = replace(log(), rewards=np.zeros(ROWS, dtype=np.float32))
    goals = RewardRange(going=(0.0, 0.0), ending=(1.0, 1.0))
    for known, possible in ((None, 0.0), (goals, 0.99**100)):  # of the cut episodes of 100 rows
        starts = LoggedStarts.of(RowView(nowhere), Transforms.identity(2), known)
        assert starts.returned(0.99)["start_possible"] == pytest.approx(possible)


def test_what_cut_episodes_could_have_returned_is_not_called_returned():
    """A goal of 1 is reached in one of twenty episodes; the others are cut, and might have earned 1 for ever."""
    rewards = np.zeros(ROWS)
    rewards[99] = 1.0
    figures, codes = claim(99.5, rewards=rewards, steps=5_000)
    assert figures["start_highest"] == pytest.approx(0.99**99)
    assert codes == ["unsettled-values"]
    text = concerns(figures, IQLKnobs())[0].text
    assert "returned 0.01849 on average and 0.3697 at most, discounted alike, up to where they were cut; gone on" in text
    assert "gone on from there with the best reward in the data, at most 36.97." in text


def test_values_are_told_from_what_they_are_compared_with():
    """Costs of -0.5 to -5 in each step: after a cut, too, so no episode returns more than -0.5 / 0.01 for ever."""
    figures, codes = claim(-40.0, rewards=varied(), steps=5_000)
    assert codes == ["unsettled-values"]
    assert figures["start_value"] < figures["start_highest"]  # which is no reason to doubt it
    text = concerns(figures, IQLKnobs())[0].text
    assert "where logged episodes begin its values are -40 on average. These episodes returned -174.3 on average" in text
    assert "in the data, at most -50. Values begin at 0 and by now have gone about 12% of the way" in text
    assert "held-out" not in text


def test_the_return_of_a_single_episode_is_said_once():
    """One episode of 2000 steps, every other one -1: -1 / (1 - 0.99^2), and what follows counts for 2e-9."""
    alone = replace(log(), rewards=np.arange(ROWS) % 2 - 1.0, timeouts=np.arange(ROWS) == ROWS - 1)
    learner = Stub(lambda seen, _member: seen, lambda seen, _actions: torch.full(seen.shape[:2], -10.0))
    learner.step, learner.knobs = 5_000, TD3BCKnobs()
    (concern,) = concerns(check_of(alone).figures(learner)[0], learner.knobs)
    assert concern.code == "unsettled-values"
    assert "its values are -10 on average. These episodes returned -50.25, discounted alike. Values begin" in concern.text


@pytest.mark.parametrize("value", [20.0, -5.0])  # 68 and -90 were returned, in truth: one looks worse, the other better
def test_values_on_their_way_are_not_shown_beside_returns(value):
    figures, _ = claim(value, steps=5_000)
    assert figures["values_settled"] == pytest.approx(0.118, abs=0.001)
    line = figures_line([figures])
    assert line.endswith(", values about 12% settled, no measure of returns yet")
    assert f"{value:g} " not in line


def test_values_that_are_nearly_there_say_how_far_they_came():
    for steps, text in ((80_000, "value -100, about 86% settled, where episodes begin (they"), (300_000, "value -100 where")):
        figures, _ = claim(-100.0, steps=steps)
        assert text in figures_line([figures])


def test_how_far_values_have_come():
    learner = Stub(lambda seen, _member: seen)
    learner.step = 10_000
    assert settled(learner, 0) == pytest.approx(1 - np.exp(-5_000 * 0.005 * 0.01), rel=1e-3)  # targets move every other step
    learner.knobs = BCKnobs()
    assert settled(learner, 0) == 1.0


@pytest.mark.parametrize(
    ("value", "steps", "code"),
    [
        (-20.0, 5_000, ["unsettled-values"]),  # above the best episode, and hardly trained
        (-60.0, 5_000, []),
        (-20.0, 200_000, []),  # a policy may well be better than all episodes
        (-200.0, 5_000, []),
    ],
)
def test_values_above_everything_that_was_logged(value, steps, code):
    assert claim(value, steps=steps, rewards=np.append(varied()[:-1], 0.0))[1] == code


@pytest.mark.parametrize(
    ("value", "lowest", "codes"),
    [(60.0, 5.0, ["unseen-values"]), (60.0, -100.0, []), (11.0, 9.9, []), (16.0, 9.9, ["unseen-values"])],
)
def test_values_far_above_everything_that_was_logged(value, lowest, codes):
    """Above the best episode by more than episodes differ, and by more than half of what they return."""
    figures, _ = claim(-100.0)
    returned = {"start_value": value, "start_lowest": lowest}
    returned |= dict.fromkeys(("start_return", "start_highest", "start_possible"), 10.0)
    assert [one.code for one in concerns({**figures, **returned}, IQLKnobs())] == codes
