"""Online runs: what is collected, how environments are rebuilt, and exact resume with replay and in mid-episode."""

import shutil
from functools import partial

import gymnasium
import numpy as np
import pytest
import torch

from rl_training import registry
from rl_training.data.transforms import Transforms
from rl_training.envs.collector import Collector
from rl_training.envs.environments import infer_env_spaces, reset_seeds
from rl_training.errors import CheckpointError, ConfigError
from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime import load_checkpoint
from rl_training.runtime.checkpoints.replay_store import ReplayStore, read_replay
from rl_training.runtime.phases.online import UpdateRhythm
from tests.helpers import (
    Cut,
    CutAt,
    Notes,
    assert_same_run,
    checkpoints,
    die_at_each,
    generator,
    is_online,
    metric_rows,
    tiny_run,
)

ONLINE = [algo for algo in registry.names() if is_online(algo)]
LONG = {
    "total_timesteps": 250,
    "log_interval": 25,
    "eval_interval": 125,
    "checkpoint_interval": 50,
    "algo_kwargs": {"learning_starts": 70, "buffer_capacity": 90},
}
CUTS = [
    ("checkpoint", 50),  # before the first update
    ("log", 75),  # at the first updates
    ("log", 125),  # in mid-episode, the ring has been overwritten
    ("evaluation", 125),
    ("checkpoint", 200),  # where one episode has just ended and the next begun
    ("log", 225),  # in the second episode
]


@pytest.fixture(scope="module", params=[("sac", None), *((algo, [0, 7]) for algo in ONLINE)], ids=str)
def whole(request, tmp_path_factory):
    """Every algorithm as a population, and one alone."""
    algo, seeds = request.param
    path = tmp_path_factory.mktemp("whole")
    tiny_run(path, algo, seeds=seeds, **LONG)
    return path, algo, seeds


def test_cut_and_resumed_equals_uninterrupted(whole, tmp_path):
    path, algo, seeds = whole
    die_at_each(partial(tiny_run, tmp_path, algo, seeds=seeds, **LONG), CUTS)
    assert_same_run(path, tmp_path)


def test_the_policy_really_acts_and_the_environment_really_answers(whole):
    """The rows in the replay are transitions of Pendulum: replayed in a fresh environment they give the same numbers."""
    path, _, seeds = whole
    last = load_checkpoint(checkpoints(path)[-1])
    rows, transforms = read_replay(last), Transforms.from_tensors(last.tensors)
    assert rows.shape[0] == len(seeds or [0])
    first = last.env_step - rows.shape[1]
    env = gymnasium.make("Pendulum-v1")
    for member, seed in enumerate(seeds or [0]):
        observation, _ = env.reset(seed=reset_seeds(seed, "training", 1, 1)[0])
        for row in rows[member, 200 - first :]:
            assert row[:3] == pytest.approx(transforms.observations(observation), abs=1e-6)
            observation, reward, _, truncated, _ = env.step(row[3:4] * 2.0)
            assert row[4] == pytest.approx(float(transforms.rewards(np.float64(reward))), abs=1e-5)
            assert row[5:8] == pytest.approx(transforms.observations(observation), abs=1e-6)
            assert (row[8], row[9]) == (0.0, float(truncated))
    env.close()


GROWING = {**LONG, "keep_checkpoints": 50, "algo_kwargs": {"learning_starts": 70}}  # a ring that is never full


@pytest.fixture(scope="module")
def growing(tmp_path_factory):
    path = tmp_path_factory.mktemp("growing")
    tiny_run(path, "sac", **GROWING)
    return path


def test_a_checkpoint_costs_what_is_new(growing):
    sizes = [path.stat().st_size for path in sorted((growing / "replay").iterdir())]
    assert len(sizes) == 6  # at 50, 100, 125 (the best so far), 150, 200, 250
    assert sum(sizes) < 250 * 10 * 4 + 6 * 200  # every row once, and a header per segment
    spans = [[(s["first"], s["stop"]) for s in load_checkpoint(path).state["replay"]] for path in checkpoints(growing)]
    assert spans[0] == [(0, 50)]
    assert spans[-1] == [(0, 50), (50, 100), (100, 125), (125, 150), (150, 200), (200, 250)]


