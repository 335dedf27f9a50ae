"""The managed classes: construct, learn, evaluate, predict, save, load, go on."""

import pathlib

import numpy as np
import pytest
import torch

import rl_training
from rl_training import registry
from rl_training.errors import CheckpointError, ConfigError, StorageError
from rl_training.experiment.registry import get_spec
from rl_training.runtime.callbacks import Callback
from tests.helpers import contents, is_online, knobs_of, run_values, small_dataset

FAST = {
    "dataset": {"kind": "random", "size": 400},
    "hidden_sizes": [16, 16],
    "batch_size": 32,
    "eval_interval": 50,
    "eval_episodes": 2,
    "log_interval": 25,
}


def fast(algo):
    """Settings of a run of a second."""
    shared = {key: value for key, value in FAST.items() if key != "dataset" or get_spec(algo).takes_data}
    return {**shared, **knobs_of(algo), **({"learning_starts": 10} if is_online(algo) else {})}


def managed(algo):
    return getattr(rl_training, registry.get_spec(algo).name)


@pytest.mark.parametrize("algo", registry.names())
def test_learn_evaluate_predict_save_load(algo, tmp_path):
    model = managed(algo)("Pendulum-v1", seed=3, **fast(algo))
    assert model.learn(50) is model
    scores = model.evaluate(episodes=3)
    assert set(scores) >= {"return_mean", "return_std", "returns", "lengths"}
    assert len(scores["returns"]) == 3
    assert scores["lengths"] == [200] * 3
    assert model.evaluate(episodes=3) == scores
    assert model.evaluate(episodes=3, seed=8) != scores
    action, state = model.predict([1.0, 0.0, 0.0])
    assert state is None
    assert action.shape == (1,)
    batch, _ = model.predict(np.zeros((5, 3)))
    assert batch.shape == (5, 1)
    loaded = managed(algo).load(model.save(tmp_path / "policy"))
    assert np.array_equal(loaded.predict([1.0, 0.0, 0.0])[0], action)
    assert loaded.evaluate(episodes=3) == scores
    with pytest.raises(ConfigError, match="already exists"):
        model.save(tmp_path / "policy")


@pytest.mark.parametrize("algo", ["iql", "sac", "rlpd"])
def test_going_on_equals_never_having_stopped(algo, tmp_path):
    """One offline, one online, one with both; that each algorithm resumes exactly is in the contract."""
    whole = managed(algo)("Pendulum-v1", **fast(algo)).learn(100)
    first = managed(algo)("Pendulum-v1", **fast(algo)).learn(50)
    resumed = managed(algo).load(first.save(tmp_path / "half")).learn(100)
    again = first.learn(100)
    for other in (resumed, again):
        assert other.num_timesteps == 100
        mine, theirs = whole.policy.learner.state_dict(), other.policy.learner.state_dict()
        assert all(torch.equal(mine[name], theirs[name]) for name in mine)


@pytest.mark.parametrize("algo", ["bc", "iql", "td3_bc", "sac"])
def test_population_and_stochastic_actions(algo):
    """One algorithm with each kind of policy; the actions of every learner are in its contract."""
    model = managed(algo)("Pendulum-v1", seeds=[0, 1], **fast(algo)).learn(50)
    assert len(model.evaluate(2)["members"]) == 2
    draws = {float(model.predict([1.0, 0.0, 0.0], deterministic=False)[0][0]) for _ in range(5)}
    assert len(draws) > 1
    assert max(abs(value) for value in draws) <= 2.0
    assert model.predict([1.0, 0.0, 0.0], member=0)[0] != model.predict([1.0, 0.0, 0.0], member=1)[0]


def test_data_in_memory_without_an_environment(tmp_path):
    options = {key: value for key, value in FAST.items() if key != "dataset"}
    model = rl_training.IQL(dataset=small_dataset(), run_dir=tmp_path / "run", **options).learn(30)
    assert model.predict(np.zeros(3))[0].shape == (2,)
    with pytest.raises(ConfigError, match="nothing to evaluate in"):
        model.evaluate()
    more = rl_training.IQL.load(tmp_path / "run", dataset=small_dataset()).learn(60)
    assert more.num_timesteps == 60
    assert more.run_dir == tmp_path / "run"


