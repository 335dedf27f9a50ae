"""Files of format 1, written by the first version: every later version reads them, to the same policies and the same data."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest

import rl_training
from rl_training.data.store.directory import KIND
from rl_training.integrity.files import check_files
from rl_training.storage import CHECKPOINT, MANIFEST, read_manifest, write_manifest
from tests.helpers import call_cli

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


@pytest.mark.parametrize("name", ["iql", "rlpd"])
def test_they_are_whole(name):
    assert check_files(HOME / name).whole


def newer(source, target, kind):
    """A copy whose manifest says format 2, with right hashes."""
    shutil.copytree(source, target)
    manifest = read_manifest(target, kind, 1)
    (target / MANIFEST).unlink()
    write_manifest(target, {**manifest, "format": 2})
    return target


def test_a_newer_checkpoint_is_refused_as_such(tmp_path, capsys):
    path = newer(HOME / "iql", tmp_path / "iql", CHECKPOINT)
    for command in (
        ("predict", path, "--obs", "[1, 0, 0]"),
        ("resume", path, "--run-dir", tmp_path / "run"),
        ("verify", path),
    ):
        done = call_cli(capsys, *command, code=4)
        assert "format 2, not 'rl_training checkpoint', format 1; a newer rl_training wrote it" in done.stderr + done.stdout
    assert not (tmp_path / "run").exists()


def test_a_newer_dataset_is_refused_as_such(tmp_path, capsys):
    path = newer(HOME / "dataset", tmp_path / "dataset", KIND)
    done = call_cli(capsys, "train", "iql", "--dataset", path, "--run-dir", tmp_path / "run", code=3)
    assert "format 2, not 'rl_training dataset', format 1; a newer rl_training wrote it" in done.stderr
