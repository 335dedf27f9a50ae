"""Every knob of every algorithm at both ends of its range is trained with; beyond them it is refused by name."""

import contextlib
import math
from typing import Literal, get_args, get_origin

import gymnasium
import numpy as np
import pytest
import torch

from rl_training.config.base import LARGEST, SMALLEST
from rl_training.config.loading import make_config
from rl_training.data.spaces import Spaces
from rl_training.errors import ConfigError, DatasetError, DivergedError
from rl_training.registry import REGISTRY
from rl_training.runtime.build_learner import build_learner
from tests.helpers import run_values, small_batch, small_dataset, tiny_run

BEYOND = [1e39, -1e39, 1e308, 1e-300, -1e-300]
SPACES = Spaces(3, 2, -np.ones(2, dtype=np.float32), np.ones(2, dtype=np.float32))
LARGE_NETWORKS = {"hidden_sizes", "actor_hidden_sizes", "critic_hidden_sizes", "batch_size", "buffer_capacity", "dataset"}
MOST = {"num_critics": 40, "num_cql_samples": 40, "action_candidates": 40, "flow_steps": 40}  # where more only takes longer


def options_of(field):
    """The types that a field takes."""
    found, stack = [], [field.annotation]
    while stack:
        one = stack.pop()
        if get_origin(one) is Literal:
            found += get_args(one)
        elif get_args(one) and get_origin(one) is not tuple:
            stack += get_args(one)
        else:
            found.append(one)
    return found


def bounds(field):
    """The least and the largest legal number of a field, where it has any; None elsewhere."""
    low = high = None
    whole = int in options_of(field)
    for rule in [
        *field.metadata,
        *(extra for one in get_args(field.annotation) for extra in getattr(one, "__metadata__", ())),
    ]:
        rules = [rule, *getattr(rule, "metadata", ())]
        for one in rules:
            low = getattr(one, "ge", low) if getattr(one, "ge", None) is not None else low
            high = getattr(one, "le", high) if getattr(one, "le", None) is not None else high
            if getattr(one, "gt", None) is not None:
                low = one.gt + 1 if whole else one.gt or SMALLEST
            if getattr(one, "lt", None) is not None:
                high = one.lt - 1 if whole else math.nextafter(one.lt, -math.inf)
    return low, high


def ends(name, field):
    """The values of a knob to try."""
    kinds, (low, high) = options_of(field), bounds(field)
    values = [kind for kind in kinds if isinstance(kind, str | int) and not isinstance(kind, type)]
    if bool in kinds:
        values += [True, False]
    if type(None) in kinds:
        values.append(None)
    if float in kinds:
        least = low if low is not None else 0.0 if "auto" in kinds else -LARGEST
        values += [least, LARGEST if high is None else high]
    elif int in kinds:
        values += [low if low is not None else 0, min(high or 10**6, MOST.get(name, 10**6))]
    if name == "log_std_range":
        values += [(-LARGEST, LARGEST), (-SMALLEST, SMALLEST), (LARGEST / 2, LARGEST)]
    return values


def walk(algo):
    """Every knob of an algorithm that shapes no more memory than a test has, with each of its ends."""
    for name, field in REGISTRY[algo].config.model_fields.items():
        if name not in LARGE_NETWORKS | {"reward", "validation", "max_dataset_bytes"}:
            yield from ((name, value) for value in ends(name, field))


def trained(algo, kwargs):
    """Take a few gradient steps; NaN and inf are for the loop to notice."""
    learner = build_learner(algo, SPACES, [0], torch.device("cpu"), kwargs)
    for number in range(2):
        learner.update(small_batch(batch=4, seed=number))
    learner.act(torch.zeros(4, 3), deterministic=False, step=0)


def config_of(algo, **knobs):
    values = run_values(algo)
    return make_config({**values, "algo_kwargs": {**values["algo_kwargs"], "hidden_sizes": [4], **knobs}})