def test_an_interrupted_learn_goes_on(tmp_path):
    class Interrupt(Callback):
        def on_log(self, step, rows):
            if step == 75:
                raise KeyboardInterrupt

    whole = rl_training.IQL("Pendulum-v1", **FAST).learn(100)
    model = rl_training.IQL("Pendulum-v1", **FAST)
    with pytest.raises(KeyboardInterrupt):
        model.learn(100, callback=Interrupt())
    assert model.num_timesteps == 50
    model.learn(100)
    mine, theirs = whole.policy.learner.state_dict(), model.policy.learner.state_dict()
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)


def test_load_takes_data_a_member_and_only_a_free_directory(tmp_path):
    model = rl_training.IQL("Pendulum-v1", seeds=[0, 1], run_dir=tmp_path / "run", **FAST).learn(50)
    with pytest.raises(ConfigError, match="dataset"):
        rl_training.IQL.load(tmp_path / "run", dataset="absent.npz").learn(60)
    second = rl_training.IQL.load(tmp_path / "run", member=1)
    assert second.config.member_seeds == (1,)
    assert np.allclose(second.predict([1.0, 0.0, 0.0])[0], model.predict([1.0, 0.0, 0.0], member=1)[0], atol=1e-6)
    assert second.learn(60).num_timesteps == 60
    path = model.save(tmp_path / "saved")
    other = rl_training.IQL("Pendulum-v1", run_dir=tmp_path / "other", **FAST).learn(50)
    before = (tmp_path / "other" / "metrics.jsonl").read_bytes()
    with pytest.raises(ConfigError, match="already holds a run"):
        rl_training.IQL.load(path, run_dir=tmp_path / "other").learn(60)
    assert (tmp_path / "other" / "metrics.jsonl").read_bytes() == before
    assert other.num_timesteps == 50


def test_callbacks_are_called():
    seen = []

    class Watch(Callback):
        def on_start(self, learner):
            seen.append(("start", learner.step))

        def on_log(self, step, rows):
            seen.append(("log", step))

        def on_evaluation(self, step, evaluation, active):
            seen.append(("evaluation", step))
            return active  # stop everybody

        def on_checkpoint(self, step, path):
            seen.append(("checkpoint", step))

    model = rl_training.IQL("Pendulum-v1", **FAST).learn(100, callback=Watch())
    assert seen == [("start", 0), ("log", 25), ("log", 50), ("evaluation", 50), ("checkpoint", 50)]
    assert model.num_timesteps == 50


def test_save_replaces_a_saved_checkpoint_and_nothing_else(tmp_path):
    model = rl_training.IQL("Pendulum-v1", run_dir=tmp_path / "run", **FAST).learn(50)
    path = model.save(tmp_path / "policy")
    early = model.predict([1.0, 0.0, 0.0])[0]
    model.learn(100)
    with pytest.raises(ConfigError, match="already exists; choose another path, or replace it with overwrite=True"):
        model.save(path)
    assert model.save(path, overwrite=True) == path
    later = rl_training.IQL.load(path)
    assert later.num_timesteps == 100
    assert later.predict([1.0, 0.0, 0.0])[0] != early
    assert later.save(path, overwrite=True) == path  # also over the checkpoint it was loaded from
    assert rl_training.IQL.load(path).num_timesteps == 100
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["policy", "run"]
    assert model.save(tmp_path / "new", overwrite=True) == tmp_path / "new"


