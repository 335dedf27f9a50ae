"""Observations that nothing was learned from: what `predict` says of them, by the range that a checkpoint knows."""

import json
import shutil
import warnings
from pathlib import Path

import numpy as np
import pytest
import torch

from rl_training import IQL, Policy, TransitionDataset
from rl_training.api.inputs import Familiar
from rl_training.data.transforms import Transforms
from rl_training.errors import CheckpointError
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint, write_checkpoint
from tests.helpers import call_cli, small_arrays

OLD = Path(__file__).parents[1] / "golden" / "format_1" / "iql"
RANGE = "transforms/observation_range"
SMALL = {"hidden_sizes": [8, 8], "batch_size": 8, "eval_interval": 5, "checkpoint_interval": 5, "device": "cpu"}


def data():
    """T1 is 20 to 80 in every episode, T2 is -1 to 1, and p never changes."""
    arrays = small_arrays(rows=200)
    up = np.linspace(0.0, 1.0, 10, dtype=np.float32)[np.arange(200) % 10]
    arrays["observations"] = np.stack((20.0 + 60.0 * up, 1.0 - 2.0 * up, np.full(200, 5.0)), axis=1).astype(np.float32)
    names = {"observation_names": ["T1", "T2", "p"]}
    return TransitionDataset.from_dict(arrays, action_low=[-1, -1], action_high=[1, 1], **names)


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    folder = tmp_path_factory.mktemp("familiar")
    IQL(dataset=data(), run_dir=folder / "run", **SMALL).learn(5)
    return folder / "run"


def known(rows, transforms, seen=None):
    seen = None if seen is None else tuple(np.array(end, dtype=np.float32) for end in seen)
    return Familiar(transforms, seen).outside(np.array(rows, dtype=np.float32))


def scaled(mean, std):
    return Transforms(np.array(mean, dtype=np.float32), np.array(std, dtype=np.float32), 10.0)


def test_a_tenth_of_the_range_is_not_told():
    ends = ([20.0, -1.0], [80.0, 1.0])
    for row in ([86.0, 0.0], [14.0, -1.19], [50.0, 1.19]):
        assert known([row], Transforms.identity(2), ends) == {}
    found = known([[86.1, 0.0], [95.0, 0.0], [50.0, -1.3]], Transforms.identity(2), ends)
    assert found == {
        0: "95, and was 20 to 80 in the data that it learned from",  # the one that is farthest out
        1: "-1.3, and was -1 to 1 in the data that it learned from",
    }


def test_without_a_range_far_is_many_deviations():
    transforms = scaled([50.0], [10.0])
    assert known([[149.0]], transforms) == {}
    assert known([[151.0]], transforms) == {0: "151 is 10 standard deviations from the data (50 +- 10)"}
    assert known([[1e9]], Transforms.identity(1)) == {}  # nothing is known


def test_a_single_outlier_does_not_hide_what_is_far():
    ends = ([-9999.0], [80.0])
    assert known([[-500.0]], scaled([50.0], [10.0]), ends) == {0: "-500 is 55 standard deviations from the data (50 +- 10)"}


@pytest.mark.parametrize("std", [1.0, np.inf])
def test_a_column_that_never_changed_may_differ_by_rounding(std):
    mean = 850.0 if np.isinf(std) else 0.0
    transforms = scaled([mean], [std]) if np.isinf(std) else Transforms.identity(1)
    assert known([[850.05]], transforms, ([850.0], [850.0])) == {}
    (told,) = known([[851.0]], transforms, ([850.0], [850.0])).values()
    assert told.startswith("851, and was 850 ")


@pytest.mark.parametrize("normalize", [True, False])
def test_a_policy_knows_the_range_that_it_learned_from(normalize, tmp_path):
    model = IQL(dataset=data(), run_dir=tmp_path / "run", normalize_observations=normalize, **SMALL).learn(5)
    for policy in (model.policy, IQL.load(model.save(tmp_path / "saved")).policy):
        assert [end.tolist() for end in policy.recorded_range] == [[20.0, -1.0, 5.0], [80.0, 1.0, 5.0]]
        assert policy.unfamiliar([50.0, 0.0, 5.0]) == {}
        assert set(policy.unfamiliar([[50.0, 0.0, 5.0], [99.0, 0.0, 6.0]])) == {"T1", "p"}


def test_the_command_names_column_value_and_range(trained, capsys):
    done = call_cli(capsys, "predict", trained, "--obs", '{"T1": 95, "T2": 0, "p": 5}')
    assert done.stderr == (
        "warning: `T1` = 95, and was 20 to 80 in the data that it learned from; check the unit and the order\n"
    )
    assert isinstance(json.loads(done.stdout), list)  # the actions have no names
    assert call_cli(capsys, "predict", trained, "--obs", "[82, 0, 5]").stderr == ""


def test_python_warns_once_of_each_column(trained):
    model = IQL.load(trained)
    with pytest.warns(UserWarning, match="`T1` = 95, and was 20 to 80") as caught:
        model.predict([95.0, 0.0, 5.0])
    assert caught[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model.predict([96.0, 0.0, 5.0])
        model.predict([50.0, 0.0, 5.0])
    with pytest.warns(UserWarning, match="`T2` = 3, and was -1 to 1") as caught:
        model.predict([96.0, 3.0, 5.0])
    assert len(caught) == 1


def test_who_learns_in_an_environment_leaves_the_recorded_range(trained):
    checkpoint = load_checkpoint(next((trained / "checkpoints").glob("step-*")))
    policy = Policy.from_checkpoint(checkpoint)
    for steps, known_range in ((0, True), (1, False)):
        checkpoint.state["env_step"] = steps
        policy = Policy.from_checkpoint(checkpoint)
        assert (policy.recorded_range is not None) == known_range
        assert ("T1" in policy.unfamiliar([95.0, 0.0, 5.0])) == known_range
        assert "T1" in policy.unfamiliar([500.0, 0.0, 5.0])  # 22 deviations


def test_a_resumed_run_keeps_its_range(trained, tmp_path):
    shutil.copytree(trained, tmp_path / "run")
    again = IQL.load(tmp_path / "run", dataset=data()).learn(10)
    assert torch.equal(again.policy.checkpoint.tensors[RANGE], torch.tensor([[20.0, -1.0, 5.0], [80.0, 1.0, 5.0]]))


def test_an_older_checkpoint_has_none():
    policy = Policy.load(OLD, device="cpu")
    assert policy.recorded_range is None
    assert RANGE not in policy.transforms.tensors()


@pytest.mark.parametrize(
    "ends", [[[1.0, 0.0, 0.0], [0.0, 1.0, 1.0]], [[0.0, 0.0], [1.0, 1.0]], [[0.0, np.nan, 0.0], [1.0, 1.0, 1.0]]], ids=str
)
def test_a_range_that_is_none_is_refused(trained, tmp_path, ends):
    loaded = load_checkpoint(next((trained / "checkpoints").glob("step-*")))
    path = write_checkpoint(tmp_path / "changed", {**loaded.tensors, RANGE: torch.tensor(ends)}, loaded.state)
    with pytest.raises(CheckpointError, match="`transforms/observation_range` must be finite torch.float32"):
        load_checkpoint(path)