def test_segments_that_nobody_refers_to_are_removed(whole):
    path, _, _ = whole
    referenced = {segment["name"] for c in checkpoints(path) for segment in load_checkpoint(c).state.get("replay", [])}
    assert {entry.name for entry in (path / "replay").iterdir()} == referenced
    newest = load_checkpoint(checkpoints(path)[-1]).state["replay"]
    assert min(segment["first"] for segment in newest) > 0  # the ring has moved on; the best checkpoint may be an older one


def test_many_segments_are_joined(growing, tmp_path, monkeypatch):
    monkeypatch.setattr("rl_training.runtime.checkpoints.replay_store.MAX_SEGMENTS", 3)
    tiny_run(tmp_path, "sac", **GROWING)
    most = [max(len(load_checkpoint(path).state["replay"]) for path in checkpoints(run)) for run in (growing, tmp_path)]
    assert most == [6, 3]
    assert_same_run(growing, tmp_path)


@pytest.fixture(scope="module")
def kept(tmp_path_factory):
    path = tmp_path_factory.mktemp("kept")
    tiny_run(path, "sac", keep_checkpoints=9, **LONG)
    return path


@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_a_damaged_segment_is_refused_and_an_older_checkpoint_taken(kept, tmp_path, damage, capsys):
    shutil.copytree(kept, tmp_path / "run")
    newest = load_checkpoint(checkpoints(tmp_path / "run")[-1])
    segment = tmp_path / "run" / "replay" / newest.state["replay"][-1]["name"]
    data = bytearray(segment.read_bytes())
    data[len(data) // 2] ^= 1
    {
        "flip": lambda: segment.write_bytes(bytes(data)),
        "cut": lambda: segment.write_bytes(bytes(data[:-9])),
        "remove": segment.unlink,
    }[damage]()
    with pytest.raises(CheckpointError, match=segment.name):
        read_replay(newest)
    manager, checkpoint = ExperimentManager.resuming(tmp_path / "run")
    assert checkpoint is None  # it is found once the run is locked
    manager.train(resume=True)
    assert "falling back to env-000000200" in capsys.readouterr().err
    assert_same_run(kept, tmp_path / "run")


def test_a_segment_cannot_name_a_file_outside(finished):
    checkpoint = load_checkpoint(finished("sac").checkpoint)
    checkpoint.state["replay"][0]["name"] = "../../secret"
    with pytest.raises(CheckpointError, match="not a segment of a replay"):
        read_replay(checkpoint)


def test_one_member_goes_on_alone_with_its_own_replay_and_episode(tmp_path):
    changes = {**LONG, "seeds": [3, 8]}
    tiny_run(tmp_path / "both", "sac", keep_checkpoints=9, **changes)
    half = checkpoints(tmp_path / "both")[2]
    manager, checkpoint = ExperimentManager.resuming(half, tmp_path / "one", member=1)
    assert read_replay(checkpoint).shape[0] == 1
    manager.train(resume=True, checkpoint=checkpoint)
    mine = metric_rows(tmp_path / "one")[-2:]
    theirs = [row for row in metric_rows(tmp_path / "both") if row["member"] == 1][-2:]
    assert mine[0]["data/episode_return"] == pytest.approx(theirs[0]["data/episode_return"], rel=1e-3)
    assert mine[1]["eval/return_mean"] == pytest.approx(theirs[1]["eval/return_mean"], rel=5e-2)


class Drifting(gymnasium.Env):
    """An environment with memory beyond its episode: it cannot be rebuilt by replaying."""

    observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gymnasium.spaces.Box(-2.0, 2.0, (1,), np.float32)
    steps = 0
    broken = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        return np.zeros(3, dtype=np.float32), {}

    def step(self, action):
        Drifting.steps += 1
        if Drifting.broken == "raise" and Drifting.steps > 30:
            raise RuntimeError("the arm is stuck")
        reward = float("nan") if Drifting.broken == "nan" and Drifting.steps > 30 else -1.0
        if Drifting.broken == "rewards":
            return np.zeros(3, dtype=np.float32), reward - 0.01 * Drifting.steps, False, False, {}
        return np.full(3, Drifting.steps, dtype=np.float32), reward, False, False, {}


@pytest.fixture
def drifting(monkeypatch):
    gymnasium.register("Drifting-v0", entry_point=Drifting, max_episode_steps=100)
    monkeypatch.setattr(Drifting, "steps", 0)
    monkeypatch.setattr(Drifting, "broken", None)
    yield "Drifting-v0"
    del gymnasium.registry["Drifting-v0"]


def test_an_environment_that_does_not_repeat_starts_a_fresh_episode_and_says_so(tmp_path, drifting, capsys):
    changes = {"env_id": drifting, "eval_interval": 10_000, "eval_episodes": 1}
    with pytest.raises(Cut):
        tiny_run(tmp_path, "sac", callbacks=[CutAt("checkpoint", 60)], **changes)
    result = tiny_run(tmp_path, "sac", resume=True, **changes)
    assert result.env_step == 120
    assert "seed 0: Drifting-v0 does not repeat" in capsys.readouterr().err
    assert load_checkpoint(result.checkpoint).state["episodes"][0]["number"] == 1


def test_rewards_that_do_not_repeat_are_noticed_where_observations_do(tmp_path, drifting, monkeypatch):
    monkeypatch.setattr(Drifting, "broken", "rewards")
    changes, notes = {"env_id": drifting, "eval_interval": 10_000, "eval_episodes": 1}, Notes()
    with pytest.raises(Cut):
        tiny_run(tmp_path, "sac", callbacks=[CutAt("checkpoint", 60)], **changes)
    tiny_run(tmp_path, "sac", resume=True, reporter=notes, **changes)
    assert any("replaying the episode gave other rewards" in text for text in notes.warnings)


@pytest.mark.parametrize(("fault", "words"), [("raise", "RuntimeError: the arm is stuck"), ("nan", "NaN or inf as reward")])
def test_a_broken_environment_is_one_clear_error(tmp_path, drifting, fault, words):
    Drifting.broken = fault
    with pytest.raises(ConfigError, match=f"environment Drifting-v0 .*{words}"):
        tiny_run(tmp_path, "sac", env_id=drifting, eval_interval=10_000)


def test_an_episode_too_long_to_replay_starts_afresh(monkeypatch):
    monkeypatch.setattr("rl_training.envs.current_episodes.LONGEST_REPLAY", 20)
    spaces = infer_env_spaces("Pendulum-v1")
    first, second = (Collector("Pendulum-v1", [4], spaces, Transforms.identity(3)) for _ in range(2))
    first.begin_episodes()
    for action in generator(1).uniform(-1, 1, (30, 1, 1)).astype(np.float32):
        first.step(action)
    warnings = []
    second.restore(first.state(), first.tensors(), warnings.append)
    assert len(warnings) == 1
    assert "30 steps is too long to replay" in warnings[0]
    assert second.episodes.numbers.tolist() == [1]
    for collector in (first, second):
        collector.close()


def test_a_frozen_member_stands_still():
    spaces = infer_env_spaces("Pendulum-v1")
    collector = Collector("Pendulum-v1", [0, 1], spaces, Transforms.identity(3))
    collector.begin_episodes()
    collector.step(np.zeros((2, 1), dtype=np.float32))
    before = collector.observations()
    collector.freeze([1])
    collector.step(np.ones((2, 1), dtype=np.float32))
    assert np.array_equal(before[1], collector.observations()[1])
    assert not np.array_equal(before[0], collector.observations()[0])
    assert collector.episodes.lengths.tolist() == [2, 1]
    collector.close()


def test_every_episode_has_a_seed_of_its_own():
    assert len(set(reset_seeds(0, "training", 0, 50)) | set(reset_seeds(1, "training", 0, 50))) == 100
    assert not set(reset_seeds(0, "training", 0, 50)) & set(reset_seeds(0, "evaluation", 0, 50))


@pytest.mark.parametrize("starts", [0, 1, 5, 12])
@pytest.mark.parametrize(("frequency", "updates"), [(1, 1), (1, 5), (4, 3), (7, 1)])
def test_the_rhythm_by_counting(starts, frequency, updates):
    rhythm, taken = UpdateRhythm(starts, frequency, updates), 0
    for env_step in range(1, 60):
        if env_step >= starts and env_step % frequency == 0:
            taken += updates
        assert rhythm.gradient_steps(env_step) == taken
        if taken:
            assert rhythm.env_steps(taken) == env_step - env_step % frequency


def test_a_store_that_cannot_write_says_where(tmp_path):
    from rl_training.data import ReplayBuffer
    from rl_training.errors import StorageError

    (tmp_path / "replay").write_text("in the way")
    buffer = ReplayBuffer(4, 3, 1)
    buffer.restore(torch.zeros(1, 2, 10).numpy(), 2)
    with pytest.raises(StorageError, match="replay"):
        ReplayStore(tmp_path / "replay").save(buffer, 2)
