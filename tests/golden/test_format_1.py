"""Files of format 1, written by the first version: every later version reads them, to the same policies and the same data."""

import json
from pathlib import Path

import numpy as np
import pytest

import rl_training

HOME = Path(__file__).parent / "format_1"
EXPECTED = json.loads((HOME / "expected.json").read_text())
PROBE = np.array(EXPECTED["probe"], dtype=np.float32)


def test_a_dataset_directory_is_read():
    dataset = rl_training.load_dataset(HOME / "dataset")
    assert len(dataset) == EXPECTED["rows"]
    assert dataset.fingerprint == EXPECTED["fingerprint"]
    assert set(dataset.fields()) >= {"next_actions", "returns_to_go", "timeouts"}


def test_the_checkpoint_of_a_sweep_predicts_and_goes_on(tmp_path):
    model = rl_training.IQL.load(HOME / "iql", device="cpu", run_dir=tmp_path / "run")
    assert model.num_timesteps == EXPECTED["iql_step"]
    for member, actions in enumerate(EXPECTED["iql"]):
        np.testing.assert_allclose(model.predict(PROBE, member=member)[0], actions, rtol=1e-5, atol=1e-6)
    model.learn(40)
    for member, actions in enumerate(EXPECTED["iql_at_40"]):
        np.testing.assert_allclose(model.predict(PROBE, member=member)[0], actions, rtol=1e-3, atol=1e-3)


def test_the_checkpoint_of_an_online_run_predicts_and_goes_on(tmp_path):
    model = rl_training.RLPD.load(HOME / "rlpd", device="cpu", run_dir=tmp_path / "run")
    assert model.num_timesteps == EXPECTED["rlpd_env_step"]
    np.testing.assert_allclose(model.predict(PROBE)[0], EXPECTED["rlpd"], rtol=1e-5, atol=1e-6)
    model.learn(50)
    np.testing.assert_allclose(model.predict(PROBE)[0], EXPECTED["rlpd_at_50"], rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("name", ["iql", "rlpd"])
def test_a_policy_is_read_from_them(name):
    policy = rl_training.Policy.load(HOME / name, device="cpu")
    assert policy.predict(PROBE).shape == (2, 1)
