"""The replay of a run as data: the transitions that happened, in real units, with their true ends."""

import json

import gymnasium
import numpy as np
import pytest

from rl_training import IQL, RLPD, SAC, TransitionDataset, load_dataset
from rl_training.envs.environments import make_env, reset_seeds
from rl_training.errors import CheckpointError, ConfigError, DatasetError
from rl_training.runtime.callbacks import Callback
from tests.helpers import call_cli, small_arrays, small_dataset

SMALL = {"hidden_sizes": [16, 16], "batch_size": 32, "eval_interval": 10_000, "device": "cpu"}
ONLINE = {**SMALL, "learning_starts": 50, "checkpoint_interval": 90}


class Walk(gymnasium.Env):
    """Sums its actions; ends truly when the sum leaves [-3, 3], and by a time limit after 15 steps."""

    observation_space = gymnasium.spaces.Box(-100.0, 100.0, (3,), np.float32)
    action_space = gymnasium.spaces.Box(np.array([-2.0, 0.0], np.float32), np.array([1.0, 5.0], np.float32))

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.taken, self.sum = 0, self.np_random.uniform(-1.0, 1.0)
        return self._seen(), {}

    def step(self, action):
        self.taken, self.sum = self.taken + 1, self.sum + float(action[0])
        ended = abs(self.sum) > 3.0
        return self._seen(), 10.0 * float(action[1]) - 3.0, ended, self.taken == 15 and not ended, {}

    def _seen(self):
        return np.array([self.sum, self.taken, 7.0], dtype=np.float32)


@pytest.fixture(autouse=True, scope="module")
def walk():
    gymnasium.register("Walk-v0", entry_point=Walk)
    yield
    del gymnasium.registry["Walk-v0"]


def assert_happened(data, seed):
    """Every episode, replayed in the environment with its own seed and actions, gives the rows of the data."""
    env = make_env("Walk-v0")
    for number, episode in enumerate(data.episodes()):
        seen, _ = env.reset(seed=reset_seeds(seed, "training", number, 1)[0])
        for row in range(episode.rows.start, episode.rows.stop):
            assert np.array_equal(data.observations[row], seen)
            seen, reward, terminal, timeout, _ = env.step(data.actions[row])
            assert np.array_equal(data.next_observations[row], seen)
            assert data.rewards[row] == np.float32(reward)
            assert data.terminals[row] == terminal
            assert data.timeouts[row] == timeout or row == len(data) - 1
    assert number > 10
    assert data.terminals.sum() > 3


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    """SAC, two members, 250 steps in three segments."""
    path = tmp_path_factory.mktemp("replay") / "sac"
    SAC("Walk-v0", seeds=[3, 8], run_dir=path, **ONLINE).learn(250)
    return path


def test_the_replay_is_what_happened(run):
    for member, seed in enumerate((3, 8)):
        data = load_dataset(run, member=member)
        assert len(data) == 250
        assert_happened(data, seed)
    both = load_dataset(run)
    assert len(both) == 500
    assert np.array_equal(both.actions[250:], data.actions)
    assert both.timeouts[249] or both.terminals[249]
    assert both.action_low.tolist() == [-2.0, 0.0]
    checkpoint = next((run / "checkpoints").glob("env-000000250_*"))
    assert load_dataset(checkpoint).fingerprint == both.fingerprint
    assert f"read as replay of a run; {checkpoint.name}, all members" in both.origin


def assert_lawful(data, tolerance):
    """Every row follows the rules of the environment, and every episode its own time."""
    ends = data.terminals | data.timeouts
    assert np.allclose(data.rewards, 10.0 * data.actions[:, 1] - 3.0, atol=10 * tolerance)
    assert np.allclose(data.next_observations[:, 0], data.observations[:, 0] + data.actions[:, 0], atol=tolerance)
    assert np.array_equal(data.next_observations[:-1][~ends[:-1]], data.observations[1:][~ends[:-1]])
    assert np.array_equal(data.terminals, np.abs(data.next_observations[:, 0]) > 3.0)
    assert data.terminals.sum() > 10


