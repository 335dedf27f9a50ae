"""Fitted Q evaluation and the model, on a plant whose values are known."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.ope.dynamics import Dynamics, DynamicsOptions
from rl_training.ope.episodes import FEWEST, Behaviour, Episodes
from rl_training.ope.fqe import FittedQ, FittedValues, FQEOptions
from rl_training.ope.horizon import steps_that_count
from tests.ope.plants import linear, logged, value

CPU = torch.device("cpu")
BUDGET = FQEOptions(steps=600, turns=4, ensemble=2, widths=(64, 64), rate=3e-3)
GAINS, GAMMA = (-0.1, -0.4, -0.9), 0.95


@pytest.fixture(scope="module")
def episodes():
    return Episodes.of(logged(), 100_000)


@pytest.fixture(scope="module")
def fitted(episodes):
    found = FittedQ(episodes, [Behaviour.of(linear(gain), episodes) for gain in GAINS], GAMMA, BUDGET, CPU)
    return found, found.fit()


def test_fitted_values_are_those_of_the_plant(fitted):
    _, found = fitted
    for number, gain in enumerate(GAINS):
        std = float(found.influence[:, number].square().sum(-1).mean().sqrt())
        assert float(found.values[:, number].mean()) == pytest.approx(value(gain, GAMMA), abs=max(4.0 * std, 0.3))
    assert (found.values[:, 1:] > found.values[:, :1]).all()  # stronger control costs less here
    assert (found.growth < 1.0).all()
    assert found.stable.all()


def test_the_variance_over_episodes_is_that_of_other_logs(fitted):
    """Values from logs of other seeds, with the same networks, spread as their influences say."""
    _, found = fitted
    gain, values = GAINS[1], []
    for seed in range(1, 6):
        other = Episodes.of(logged(seed=seed), 100_000)
        values.append(float(FittedQ(other, [Behaviour.of(linear(gain), other)], GAMMA, BUDGET, CPU).fit().values.mean()))
    said = float(found.influence[:, 1].square().sum(-1).mean().sqrt())
    assert np.std(values, ddof=1) == pytest.approx(said, rel=0.8)


def test_a_single_network_that_is_far_off_does_not_count():
    """Hand-computed: the median of 1, 2, 3, 4, 1000 is 3, and that of the distances to it (2, 1, 0, 1, 997) is 1."""
    values = torch.tensor([[4.0], [1.0], [1000.0], [3.0], [2.0]])
    influence = torch.tensor([[[3.0, 4.0]], [[3.0, 4.0]], [[1e6, 0.0]], [[0.0, 5.0]], [[0.0, 1.0]]])
    found = FittedValues(values, influence, *(torch.ones(5, 1),) * 3)
    assert found.middle(0) == pytest.approx((3.0, 1.4826, 5.0))


def test_what_an_estimate_rests_on(episodes, fitted):
    """A short horizon ends near where episodes begin, so it rests on fewer rows."""
    _, found = fitted
    short = FittedQ(episodes, [Behaviour.of(linear(GAINS[1]), episodes)], 0.3, BUDGET, CPU).fit()
    assert found.effective[:, 1].mean() <= len(episodes)
    assert short.effective.mean() < 0.8 * found.effective[:, 1].mean()


def test_values_in_every_row_satisfy_the_bellman_equation(episodes, fitted):
    fit, _ = fitted
    rows = fit.at_rows(1, Behaviour.of(linear(GAINS[1]), episodes))
    wanted = episodes.rewards + GAMMA * rows.following
    assert np.sqrt(np.mean((rows.logged - wanted) ** 2)) < 0.15 * np.std(rows.logged)
    assert rows.own.mean() > rows.logged.mean()  # without noise it costs less


def test_a_policy_is_valued_alike_in_any_units(fitted):
    """Rounding differs, and training amplifies that, but no further than estimates differ between networks anyway."""
    moved = Episodes.of(logged(offset=100.0, scale=250.0), 100_000)
    policies = [Behaviour.of(linear(gain, 100.0, 250.0), moved) for gain in GAINS]
    found = FittedQ(moved, policies, GAMMA, BUDGET, CPU).fit()
    near = slice(0, 2)  # policies whose actions the log has
    torch.testing.assert_close(found.values.mean(0)[near], fitted[1].values.mean(0)[near], rtol=0.1, atol=0.0)
    np.testing.assert_allclose(
        moved.of_observations(moved.observations),
        fitted[0].episodes.of_observations(fitted[0].episodes.observations),
        atol=1e-4,
    )


def test_true_ends_are_worth_nothing():
    """Every step earns 1 and a quarter of them end: V = 1 / (1 - g 3/4), whatever the policy."""
    random = np.random.default_rng(0)
    data = logged(episodes=400, length=10)
    ends = random.random(len(data)) < 0.25
    last = np.asarray(data.timeouts)
    given = Episodes.of(
        replace(data, rewards=np.ones(len(data), dtype=np.float32), terminals=ends, timeouts=last & ~ends), 100_000
    )
    found = FittedQ(given, [Behaviour.of(linear(-0.4), given)], GAMMA, BUDGET, CPU).fit()
    assert float(found.values.mean()) == pytest.approx(1.0 / (1.0 - 0.75 * GAMMA), rel=0.05)


def test_the_model_gives_the_values_of_the_plant(episodes):
    model = Dynamics(episodes, GAMMA, DynamicsOptions(steps=800, ensemble=2, widths=(64, 64), rate=3e-3, rollouts=60), CPU)
    model.fit()
    assert (model.explained > 0.97).all()
    followed = model.followed(lambda seen: torch.zeros(len(seen), 1))
    assert followed.miss < 0.1 * followed.spread  # it earns what was logged
    for gain in GAINS:
        found = model.rollouts(linear(gain))
        starts = value(gain, GAMMA) * np.mean(episodes.observations[episodes.starts] ** 2) / (4.0 / 3.0)
        assert found.values.mean() == pytest.approx(starts, rel=0.1)
        assert found.outside < 0.01
    away = model.rollouts(linear(40.0))  # unstable: it leaves the data at once
    assert away.outside > 0.5
    assert np.isfinite(away.values).all()


def test_a_set_point_that_episodes_keep_does_not_drift_in_the_model():
    plain = logged(episodes=40)
    wanted = np.repeat(np.linspace(-1.0, 1.0, 40), len(plain) // 40)[:, None].astype(np.float32)
    wide = {name: np.hstack((getattr(plain, name), wanted)) for name in ("observations", "next_observations")}
    given = Episodes.of(replace(plain, **wide), 100_000)
    model = Dynamics(given, GAMMA, DynamicsOptions(steps=100, ensemble=2, widths=(16,), rollouts=20), CPU)
    model.fit()
    visited = given.of_observations.real(model.rollouts(lambda seen: -0.4 * seen[:, :1]).visited[:, :2].numpy())[:, 1]
    apart = np.abs(visited[:, None] - wanted[None, :, 0]).min(1)
    assert apart.max() < 1e-4


def standing(seed=0):
    """Return episodes that stand still, then as many that are pushed about by noise."""
    random, rows = np.random.default_rng(seed), []
    moves = np.repeat([False, True], 60)
    state = np.where(moves, random.uniform(1.0, 2.0, 120), 0.0)
    for step in range(30):
        action = np.where(moves, random.standard_normal(120), 0.0)
        following = np.where(moves, np.clip(state + 0.3 * random.standard_normal(120), 1.0, 2.0), 0.0)
        rows.append((state, action, -(state**2), following, np.full(120, step == 29)))
        state = following
    seen, action, reward, following, last = (np.stack(column, axis=1).reshape(-1) for column in zip(*rows, strict=True))
    columns = {
        "observations": seen[:, None],
        "actions": action[:, None],
        "rewards": reward,
        "next_observations": following[:, None],
    }
    return TransitionDataset.from_dict(
        {name: column.astype(np.float32) for name, column in columns.items()}
        | {"terminals": np.zeros(len(seen), dtype=bool), "timeouts": last}
    )


def test_noise_of_moving_rows_does_not_move_what_stands_still():
    given = Episodes.of(standing(), 100_000)
    model = Dynamics(given, GAMMA, DynamicsOptions(steps=1500, ensemble=2, widths=(64, 64), rate=3e-3, rollouts=60), CPU)
    model.fit()
    found = model.rollouts(linear(0.0)).values
    still, moved = found[:, :30], found[:, 30:]  # from the first and from the second half of the episodes
    assert np.abs(still).mean() < 0.05 * np.abs(moved).mean()


def drawn(seed=0):
    """Return episodes of a tank with a tap that is opened by chance, one time in ten."""
    random, rows = np.random.default_rng(seed), []
    warm, tap = random.uniform(0.0, 1.0, 100), np.zeros(100)
    for _ in range(40):
        action = random.uniform(0.0, 1.0, 100)
        following, then = 0.8 * warm + 0.2 * action - 0.3 * tap, (random.uniform(size=100) < 0.1).astype(float)
        rows.append((np.stack((warm, tap), axis=-1), action, -((warm - 0.5) ** 2), np.stack((following, then), axis=-1)))
        warm, tap = following, then
    seen, action, reward, following = (np.stack(column, axis=1).reshape(4000, -1) for column in zip(*rows, strict=True))
    columns = {"observations": seen, "actions": action, "rewards": reward[:, 0], "next_observations": following}
    return TransitionDataset.from_dict(
        {name: column.astype(np.float32) for name, column in columns.items()}
        | {"terminals": np.zeros(4000, dtype=bool), "timeouts": np.arange(4000) % 40 == 39}
    )


def test_a_tap_is_open_or_shut_in_the_model_as_often_as_in_the_log():
    given = Episodes.of(drawn(), 100_000)
    model = Dynamics(given, GAMMA, DynamicsOptions(steps=500, ensemble=2, widths=(32, 32), rate=3e-3, rollouts=60), CPU)
    model.fit()
    tap = given.of_observations.real(model.rollouts(lambda seen: 0.5 + 0.0 * seen[:, :1]).visited[:, :2].numpy())[:, 1]
    half_open = np.minimum(np.abs(tap), np.abs(tap - 1.0)) > 0.2
    assert half_open.mean() < 0.02
    assert np.mean(tap > 0.5) == pytest.approx(0.1, abs=0.04)


def tripping(seed=0):
    """Return episodes that drift by chance until they trip, which costs a hundred and ends them, or for 40 steps."""
    random, rows = np.random.default_rng(seed), []
    for _ in range(150):
        state = 0.0
        for step in range(40):
            following = 0.95 * state + 0.3 * random.standard_normal()
            ends = abs(following) > 1.5
            rows.append((state, random.standard_normal(), -1.0 - 100.0 * ends, following, ends, step == 39 and not ends))
            state = following
            if ends:
                break
    seen, action, reward, following, ends, cut = (np.array(column) for column in zip(*rows, strict=True))
    columns = {"observations": seen[:, None], "actions": action[:, None], "rewards": reward}
    columns = {name: column.astype(np.float32) for name, column in columns.items()}
    following = following[:, None].astype(np.float32)
    return TransitionDataset.from_dict(columns | {"next_observations": following, "terminals": ends, "timeouts": cut})


def test_rare_losses_count_in_the_model_as_in_the_log():
    given = Episodes.of(tripping(), 100_000)
    model = Dynamics(given, GAMMA, DynamicsOptions(steps=300, ensemble=2, widths=(32, 32), rollouts=60), CPU)
    model.fit()
    followed = model.followed(lambda seen: torch.zeros(len(seen), 1))
    assert followed.surely < 0.25
    assert model.rollouts(linear(0.0)).values.mean() == pytest.approx(-38.2, rel=0.3)  # by simulation


def test_half_of_the_rows_give_nearly_the_same_values(episodes, fitted, monkeypatch):
    monkeypatch.setattr("rl_training.ope.fqe._ROWS", len(episodes) // 2)
    found = FittedQ(episodes, [Behaviour.of(linear(gain), episodes) for gain in GAINS], GAMMA, BUDGET, CPU).fit()
    near = slice(0, 2)  # policies whose actions the log has
    for name, share in {"values": 0.1, "effective": 0.3}.items():  # the latter is of all rows
        half, whole = (getattr(one, name).mean(0)[near] for one in (found, fitted[1]))
        torch.testing.assert_close(half, whole, rtol=share, atol=0.0)


def test_equal_arguments_give_equal_values(episodes, fitted):
    again = FittedQ(episodes, [Behaviour.of(linear(gain), episodes) for gain in GAINS], GAMMA, BUDGET, CPU).fit()
    torch.testing.assert_close(again.values, fitted[1].values, rtol=0.0, atol=0.0)


def test_a_long_log_is_cut_into_parts():
    whole = logged(episodes=1, length=3000)
    found = Episodes.of(whole, 100_000)
    assert len(found.lengths) >= FEWEST
    assert found.lengths.sum() == len(whole)
    assert (found.numbers == 0).all()
    assert found.whole_returns() == pytest.approx([whole.rewards.sum()], rel=1e-4)  # results are of whole episodes
    assert (found.observations == whole.observations).all()


def test_some_episodes_of_large_data_are_used_whole():
    data = logged(episodes=200, length=40)
    found = Episodes.of(data, 2000)
    assert len(found) == 2000
    assert set(found.lengths) == {40}
    assert found.numbers[0] == 0
    assert found.numbers[-1] == 199


@pytest.mark.parametrize(("gamma", "steps"), [(0.0, 1), (0.5, 7), (0.99, 459)])
def test_how_far_a_discounted_sum_reaches(gamma, steps):
    assert steps_that_count(gamma) == steps
    assert gamma**steps <= 0.01


def test_what_the_rewards_allow():
    data = logged(episodes=40, length=10)
    low, high = float(data.rewards.min()), float(data.rewards.max())
    assert Episodes.of(data, 1000).possible_values(0.9) == pytest.approx((10.0 * low, 10.0 * high))
    ends = np.asarray(data.timeouts)
    truly = replace(data, terminals=ends, timeouts=np.zeros_like(ends))
    going, last = data.rewards[~ends], data.rewards[ends]
    allowed = min(10.0 * going.min(), last.min()), max(10.0 * going.max(), last.max())
    assert Episodes.of(truly, 1000).possible_values(0.9) == pytest.approx(allowed)
