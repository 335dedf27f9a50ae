"""The packaged recipes of benchmarks: each names its source, leaves nothing to a default, and trains on rows of its shape."""

import re

import gymnasium
import numpy as np
import pytest

from rl_training.config.loading import load_config, make_config, packaged_configs
from rl_training.experiment.manager import ExperimentManager
from rl_training.registry import get_spec
from tests.helpers import ROOT, call_cli, generator, metric_rows, small_arrays, small_dataset

RECIPES = {name: text for name, text in packaged_configs().items() if "pendulum" not in name}
SHAPES = {"locomotion": (11, 3), "mujoco": (11, 3), "antmaze": (29, 8), "adroit": (45, 24)}  # observations, actions
SIZES = ("hidden_sizes", "actor_hidden_sizes", "critic_hidden_sizes")


def shape_of(name):
    (shape,) = [shape for task, shape in SHAPES.items() if task in name]
    return shape


@pytest.fixture(scope="module", autouse=True)
def environments():
    """An environment of each shape: observations without meaning, episodes of four steps."""

    class Noise(gymnasium.Env):
        def __init__(self, observations, actions):
            self.observation_space = gymnasium.spaces.Box(-np.inf, np.inf, (observations,), np.float32)
            self.action_space = gymnasium.spaces.Box(-1.0, 1.0, (actions,), np.float32)

        def _observation(self):
            return self.draw.normal(size=self.observation_space.shape).astype(np.float32)

        def reset(self, *, seed=None, options=None):
            del options
            self.draw = generator(seed)
            return self._observation(), {}

        def step(self, action):
            return self._observation(), float(action[0]), False, False, {}

    for observations, actions in set(SHAPES.values()):
        kwargs = {"observations": observations, "actions": actions}
        gymnasium.register(env_id(observations, actions), entry_point=Noise, max_episode_steps=4, kwargs=kwargs)
    yield
    for shape in set(SHAPES.values()):
        del gymnasium.registry[env_id(*shape)]


def env_id(observations, actions):
    return f"Noise{observations}x{actions}-v0"


def small_config(name):
    """The recipe for ten steps: narrow layers, as many as it has, small batches, and the environment of its shape."""
    values = load_config(name).record()
    kwargs = values["algo_kwargs"]
    kwargs |= {key: [8] * len(kwargs[key]) for key in SIZES if kwargs.get(key)}
    kwargs |= {"batch_size": 32} | ({"learning_starts": 8} if "learning_starts" in kwargs else {})
    values |= {"device": "cpu", "total_timesteps": 10, "eval_interval": 10, "eval_episodes": 1, "log_interval": 10}
    if values["env_id"] is not None:
        values["env_id"] = env_id(*shape_of(name))
    if values["finetune"] is not None:
        values["finetune"] |= {"env_steps": 10, "learning_starts": min(8, values["finetune"]["learning_starts"])}
    return make_config(values)


@pytest.mark.parametrize("name", RECIPES)
def test_ten_steps(tmp_path, name):
    observations, actions = shape_of(name)
    config, spec = small_config(name), get_spec(name.split("/")[0])
    data = small_dataset(rows=200, observation_dim=observations, action_dim=actions) if spec.takes_data else None
    result = ExperimentManager(config, tmp_path / "run").train(dataset=data)
    block = config.algo_kwargs if spec.online else config.finetune
    rounds = 11 - max(block.learning_starts, 1) if block else 0  # from the first environment step that learns to the tenth
    assert result.env_step == (10 if block else None)
    assert result.step == (0 if spec.online else 10) + rounds * (block.gradient_updates_per_step if block else 0)
    losses = [value for row in metric_rows(tmp_path / "run") for key, value in row.items() if key.endswith("loss")]
    assert losses
    assert np.isfinite(losses).all()


@pytest.mark.parametrize("name", RECIPES)
def test_the_first_line_names_a_source_and_its_commit(name):
    assert re.match(r"# \S.{3,80}: .*\b[\w-]+/[\w-]+ @[0-9a-f]{7}, \S", RECIPES[name].splitlines()[0])


@pytest.mark.parametrize("name", RECIPES)
def test_nothing_is_left_to_the_data(name):
    """Publications state their transforms: what `auto` would fit is set, and no row is held out."""
    config = load_config(name)
    kwargs = config.algo_kwargs
    assert getattr(kwargs, "normalize_observations", False) != "auto"
    assert not kwargs.reward_transform.is_automatic
    assert not getattr(kwargs, "dataset", ())  # it is the user's
    if hasattr(kwargs, "validation") and config.env_id is None:
        assert kwargs.validation.fraction == 0.0
    assert config.algo != "td3_bc" or kwargs.alpha == 2.5


def test_configs_are_links_to_the_packaged_ones():
    for name in packaged_configs():
        link = ROOT / "configs" / f"{name}.yaml"
        assert link.is_symlink(), f"ln -s ../../src/rl_training/assets/configs/{name}.yaml {link}"
        assert link.resolve() == ROOT / "src" / "rl_training" / "assets" / "configs" / f"{name}.yaml"


def test_configs_of_a_paper_at_another_size_say_so():
    papers = [text for name, text in packaged_configs().items() if name.endswith("-paper")]
    assert papers
    assert all("at another size" in text.splitlines()[0] for text in papers)


def test_a_recipe_asks_for_data_before_anything_is_written(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    said = call_cli(capsys, "train", "iql/d4rl-locomotion", code=2).stderr
    command = "rl-training train iql/d4rl-locomotion --dataset logs/"
    assert said.startswith(f"error: iql/d4rl-locomotion needs data to learn from: {command}")
    assert not list(tmp_path.iterdir())


def test_a_recipe_takes_a_file(tmp_path, capsys):
    np.savez(tmp_path / "hopper.npz", **small_arrays(rows=200, observation_dim=11, action_dim=3))
    arguments = ["--dataset", tmp_path / "hopper.npz", "--total-timesteps", 3, "--run-dir", tmp_path / "run"]
    call_cli(capsys, "train", "bc/d4rl-locomotion", *arguments, "--set", "algo_kwargs.dataset.top=10%")
    assert load_config(str(tmp_path / "run" / "config.yaml")).algo_kwargs.dataset[0].top == 0.1
