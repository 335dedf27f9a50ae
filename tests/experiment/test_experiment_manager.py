import fcntl
import json
import shutil

import pytest
import yaml

from rl_training.config.loading import make_config
from rl_training.errors import CheckpointError, ConfigError, DatasetError, RunBusyError
from rl_training.experiment import ExperimentManager
from rl_training.experiment.manager import default_run_dir
from rl_training.experiment.registry import REGISTRY, get_spec
from rl_training.runtime.checkpoints.lock import RunLock
from tests.helpers import assert_same_run, run_values, tiny_run


def test_the_run_directory_is_complete_and_reproduces_itself(finished, tmp_path):
    first = finished().run_dir
    found = {path.name for path in first.iterdir()}
    assert found == {"config.yaml", "run.json", "metrics.jsonl", "timings.jsonl", "checkpoints", "run.lock"}
    config = make_config(yaml.safe_load((first / "config.yaml").read_text()))
    ExperimentManager(config, tmp_path).train()
    assert_same_run(first, tmp_path)
    record = json.loads((first / "run.json").read_text())
    assert record["status"] == "finished"
    assert record["phases"] == [{"from_env_step": None, "from_step": 0, "name": "offline"}]
    assert len(record["dataset"]["fingerprint"]) == 64
    assert record["dataset"]["action_bounds"] == {"action 0": [-2.0, 2.0]}


def test_a_used_directory_is_refused_with_the_difference(finished, tmp_path):
    finished.copy(tmp_path)
    with pytest.raises(ConfigError, match=r"already holds a run.*total_timesteps 120 there, 130 here"):
        tiny_run(tmp_path, total_timesteps=130)
    assert tiny_run(tmp_path, total_timesteps=130, overwrite=True).step == 130
    assert (
        not (tmp_path / "checkpoints" / "step-000000120").exists() or (tmp_path / "checkpoints" / "step-000000130").exists()
    )


def test_overwriting_equals_a_fresh_run(finished, tmp_path):
    tiny_run(tmp_path, total_timesteps=130)
    tiny_run(tmp_path, overwrite=True)
    assert_same_run(finished().run_dir, tmp_path)


def test_a_failed_run_says_why(tmp_path):
    with pytest.raises(DatasetError):
        tiny_run(tmp_path, algo_kwargs={"dataset": {"path": str(tmp_path / "absent.npz")}})
    record = json.loads((tmp_path / "run.json").read_text())
    assert record["status"] == "DatasetError"
    assert "absent.npz" in record["message"]


def test_open_finds_the_config(finished):
    result = finished()
    for path in (result.run_dir, result.checkpoint):
        assert ExperimentManager.open(path).run_dir == result.run_dir
    with pytest.raises(CheckpointError, match="is not a run directory"):
        ExperimentManager.open(result.run_dir / "checkpoints")


def test_default_directories_are_unique():
    config = make_config(run_values())
    paths = {default_run_dir(config) for _ in range(100)}
    assert len(paths) == 100
    assert all(path.parts[:3] == ("runs", "iql", "Pendulum-v1") for path in paths)
    assert default_run_dir(make_config(run_values(run_name="mine"))).name == "mine"


def test_the_registry_is_a_table_of_real_things():
    for algo, spec in REGISTRY.items():
        assert spec.id == algo
        assert callable(spec.train())
        assert spec.learner.__name__ == spec.name
        assert set(spec.config.model_fields) >= {
            *spec.learner.knobs_type.model_fields,
            *spec.model_type.knobs_type.model_fields,
        }
    with pytest.raises(ConfigError, match="unknown algorithm `iqll`. Did you mean `iql`"):
        get_spec("iqll")


def test_a_lock_that_a_failed_start_removes_meanwhile_is_taken_anew(tmp_path, monkeypatch):
    lock, flock = RunLock(tmp_path / "run"), fcntl.flock

    def removed_first(handle, operation):
        monkeypatch.setattr(fcntl, "flock", flock)
        shutil.rmtree(tmp_path / "run")
        flock(handle, operation)

    monkeypatch.setattr(fcntl, "flock", removed_first)
    with lock, pytest.raises(RunBusyError), RunLock(tmp_path / "run"):
        pass
