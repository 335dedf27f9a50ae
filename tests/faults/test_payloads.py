"""Files that would run code if they were trusted: every command refuses them, and the code does not run."""

import io
import json
import os
import pickle
import shutil
import sys
import zipfile

import h5py
import numpy as np
import pytest
import torch
import yaml

from rl_training.cli import run
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint, write_checkpoint
from rl_training.storage import canonical_json, write_files
from tests.helpers import run_values

REFUSED = (2, 3, 4)


class Bomb:
    """Makes a file when it is unpickled."""

    def __init__(self, canary):
        self.canary = canary

    def __reduce__(self):
        return os.system, (f"touch {self.canary}",)


class Payloads:
    """Each method writes one payload and returns the command that reads it."""

    def __init__(self, folder, checkpoint):
        self.folder, self.canary = folder, folder / "canary"
        self.bomb = pickle.dumps(Bomb(self.canary))
        self.checkpoint = shutil.copytree(checkpoint, folder / "step-000000120")

    def pickle_as_data(self):
        (self.folder / "log.pkl").write_bytes(self.bomb)
        return "data", "inspect", self.folder / "log.pkl"

    def torch_file_as_data(self):
        torch.save(Bomb(self.canary), self.folder / "log.pt")
        return "train", "iql", "--dataset", self.folder / "log.pt"

    def npz_of_objects(self):
        np.savez(self.folder / "log.npz", observations=np.array([Bomb(self.canary)], dtype=object))
        return "train", "iql", "--dataset", self.folder / "log.npz"

    def npy_of_objects(self):
        np.save(self.folder / "log.npy", np.array([Bomb(self.canary)], dtype=object))
        return "data", "inspect", self.folder / "log.npy"

    def hdf5_with_pickles(self):
        with h5py.File(self.folder / "log.h5", "w") as file:
            file["observations"] = np.void(self.bomb)
            file.attrs["actions"] = np.void(self.bomb)
        return "data", "doctor", self.folder / "log.h5"

    def config_that_calls(self):
        tag = f"algo: !!python/object/apply:os.system ['touch {self.canary}']\n"
        (self.folder / "config.yaml").write_text(tag)
        return "train", self.folder / "config.yaml"

    def config_that_imports(self):
        values = {**run_values(), "env_id": "payload_module:Pendulum-v1"}
        (self.folder / "config.yaml").write_text(yaml.safe_dump(values))
        return "train", self.folder / "config.yaml", "--run-dir", self.folder / "run"

    def pickle_under_right_hashes(self):
        state = (self.checkpoint / "state.json").read_bytes()
        shutil.rmtree(self.checkpoint)
        self.checkpoint.mkdir()
        write_files(self.checkpoint, {"state.safetensors": self.bomb, "state.json": state}, 1)
        return "predict", self.checkpoint, "--obs", "[1, 0, 0]"

    def _edited(self, change):
        loaded = load_checkpoint(self.checkpoint)
        state = json.loads(json.dumps(loaded.state))
        change(state)
        shutil.rmtree(self.checkpoint)
        write_checkpoint(self.checkpoint, loaded.tensors, state)

    def checkpoint_that_imports(self):
        self._edited(lambda state: state["config"].update(env_id="payload_module:Pendulum-v1"))
        return "evaluate", self.checkpoint, "--episodes", "1"

    def checkpoint_that_names_a_function(self):
        self._edited(lambda state: (state.update(algo="os.system"), state["config"].update(algo="os.system")))
        return "predict", self.checkpoint, "--obs", "[1, 0, 0]"

    def run_record_and_config(self):
        (self.folder / "run" / "checkpoints").mkdir(parents=True)
        (self.folder / "run" / "run.json").write_bytes(self.bomb)
        (self.folder / "run" / "config.yaml").write_text(f"!!python/object/new:os.system ['touch {self.canary}']\n")
        return "resume", self.folder / "run"

    def zipped_model(self):
        with zipfile.ZipFile(self.folder / "model.zip", "w") as archive:
            archive.writestr("data", canonical_json({"policy_class": {":serialized:": self.bomb.hex()}}))
            buffer = io.BytesIO()
            torch.save(Bomb(self.canary), buffer)
            archive.writestr("policy.pth", buffer.getvalue())
        return "predict", self.folder / "model.zip", "--obs", "[1, 0, 0]"


NAMES = [name for name in vars(Payloads) if not name.startswith("_")]


@pytest.mark.faults
@pytest.mark.parametrize("name", NAMES)
def test_a_payload_does_not_run(finished, fault_count, tmp_path, monkeypatch, capsys, name):
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)  # where a module of that name would be found
    payloads = Payloads(tmp_path, finished().checkpoint)
    (tmp_path / "payload_module.py").write_text(f"open({str(payloads.canary)!r}, 'w').close()\n")
    code = run([str(word) for word in getattr(payloads, name)()])
    said = capsys.readouterr().err
    ran = payloads.canary.exists() or "payload_module" in sys.modules
    fault_count("payloads", int(not ran and code in REFUSED and "Traceback" not in said), 1)
