"""Episodes side by side: in order, the same bytes however many run at once, with true ends."""

import gymnasium
import numpy as np
import pytest

from rl_training.config.environment import EnvSource
from rl_training.envs.collecting.behaviours import LANES, RandomBehaviour, ScriptedBehaviour
from rl_training.envs.collecting.episodes import EpisodeStream
from rl_training.envs.collecting.mixture import Mixture, Source
from rl_training.envs.controllers import pendulum_swing_up
from rl_training.envs.environments import infer_env_spaces
from rl_training.errors import ConfigError


class Uneven(gymnasium.Env):
    """Episodes of 1 to 12 steps; those of an even length end truly, the others by a time limit. It sums its actions."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (2,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.length, self.taken, self.sum = int(self.np_random.integers(1, 13)), 0, 0.0
        return self._seen(), {}

    def step(self, action):
        self.taken, self.sum = self.taken + 1, self.sum + float(action[0])
        over = self.taken == self.length
        true = self.length % 2 == 0
        return self._seen(), float(action[0]), over and true, over and not true, {}

    def _seen(self):
        return np.array([self.taken, self.sum], dtype=np.float32)


@pytest.fixture(autouse=True)
def uneven():
    gymnasium.register("Uneven-v0", entry_point=Uneven)
    yield
    del gymnasium.registry["Uneven-v0"]


def random_mixture(side_by_side=1, shares=(1.0,), seed=0, workers=0):
    spaces = infer_env_spaces("Uneven-v0")
    sources = [Source(f"random {number}", RandomBehaviour(spaces), share) for number, share in enumerate(shares)]
    return Mixture(EnvSource("Uneven-v0"), sources, seed, side_by_side, workers)


def rows_of(mixture, rows):
    (data,) = mixture.parts(rows)
    return data


@pytest.mark.parametrize("side_by_side", [2, 5, LANES])
def test_rows_do_not_depend_on_how_many_episodes_run_at_once(side_by_side):
    alone, many = rows_of(random_mixture(), 600), rows_of(random_mixture(side_by_side), 600)
    assert many.fingerprint == alone.fingerprint
    assert len({episode.length for episode in alone.episodes()}) > 8
    assert rows_of(random_mixture(seed=1), 600).fingerprint != alone.fingerprint


def test_worker_processes_give_the_same_rows():
    alone, apart = rows_of(random_mixture(), 200), rows_of(random_mixture(5, workers=2), 200)
    assert apart.fingerprint == alone.fingerprint


def test_ends_and_successors_are_those_of_the_environment():
    data = rows_of(random_mixture(4), 300)
    for episode in list(data.episodes())[:-1]:
        rows = episode.rows
        assert episode.ended == (episode.length % 2 == 0)
        assert data.observations[rows, 0].tolist() == list(range(episode.length))
        assert data.next_observations[rows, 0].tolist() == list(range(1, episode.length + 1))
        assert np.allclose(data.next_observations[rows, 1], np.cumsum(data.actions[rows, 0]), atol=1e-5)
        assert np.array_equal(data.rewards[rows], data.actions[rows, 0])
    assert data.timeouts.sum() > 5
    assert data.terminals.sum() > 5
    assert data.action_low.tolist() == [-2.0]


def test_a_longer_collection_begins_with_the_shorter_one():
    short, long = rows_of(random_mixture(3, (0.5, 0.5)), 101), rows_of(random_mixture(3, (0.5, 0.5)), 400)
    for name, values in short.fields().items():
        whole = slice(0, 100)  # the last row is a cut in the shorter one
        assert np.array_equal(values[whole], getattr(long, name)[whole]), name
    assert short.timeouts[-1] or short.terminals[-1]


def test_a_mixture_holds_the_shares_in_whole_episodes():
    mixture = random_mixture(4, (0.7, 0.2, 0.1))
    rows_of(mixture, 2000)
    for source, wanted in zip(mixture.sources, (1400, 400, 200), strict=True):
        assert abs(source.rows - wanted) < 13
    assert sum(source.rows for source in mixture.sources) == 2000
    alone = random_mixture()
    first = next(iter(alone.episodes(2000)))
    assert np.array_equal(first["actions"], next(iter(random_mixture(1, (0.5, 0.5)).episodes(2000)))["actions"])
    assert "random 2: " in mixture.origin


def test_parts_hold_whole_episodes(monkeypatch):
    monkeypatch.setattr("rl_training.envs.collecting.mixture.BLOCK", 50)
    parts = list(random_mixture(4).parts(400))
    assert len(parts) > 5
    assert all(50 <= len(part) < 62 for part in parts[:-1])
    assert all(part.terminals[-1] or part.timeouts[-1] for part in parts)
    joined = np.concatenate([part.observations for part in parts])
    monkeypatch.undo()
    assert np.array_equal(joined, rows_of(random_mixture(), 400).observations)


def test_scripted_actions_are_those_of_the_controller():
    spaces = infer_env_spaces("Pendulum-v1")
    settings = {"seed": 0, "stream": "s", "most_rows": 30}
    (episode,) = EpisodeStream("Pendulum-v1", ScriptedBehaviour(pendulum_swing_up, spaces, 0.0), **settings)
    assert len(episode["rewards"]) == 30  # cut: more rows are not needed
    assert np.array_equal(episode["actions"], np.stack([pendulum_swing_up(row) for row in episode["observations"]]))
    noisy = next(iter(EpisodeStream("Pendulum-v1", ScriptedBehaviour(pendulum_swing_up, spaces, 0.3), **settings)))
    assert np.abs(noisy["actions"]).max() <= 2.0
    assert not np.array_equal(noisy["actions"], episode["actions"])


def test_a_behaviour_must_fit_the_environment():
    with pytest.raises(ConfigError, match="Uneven-v0 has 2 observations and 1 actions, the policy 3 and 1"):
        EpisodeStream("Uneven-v0", RandomBehaviour(infer_env_spaces("Pendulum-v1")), seed=0, stream="s", most_rows=1)
