"""What careless or hostile users do: foreign directories and environments, stale objects, odd values. Nothing is lost."""

import gymnasium
import numpy as np
import pytest
import yaml

from rl_training import SAC, load_dataset
from rl_training.config.blocks import DatasetConfig
from rl_training.config.loading import make_config
from rl_training.envs.recipes import make_dataset
from rl_training.errors import CheckpointError, ConfigError, DatasetError
from rl_training.experiment import ExperimentManager
from rl_training.experiment.manager import find_checkpoint
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoints.checkpoint import CheckpointStore, load_checkpoint, write_checkpoint
from tests.helpers import assert_same_run, call_cli, checkpoints, metric_rows, run_values, small_arrays, tiny_run

FAST = {"hidden_sizes": [8], "batch_size": 8, "learning_starts": 10, "eval_interval": 50, "eval_episodes": 1}


def test_a_stranger_s_directory_is_left_alone(tmp_path):
    for name in ("checkpoints", "replay"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "precious").write_text("mine")
    (tmp_path / "run.json").write_text('{"mine": true}')
    for overwrite in (False, True):
        with pytest.raises(ConfigError, match=r"holds run.json, checkpoints, replay that are not from a run"):
            tiny_run(tmp_path, "sac", overwrite=overwrite)
    assert (tmp_path / "replay" / "precious").read_text() == "mine"
    with pytest.raises(ConfigError, match="run_dir is empty"):
        SAC("Pendulum-v1", run_dir="", **FAST)


def test_a_refused_learn_leaves_the_object_as_it_was(tmp_path):
    SAC("Pendulum-v1", seed=5, run_dir=tmp_path / "other", **FAST).learn(60)
    saved = SAC("Pendulum-v1", **FAST).learn(50).save(tmp_path / "saved")
    model = SAC.load(saved, run_dir=tmp_path / "other")
    before = model.predict([1.0, 0.0, 0.0])[0]
    with pytest.raises(ConfigError, match="already holds a run"):
        model.learn(90)
    assert np.array_equal(model.predict([1.0, 0.0, 0.0])[0], before)
    assert model.num_timesteps == 50


def test_a_checkpoint_in_a_folder_called_checkpoints_stands_alone(tmp_path):
    whole = SAC("Pendulum-v1", **FAST).learn(90)
    path = SAC("Pendulum-v1", **FAST).learn(50).save(tmp_path / "checkpoints" / "mine")
    model = SAC.load(path).learn(90)
    assert np.array_equal(model.predict([1.0, 0.0, 0.0])[0], whole.predict([1.0, 0.0, 0.0])[0])
    assert [entry.name for entry in (tmp_path / "checkpoints").iterdir()] == ["mine"]
    assert [entry.name for entry in tmp_path.iterdir()] == ["checkpoints"]


def test_a_lone_checkpoint_may_go_on_in_its_grandparent(tmp_path):
    path = SAC("Pendulum-v1", **FAST).learn(50).save(tmp_path / "saved" / "policy")
    SAC.load(path, run_dir=tmp_path).learn(80)
    manager, _ = ExperimentManager.resuming(tmp_path)
    assert manager.train(resume=True).env_step == 80


def test_killed_between_best_and_latest_the_best_is_kept(finished, tmp_path, monkeypatch):
    class Dead(Exception):
        pass

    def die(name):
        if name == "save:before-latest":
            raise Dead

    whole = finished().run_dir
    monkeypatch.setattr("rl_training.runtime.checkpoints.checkpoint.fault_point", die)
    with pytest.raises(Dead):
        tiny_run(tmp_path)
    monkeypatch.undo()
    tiny_run(tmp_path, resume=True)
    first, second = (CheckpointStore(run / "checkpoints", 2).load("best") for run in (whole, tmp_path))
    assert first.path.name == second.path.name


def test_without_a_best_pointer_best_is_refused(finished, tmp_path, capsys):
    finished.copy(tmp_path)
    (tmp_path / "checkpoints" / "best.json").unlink()
    done = call_cli(capsys, "evaluate", tmp_path, "--best", code=4)
    assert "no best checkpoint is recorded" in done.stderr


def test_set_aside_between_two_renames_a_checkpoint_is_still_found(finished, tmp_path):
    finished.copy(tmp_path)
    for path in checkpoints(tmp_path):
        path.rename(path.with_name(f"{path.name}.old-123"))
    assert find_checkpoint(tmp_path).step == 120
    assert tiny_run(tmp_path, resume=True).step == 120


