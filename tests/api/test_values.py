"""Values in the units of the logged rewards, and actions by name."""

import numpy as np
import pytest

from rl_training import BC, CQL, IQL, TD3BC, Policy, TransitionDataset
from rl_training.errors import ConfigError
from tests.helpers import generator, small_arrays

SMALL = {"hidden_sizes": [16, 16], "batch_size": 64, "log_interval": 1000}
NAMED = {"T1": 0.5, "TSP1": 0.1, "T2": -0.5}
POSITIONS = [0.5, -0.5, 0.1]


def heater_data(rows=300):
    """Commands from 0 to 100 % with names; the last one never changes."""
    arrays = small_arrays(rows=rows)
    held = np.full((rows, 1), 30.0)
    arrays["actions"] = np.concatenate((arrays["actions"] * 50.0 + 50.0, held), axis=1)
    arrays["actions"][:2, :2] = [[0.0, 0.0], [100.0, 100.0]]
    return TransitionDataset.from_dict(arrays, observation_names=["T1", "T2", "TSP1"], action_names=["Q1", "Q2", "fan"])


@pytest.fixture(scope="module")
def model():
    return IQL(dataset=heater_data(), seeds=[0, 1], **SMALL).learn(20)


def constant_rewards(reward):
    """Rows that all have one reward and never end, so that every value is reward / (1 - gamma)."""
    draw = generator(1)
    observations = draw.normal(size=(200, 3)).astype(np.float32)
    return TransitionDataset.from_dict(
        {
            "observations": observations,
            "actions": draw.uniform(-5.0, 5.0, (200, 1)),
            "rewards": np.full(200, reward),
            "next_observations": np.roll(observations, -1, axis=0),
            "terminals": np.zeros(200, dtype=bool),
            "timeouts": np.arange(200) % 50 == 49,
        }
    )


@pytest.mark.parametrize("algorithm", [IQL, TD3BC])
def test_values_are_those_of_the_logged_rewards(algorithm):
    """A reward of 40 forever is worth 80 at gamma 0.5, though the learner saw rewards of 0.1 * 40 - 3 = 1."""
    knobs = {"gamma": 0.5, "tau": 0.1, "critic_learning_rate": 3e-3, "reward": {"scale": 0.1, "shift": -3.0}}
    knobs |= {"value_learning_rate": 3e-3} if algorithm is IQL else {}
    model = algorithm(dataset=constant_rewards(40.0), **SMALL, **knobs).learn(600)
    observations = generator(2).normal(size=(20, 3))
    assert model.value(observations) == pytest.approx(np.full(20, 80.0), rel=0.03)
    assert model.q(observations, [2.0]) == pytest.approx(np.full(20, 80.0), rel=0.03)


def test_a_swept_gamma_is_the_member_s_own():
    options = {"critic_learning_rate": 3e-3, "value_learning_rate": 3e-3, "tau": 0.1}
    sweep = {"gamma": [0.5, 0.8]}
    model = IQL(dataset=constant_rewards(40.0), sweep=sweep, reward={"scale": 0.1, "shift": -3.0}, **options, **SMALL)
    model.learn(800)
    values = [float(model.value([0.0, 0.0, 0.0], member=member)) for member in (0, 1)]
    assert values == pytest.approx([80.0, 200.0], rel=0.05)


def test_one_or_many_by_position_or_by_name(model):
    one = model.value(NAMED)
    assert isinstance(one, float)
    assert one == model.value(POSITIONS)
    assert model.value([NAMED, NAMED]).shape == (2,)
    assert model.value(NAMED, member=0) != model.value(NAMED, member=1)
    q = model.q(NAMED, {"fan": 30.0, "Q2": 20.0, "Q1": 10.0})
    assert q == model.q(POSITIONS, [10.0, 20.0, 30.0])
    scan = model.q(NAMED, [[10.0, 20.0, 30.0], [90.0, 20.0, 30.0]])
    assert scan.shape == (2,)
    assert scan[0] == pytest.approx(q, abs=1e-6)
    assert scan[0] != scan[1]
    assert model.q([POSITIONS] * 3, [10.0, 20.0, 30.0]).shape == (3,)


def test_values_without_a_value_network_are_those_of_the_mean_action():
    model = CQL(dataset=heater_data(), num_cql_samples=2, **SMALL).learn(10)
    action, _ = model.predict(NAMED)
    assert model.value(NAMED) == pytest.approx(model.q(NAMED, action), abs=1e-5)


@pytest.mark.parametrize(
    ("action", "words"),
    [
        ([10.0, 120.0, 30.0], "`Q2` = 120 is outside the range that the critics were trained with, 0 to 100"),
        ([[1.0, 1.0, 30.0], [-50.0, 1.0, 30.0]], "`Q1` = -50 is outside the range"),
        ([10.0, 20.0, 31.0], "`fan` = 31 is outside the range that the critics were trained with, 30 to 30"),
        ({"Q1": 1, "Q2": 2, "fun": 30}, "unknown action 'fun'. Did you mean `fan`?"),
        ([10.0, 20.0], r"actions have shape \(2,\); \(3,\) or \(batch, 3\) is needed"),
    ],
    ids=str,
)
def test_actions_that_the_critics_cannot_judge(model, action, words):
    with pytest.raises(ConfigError, match=words):
        model.q(NAMED, action)


def test_counts_that_differ_and_members_that_are_none(model):
    with pytest.raises(ConfigError, match="there are 3 observations and 2 actions"):
        model.q([POSITIONS] * 3, [[1.0, 1.0, 30.0]] * 2)
    with pytest.raises(ConfigError, match="member = 2 is not legal"):
        model.value(NAMED, member=2)


def test_cloning_has_no_values():
    model = BC(dataset=heater_data(), **SMALL).learn(5)
    for ask in (lambda: model.value(NAMED), lambda: model.q(NAMED, [1.0, 1.0, 30.0])):
        with pytest.raises(ConfigError, match="bc has no critics, so it has no values"):
            ask()


def test_rewards_scaled_by_zero_leave_no_values():
    model = IQL(dataset=heater_data(), reward={"scale": 0.0}, **SMALL).learn(5)
    with pytest.raises(ConfigError, match=r"rewards were scaled by 0 \(algo_kwargs.reward.scale\)"):
        model.value(NAMED)


def test_names_travel_with_the_checkpoint(model, tmp_path):
    policy = Policy.load(model.save(tmp_path / "policy"))
    assert policy.spaces.observation_names == ("T1", "T2", "TSP1")
    assert np.array_equal(policy.predict(NAMED), policy.predict(POSITIONS))
    assert policy.predict(NAMED).shape == (3,)
    assert policy.predict([NAMED, NAMED]).shape == (2, 3)
    assert policy.predict(NAMED)[2] == 30.0
    assert not policy.evaluated