@pytest.mark.faults
@pytest.mark.parametrize("algo", REGISTRY)
def test_both_ends_of_every_knob_are_trained_or_refused_by_name(algo):
    tried = 0
    for name, value in walk(algo):
        try:
            trained(algo, config_of(algo, **{name: value}).algo_kwargs)
        except Exception as error:
            if not isinstance(error, ConfigError) or name not in str(error):
                pytest.fail(f"{name} = {value}: {type(error).__name__}: {error}")
            continue
        tried += 1
    assert tried > 30


@pytest.mark.parametrize("algo", REGISTRY)
def test_numbers_that_single_precision_cannot_hold_are_refused_by_name(algo):
    fields = REGISTRY[algo].config.model_fields.items()
    numbers = [name for name, field in fields if float in options_of(field)]
    assert len(numbers) >= 4
    for name in numbers:
        for value in BEYOND:
            with pytest.raises(ConfigError, match=f"`algo_kwargs.{name}` = "):
                config_of(algo, **{name: value})


@pytest.mark.parametrize(
    ("algo", "name"),
    [
        *(("iql", "max_advantage_weight"), ("cql", "cql_clip_diff_min"), ("cql", "cql_clip_diff_max")),
        *(("td3_bc", "target_noise_clip"), ("xql", "max_value_diff_exp"), ("sac", "log_std_range")),
    ],
)
def test_the_largest_numbers_are_trained_with(algo, name):
    value = (-LARGEST, LARGEST) if name == "log_std_range" else -LARGEST if name.endswith("min") else LARGEST
    trained(algo, config_of(algo, **{name: value}).algo_kwargs)
    with pytest.raises(
        ConfigError, match=rf"`algo_kwargs.{name}` = .* is not legal: must be 0, or between 1.2e-38 and 3.4e\+38"
    ):
        config_of(algo, **{name: (0.0, 1e39) if name == "log_std_range" else 1e39})


REWARDS = [{"scale": SMALLEST}, {"scale": LARGEST}, {"scale": -LARGEST}, {"shift": LARGEST}, {"shift": -LARGEST}]
REWARDS += [{"clip": [-LARGEST, LARGEST]}, {"clip": [0.0, SMALLEST]}, {"scale": 0.0}, {"scale": LARGEST, "normalize": True}]


@pytest.mark.filterwarnings("ignore:overflow encountered")
@pytest.mark.parametrize("algo", ["iql", pytest.param("cal_ql", marks=pytest.mark.faults), "sac"])
def test_both_ends_of_the_rewards_transform_are_trained_or_told(tmp_path, algo):
    short = {"total_timesteps": 20, "eval_interval": 20, "eval_episodes": 1, "max_episode_steps": 5}
    for number, reward in enumerate(REWARDS):
        kwargs = {"hidden_sizes": [4], "batch_size": 4, "reward": reward}
        with contextlib.suppress(DivergedError, ConfigError, DatasetError):
            tiny_run(tmp_path / str(number), algo, **short, algo_kwargs=kwargs)


class Rich(gymnasium.Env):
    """Pays too much."""

    observation_space, action_space = gymnasium.spaces.Box(-1.0, 1.0, (3,)), gymnasium.spaces.Box(-1.0, 1.0, (2,))

    def reset(self, *, seed=None, options=None):
        return np.zeros(3, dtype=np.float32), {}

    def step(self, action):
        return np.zeros(3, dtype=np.float32), 1e308, False, False, {}


def test_rewards_that_cannot_be_added_up_are_one_line_after_saving(tmp_path):
    gymnasium.register("Rich-v0", entry_point=Rich, max_episode_steps=5)
    try:
        with pytest.raises(
            ConfigError, match=r"in the evaluation at step 40: a return in Rich-v0 overflows.*saved at step 40"
        ):
            tiny_run(tmp_path, dataset=small_dataset(), env_id="Rich-v0", algo_kwargs={"dataset": [], "batch_size": 8})
    finally:
        del gymnasium.registry["Rich-v0"]


@pytest.mark.parametrize("value", BEYOND)
@pytest.mark.parametrize("name", ["scale", "shift"])
def test_a_reward_transform_beyond_single_precision_is_refused(name, value):
    with pytest.raises(ConfigError, match=f"`algo_kwargs.reward.{name}` = "):
        config_of("iql", reward={name: value})