def test_save_never_replaces_what_save_did_not_write(tmp_path):
    model = rl_training.IQL("Pendulum-v1", run_dir=tmp_path / "run", **FAST).learn(50)
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "thesis.tex").write_text("years of work")
    (tmp_path / "file").write_text("some text")
    with_notes = model.save(tmp_path / "with notes")
    (with_notes / "notes.txt").write_text("mine")
    damaged = model.save(tmp_path / "damaged")
    (damaged / "state.json").write_text("{}")
    (tmp_path / "link").symlink_to(model.save(tmp_path / "target"))
    inside = next((tmp_path / "run" / "checkpoints").glob("step-*"))
    before = contents(tmp_path)
    for path, words in [
        (tmp_path / "folder", "is not a checkpoint, so it is not replaced"),
        (tmp_path / "file", "is not a complete checkpoint"),
        (with_notes, "is not a complete checkpoint, so it is not replaced .*notes.txt"),
        (damaged, "is not a complete checkpoint, so it is not replaced .*state.json: is damaged"),
        (tmp_path / "link", "is not a complete checkpoint"),
        (inside, "belongs to the run .*, so it is not replaced"),
        (tmp_path / "run", "is not a checkpoint, so it is not replaced"),
    ]:
        with pytest.raises(ConfigError, match=words):
            model.save(path, overwrite=True)
    assert contents(tmp_path) == before


def test_a_save_that_fails_leaves_the_old_one(tmp_path, monkeypatch):
    model = rl_training.IQL("Pendulum-v1", **FAST).learn(50)
    path = model.save(tmp_path / "policy")
    before = contents(tmp_path)
    own = pathlib.Path.rename

    def full(self, target):
        if ".tmp-" in self.name:
            raise OSError(28, "No space left on device")
        return own(self, target)

    monkeypatch.setattr(pathlib.Path, "rename", full)
    with pytest.raises(StorageError, match="No space left"):
        model.save(path, overwrite=True)
    assert contents(tmp_path) == before


def test_faults_are_clear(tmp_path):
    with pytest.raises(ConfigError, match="IQL: unknown key `algo_kwargs.expectle`. Did you mean `expectile`"):
        rl_training.IQL("Pendulum-v1", expectle=0.7)
    with pytest.raises(ConfigError, match="call learn"):
        rl_training.IQL("Pendulum-v1").predict([0.0])
    with pytest.raises(ConfigError, match="there is no dataset"):
        rl_training.IQL("Pendulum-v1").learn(5)
    with pytest.raises(CheckpointError, match="there is no run or checkpoint here"):
        rl_training.IQL.load(tmp_path / "absent")
    with pytest.raises(ConfigError, match="`seed` = -1"):
        rl_training.IQL("Pendulum-v1", seed=-1)
    assert "steps=0" in repr(rl_training.IQL("Pendulum-v1"))


def test_python_and_yaml_resolve_alike():
    from rl_training.config.loading import make_config

    values = run_values(learning_rate_schedule="constant")
    kwargs = {**values["algo_kwargs"]}
    dataset = kwargs.pop("dataset")
    keys = ("device", "total_timesteps", "log_interval", "eval_interval", "eval_episodes", "checkpoint_interval")
    model = rl_training.IQL("Pendulum-v1", dataset=dataset, **kwargs, **{key: values[key] for key in keys})
    assert model.config.record() == make_config(values).record()


def test_online_algorithms_take_no_dataset():
    for algo in ("sac", "redq"):
        for dataset in (small_dataset(), {"kind": "random"}, "log.npz"):
            with pytest.raises(ConfigError, match="learns online, in the environment, and takes no dataset"):
                managed(algo)("Pendulum-v1", dataset=dataset)


def test_a_setting_that_is_passed_to_learn_is_told_where_it_belongs():
    told = r"eval_interval is set where the run is made: IQL\(\.\.\., eval_interval=500\)\.learn\(1500\)$"
    with pytest.raises(ConfigError, match=told):
        rl_training.IQL("Pendulum-v1", dataset={"kind": "random", "size": 50}).learn(1500, eval_interval=500)
    with pytest.raises(TypeError, match="unexpected keyword argument 'callbacks'"):
        rl_training.IQL("Pendulum-v1", dataset={"kind": "random", "size": 50}).learn(1500, callbacks=[])


def test_a_checkpoint_without_its_run_says_how_to_keep_one(tmp_path):
    data = {"kind": "random", "size": 500}
    rl_training.IQL("Pendulum-v1", dataset=data, hidden_sizes=[8], eval_episodes=1).learn(20).save(tmp_path / "saved")
    with pytest.raises(CheckpointError, match=r"is a checkpoint outside a run, .*IQL\(\.\.\., run_dir='runs/mine'\)$"):
        rl_training.write_report([tmp_path / "saved"], tmp_path / "page.html")