def test_transitions_over_several_steps_are_undone(tmp_path):
    SAC("Walk-v0", run_dir=tmp_path / "run", n_step=4, gamma=0.9, **ONLINE).learn(257)
    data = load_dataset(tmp_path / "run")
    assert len(data) == 257
    assert_lawful(data, 1e-5)
    assert np.array_equal(data.timeouts[:-1], ((data.next_observations[:, 1] == 15) & ~data.terminals)[:-1])


def test_transforms_are_undone(tmp_path):
    arrays = small_arrays(rows=200, observation_dim=3, action_dim=2)
    prior = TransitionDataset.from_dict({**arrays, "actions": np.abs(arrays["actions"]) * [-1.0, 1.0]})
    RLPD(
        "Walk-v0",
        seed=5,
        dataset=prior,
        run_dir=tmp_path / "run",
        reward={"scale": 0.5, "shift": 1.0},
        num_critics=2,
        gradient_updates_per_step=1,
        **ONLINE,
    ).learn(200)
    data = load_dataset(tmp_path / "run")
    assert len(data) == 200
    assert_lawful(data, 1e-4)
    assert "were bounded there" in data.origin  # 15 steps and the constant 7 are far from a standard normal


class StopFirst(Callback):
    """Stops the first member at the first log row."""

    def on_log(self, step, rows):
        return [0]


def test_a_member_that_stopped_has_only_the_rows_that_it_stepped(tmp_path):
    SAC("Walk-v0", seeds=[3, 8], run_dir=tmp_path / "run", log_interval=60, **ONLINE).learn(150, StopFirst())
    assert len(load_dataset(tmp_path / "run", member=0)) == 60
    assert len(load_dataset(tmp_path / "run")) == 210


def test_the_replay_of_a_run_trains_another_algorithm(run, tmp_path, capsys):
    model = IQL("Walk-v0", dataset={"run": run, "member": 1}, run_dir=tmp_path / "iql", **SMALL).learn(20)
    part = model.config.algo_kwargs.dataset[0]
    assert (part.run, part.member) == (str(run), 1)
    done = call_cli(capsys, "data", "convert", run, tmp_path / "out", "--member", "1", "--json")
    assert json.loads(done.stdout) == {"written": [{"path": str(tmp_path / "out"), "rows": 250}]}
    record = json.loads((tmp_path / "iql" / "run.json").read_text())
    assert load_dataset(tmp_path / "out").fingerprint == record["dataset"]["fingerprint"]
    IQL("Walk-v0", dataset=run, run_dir=tmp_path / "path", **SMALL).learn(5)


def test_what_has_no_replay_is_refused_in_one_line(run, tmp_path):
    IQL(dataset=small_dataset(), run_dir=tmp_path / "iql", **SMALL).learn(5)
    with pytest.raises(DatasetError, match=r"iql: has no replay, since it has collected nothing in an environment"):
        load_dataset(tmp_path / "iql")
    with pytest.raises(ConfigError, match="member 2 not found: the run has members 0 to 1"):
        load_dataset(run, member=2)
    np.savez(tmp_path / "a.npz", **small_dataset().fields())
    with pytest.raises(ConfigError, match="which has no members; leave out `member`"):
        load_dataset(tmp_path / "a.npz", member=0)
    with pytest.raises(ConfigError, match="set one of `kind`"):
        IQL("Walk-v0", dataset={"run": str(run), "path": "x"})
    segment = next((run / "replay").glob("rows-*"))
    whole = segment.read_bytes()
    segment.write_bytes(whole[:-4] + b"\0\0\0\1")
    with pytest.raises(CheckpointError, match="is damaged"):
        load_dataset(run)
    segment.write_bytes(whole)
