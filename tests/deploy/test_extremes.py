"""Numbers that plants send once a year, and batches of every size: the same rules in every format."""

from dataclasses import replace

import numpy as np
import pytest

from rl_training.data.transforms import Transforms
from rl_training.deploy.check import INSIDE, compare, probes
from rl_training.deploy.options import ExportOptions
from rl_training.deploy.program import Safety, program_of
from tests.deploy.test_formats import FORMATS, SPACES, TRANSFORMS, make_policy, plain_safety, runner

VALUES = np.float32([1e38, -1e38, 3.4e38, -3.4e38, 1e-40, -1e-45, 1e20, -1e10, 0.0, -0.0, 1e14, 5.0])
MODELS = {
    "relu": {},
    "gelu": {"activation": "gelu"},
    "silu": {"activation": "silu"},
    "norm": {"actor_layer_norm": True},
    "candidates": {"action_candidates": 3},
}
LIMITED = Safety(SPACES.action_low, SPACES.action_high, None, np.float32([0.1, np.inf, 1.0]))


def of_transforms(transforms, safety, algo="iql", **knobs):
    policy = make_policy(algo, **knobs)
    policy.transforms = transforms
    return policy, program_of(policy.learner.model, 1, SPACES, transforms, safety)


@pytest.mark.filterwarnings("error::RuntimeWarning")  # a controller's log must not fill with overflows
@pytest.mark.parametrize("normalised", [True, False])
@pytest.mark.parametrize("model", MODELS)
@pytest.mark.parametrize("name", FORMATS)
def test_huge_and_tiny_observations(name, model, normalised, tmp_path):
    transforms = TRANSFORMS if normalised else Transforms.identity(4)
    policy, program = of_transforms(transforms, LIMITED, "fql" if model == "candidates" else "iql", **MODELS[model])
    draw = np.random.Generator(np.random.Philox(5))
    rows = draw.choice(VALUES, size=(300, 4))
    last = draw.uniform(SPACES.action_low, SPACES.action_high, (300, 3)).astype(np.float32)
    legal = (np.abs(rows) <= np.float32(1e38 if normalised else 1e15)).all(axis=1)
    assert 10 < legal.sum() < 290
    actions = np.full((300, 3), np.nan, dtype=np.float32)
    with np.errstate(over="ignore"):
        actions[legal] = policy.predict(rows[legal], member=1)
    got, _ = runner(name, program, tmp_path)(rows, last)
    with np.errstate(invalid="ignore"):
        wanted = program.safety.applied(actions, rows, last)
    np.testing.assert_allclose(got, wanted, atol=4e-4)
    np.testing.assert_array_equal(got[~legal], last[~legal])


@pytest.mark.parametrize("model", ["relu", "candidates"])
@pytest.mark.parametrize("name", FORMATS)
def test_a_batch_of_any_size(name, model, tmp_path):
    safety = replace(LIMITED, seen=(TRANSFORMS.observation_mean, TRANSFORMS.observation_mean))
    _, program = of_transforms(TRANSFORMS, safety, "fql" if model == "candidates" else "iql", **MODELS[model])
    run, (rows, last) = runner(name, program, tmp_path), probes(program)
    whole, outside = run(rows[:1000], last[:1000])
    for size in (0, 1, 7):
        got, counted = run(rows[:size], last[:size])
        assert got.shape == (size, 3)
        assert counted.shape == (size,)
        np.testing.assert_allclose(got, whole[:size], atol=4e-4)
        np.testing.assert_array_equal(counted, outside[:size])


@pytest.mark.parametrize("name", FORMATS)
def test_an_infinite_last_action_is_not_known(name, tmp_path):
    _, program = of_transforms(TRANSFORMS, LIMITED)
    rows = np.float32([[np.nan, 0.5, 7, 0], [300, 0.5, 7, 0]])
    last = np.float32([[np.inf, 5, -np.inf]] * 2)
    got, _ = runner(name, program, tmp_path)(rows, last)
    assert np.isnan(got[0]).tolist() == [True, False, True]  # never full power because a sensor failed
    free, _ = runner(name, program, tmp_path)(rows, np.full((2, 3), np.nan, dtype=np.float32))
    np.testing.assert_array_equal(got[1], free[1])


def test_the_check_looks_at_the_data_and_beyond():
    _, program = of_transforms(Transforms.identity(4), plain_safety())
    seen = np.float32([280, 0, 7, -1e6]), np.float32([320, 1, 7, 1e6])
    rows, _ = probes(program, seen)
    inside = (rows >= seen[0]) & (rows <= seen[1])
    assert inside[:INSIDE].all()
    assert (np.ptp(rows[:INSIDE], axis=0)[[0, 1, 3]] > 0.99 * (seen[1] - seen[0])[[0, 1, 3]]).all()
    assert (~inside[INSIDE:]).mean(axis=0).min() > 0.8  # also the column that never changed
    assert np.nanmax(np.abs(rows[INSIDE:, 3]), initial=0, where=np.isfinite(rows[INSIDE:, 3])) > 5e6


def test_a_policy_that_reacts_to_a_constant_column_is_noticed(tmp_path):
    policy, program = of_transforms(TRANSFORMS, plain_safety())
    wrong = runner("numpy", replace(program, std=np.float32([12.0, 0.1, 1.0, 1e-3])), tmp_path)
    with pytest.raises(Exception, match="where the policy gives"):
        compare(program, wrong, lambda rows: policy.predict(rows, member=1), None)


def test_a_range_may_be_written_as_it_is_shown():
    low, high = np.float32([0.1, -12.3]), np.float32([0.7, 12.1])
    spaces = replace(SPACES, action_dim=2, action_low=low, action_high=high, action_names=("a", "b"))
    found = ExportOptions.of({"ranges": ["a=0.1:0.7", "b=-12.3:12.1"]}).safety(spaces, None)
    np.testing.assert_array_equal((found.low, found.high), (low, high))