def test_a_run_stopped_before_its_first_checkpoint_starts(tmp_path):
    class Stop(Callback):
        def on_log(self, step, rows):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        tiny_run(tmp_path, callbacks=[Stop()])
    assert not checkpoints(tmp_path)
    manager, checkpoint = ExperimentManager.resuming(tmp_path)
    assert checkpoint is None
    assert manager.train(resume=True).step == 120


def test_resume_auto_needs_a_place(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "c.yaml").write_text(yaml.safe_dump(run_values()))
    done = call_cli(capsys, "train", tmp_path / "c.yaml", "--resume", "auto", code=2)
    assert [entry.name for entry in tmp_path.iterdir()] == ["c.yaml"]
    assert "--resume auto needs a --run-dir" in done.stderr


@pytest.mark.parametrize("name", ["terminals", "timeouts", "dones"])
@pytest.mark.parametrize("bad", [np.nan, 0.5, -7.0])
def test_flags_that_are_neither_true_nor_false_are_refused(tmp_path, name, bad):
    arrays = small_arrays()
    del arrays["next_observations"]
    if name == "dones":
        arrays["dones"] = arrays.pop("terminals")
    arrays[name] = arrays[name].astype(np.float32)
    arrays[name][3] = bad
    np.savez(tmp_path / "bad.npz", **arrays)
    with pytest.raises(DatasetError, match=f"`{name}` holds values other than 0 and 1"):
        load_dataset(tmp_path / "bad.npz")


def test_a_field_under_two_names_is_refused(tmp_path):
    arrays = small_arrays()
    np.savez(tmp_path / "twice.npz", **arrays, obs=arrays["observations"])
    with pytest.raises(DatasetError, match="holds `observations` twice"):
        load_dataset(tmp_path / "twice.npz")


class Rude(gymnasium.Env):
    """Changes what it is given, checks its bounds, and misbehaves on request."""

    observation_space = gymnasium.spaces.Box(-9.0, 9.0, (3,), np.float64)
    action_space = gymnasium.spaces.Box(-0.1, 0.1, (1,), np.float64)
    fault = None

    def reset(self, *, seed=None, options=None):
        super().reset(seed=seed)
        self.state = self.np_random.normal(size=3)
        if Rude.fault == "reset":
            raise RuntimeError("no\nway")
        return np.full(3, np.nan) if Rude.fault == "nan" else self.state[:2] if Rude.fault == "shape" else self.state, {}

    def step(self, action):
        assert self.action_space.contains(action)
        self.state = 0.9 * self.state + action
        action *= 0.5
        return self.state, -float(np.square(self.state).sum()), False, False, {}


@pytest.fixture
def rude(monkeypatch):
    gymnasium.register("Rude-v0", entry_point=Rude, max_episode_steps=30)
    monkeypatch.setattr(Rude, "fault", None)
    yield "Rude-v0"
    del gymnasium.registry["Rude-v0"]


def test_an_environment_cannot_change_what_is_recorded(rude):
    data = make_dataset(rude, DatasetConfig(kind="random", size=60))
    assert np.abs(data.actions).max() > 0.09
    whole = SAC(rude, **FAST).learn(90)
    again = SAC(rude, **FAST).learn(50).learn(90)
    assert np.array_equal(whole.predict([1.0, 0.0, 0.0])[0], again.predict([1.0, 0.0, 0.0])[0])


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ("reset", r"failed in reset\(seed=\d+\): RuntimeError: no \(test_hostile.py:\d+\)$"),
        ("nan", "NaN or inf as observation"),
        ("shape", r"\(2,\)"),
    ],
)
def test_a_fault_at_reset_is_one_clear_line(rude, fault, words):
    Rude.fault = fault
    with pytest.raises(ConfigError, match=words):
        SAC(rude, **FAST).learn(40)
    with pytest.raises(ConfigError, match=words):
        make_dataset(rude, DatasetConfig(kind="random", size=60))


def test_numbers_of_numpy_are_numbers():
    settings = {"hidden_sizes": np.array([8, 8]), "batch_size": np.int64(8), "alpha": np.float32(0.5)}
    model = SAC("Pendulum-v1", seeds=np.arange(2), **{**FAST, **settings})
    assert model.config.algo_kwargs.hidden_sizes == (8, 8)
    model.learn(np.int64(20))
    assert len(model.evaluate(np.int64(1))["members"]) == 2


def test_odd_values_are_refused_by_name(tmp_path):
    with pytest.raises(ConfigError, match="`seeds` = 3 is not legal"):
        SAC("Pendulum-v1", seeds=3, **FAST)
    with pytest.raises(ConfigError) as caught:
        SAC("Pendulum-v1", **{**FAST, "hidden_sizes": [0]})
    assert str(caught.value).count("hidden_sizes") == 1
    model = SAC("Pendulum-v1", **FAST)
    for callback in (5, [5], Callback):
        with pytest.raises(ConfigError, match="must be a Callback or a list of them"):
            model.learn(20, callback=callback)
    model.learn(20)
    for member in (False, 0.0, "0", 1):
        with pytest.raises(ConfigError, match="member"):
            model.predict([1.0, 0.0, 0.0], member=member)
    for episodes in (True, 0, 1.5, "2"):
        with pytest.raises(ConfigError, match="episodes = "):
            model.evaluate(episodes)
    with pytest.raises(ConfigError, match="`algo_kwargs.alpha` = 1000"):
        SAC("Pendulum-v1", **{**FAST, "alpha": 10**400})
    for device in ("mps", "meta", "cpu:7", "cuda:x"):
        with pytest.raises(ConfigError, match="device"):
            SAC.load(model.save(tmp_path / device.replace(":", "-")), device=device)


def test_a_callback_may_answer_with_an_array(tmp_path):
    class Stop(Callback):
        def on_evaluation(self, step, evaluation, active):
            return np.array([0, 0])

    result = tiny_run(tmp_path, seeds=[0, 1], callbacks=[Stop()])
    assert [member.status for member in result.members] == ["stopped", "training"]


def test_a_diverged_member_cannot_go_on_alone(finished, tmp_path):
    checkpoint = load_checkpoint(finished("iql", [0, 7]).checkpoint)
    checkpoint.state["members"][1]["status"] = "diverged"
    path = write_checkpoint(tmp_path / "sick", checkpoint.tensors, checkpoint.state)
    with pytest.raises(ConfigError, match="member 1 of .* diverged"):
        ExperimentManager.resuming(path, tmp_path / "new", member=1)


@pytest.mark.parametrize(
    "change",
    [
        {"replay": 5},
        {"replay": [{"first": 0}]},
        {"replay": []},
        {"replay_ready": []},
        {"episodes": [{"nonsense": 1}]},
        {"episodes": []},
    ],
    ids=str,
)
def test_a_replay_that_is_not_described_is_refused(finished, tmp_path, change):
    checkpoint = load_checkpoint(finished("sac").checkpoint)
    checkpoint.state.update(change)
    config = make_config(run_values("sac"))
    with pytest.raises(CheckpointError):
        ExperimentManager(config, tmp_path / "new").train(resume=True, checkpoint=checkpoint)


def test_rows_that_are_missing_are_missed(tmp_path):
    result = tiny_run(tmp_path / "run", "sac", checkpoint_interval=40)
    checkpoint = load_checkpoint(result.checkpoint)
    checkpoint.state["replay"] = checkpoint.state["replay"][:-1]
    config = make_config(run_values("sac", checkpoint_interval=40))
    with pytest.raises(CheckpointError, match=r"its replay is \(1, 80, 10\), \(1, 120, 10\) is needed"):
        ExperimentManager(config, tmp_path / "new").train(resume=True, checkpoint=checkpoint)


def test_log_rows_have_the_metrics_of_the_last_update(tmp_path):
    rare = {"log_interval": 35, "algo_kwargs": {"train_frequency": 50, "gradient_updates_per_step": 3, "hidden_sizes": [8]}}
    tiny_run(tmp_path / "a", "sac", **rare)
    rows = [row for row in metric_rows(tmp_path / "a") if "eval/return_mean" not in row]
    assert [(row["env_step"], "train/critic_loss" in row) for row in rows] == [
        (35, False),
        (70, True),
        (105, True),
        (120, False),
    ]
    tiny_run(tmp_path / "b", "sac", **rare)
    assert_same_run(tmp_path / "a", tmp_path / "b")
