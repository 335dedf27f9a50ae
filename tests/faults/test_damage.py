"""Flipped bits and missing ends in any file of a run and its data: `verify` names them, or the resumed run is the same."""

import shutil

import pytest

from rl_training.config.loading import make_config
from rl_training.data import save_dataset
from rl_training.errors import RLTrainingError
from rl_training.experiment.manager import ExperimentManager
from rl_training.integrity.comparing import differences
from rl_training.integrity.files import check_files
from tests.faults.kinds import values
from tests.faults.watchdog import watchdog
from tests.golden.runs import rows
from tests.helpers import Cut, CutAt, Notes, generator

FLIPS, TRUNCATIONS = 150, 30  # of each of the two runs
SHORT = {"total_timesteps": 160, "checkpoint_interval": 20, "log_interval": 10, "eval_interval": 60, "workers": 0}


class Patient:
    """A run that stopped in the middle, with data of its own: damaged again and again, and restored each time."""

    def __init__(self, folder, kind):
        data = save_dataset(rows(300), folder / "data")
        config = {**values(kind, folder, **SHORT)}
        config["algo_kwargs"] = {**config["algo_kwargs"], "dataset": {"path": str(data)}}
        self.folder, self.config = folder, make_config(config)
        ExperimentManager(self.config, folder / "whole").train()
        with pytest.raises(Cut):
            ExperimentManager(self.config, folder / "run").train(callbacks=[CutAt("log", 110)])
        for name in ("run", "data"):
            shutil.copytree(folder / name, folder / "pristine" / name)
        files = sorted(path for name in ("run", "data") for path in (folder / name).rglob("*") if path.is_file())
        self.files = [path for path in files if path.stat().st_size]

    def survives(self, path, damaged):
        """Whether the damage of a file is told by `verify`, or without effect on the run that goes on."""
        path.write_bytes(damaged)
        try:
            with watchdog():
                named = not check_files(self.folder / "run").whole
                return self._ends_well(path.name, named=named)
        except Exception as error:  # whatever is no error of ours is what we look for
            print(f"{path}: {error!r}")
            return False
        finally:
            for name in ("run", "data"):
                shutil.rmtree(self.folder / name)
                shutil.copytree(self.folder / "pristine" / name, self.folder / name)

    def _ends_well(self, damaged, *, named):
        try:
            ExperimentManager(self.config, self.folder / "run").train(resume=True, reporter=Notes())
        except RLTrainingError:
            return named  # refused in one line; `verify` says so too
        found = differences(self.folder / "whole", self.folder / "run")
        return all(named and line.startswith(damaged) for line in found)  # the damage itself may stay, once it is named


@pytest.fixture(scope="module", params=["population", "prior"])
def patient(request, tmp_path_factory):
    return Patient(tmp_path_factory.mktemp(request.param), request.param)


def survived(patient, count, seed, damage):
    """How many of so many damages, spread evenly over the files, are survived."""
    draw, passed = generator(seed), 0
    for number in range(count):
        path = patient.files[number % len(patient.files)]
        data = path.read_bytes()
        what, damaged = damage(data, draw)
        held = patient.survives(path, damaged)
        passed += held
        if not held:
            print(f"not survived: {path.relative_to(patient.folder)}, {what}")
    return passed


def flip(data, draw):
    position = int(draw.integers(len(data) * 8))
    flipped = bytearray(data)
    flipped[position // 8] ^= 1 << (position % 8)
    return f"bit {position % 8} of byte {position // 8}", bytes(flipped)


def truncate(data, draw):
    length = int(draw.integers(len(data)))
    return f"cut to {length} of {len(data)} bytes", data[:length]


@pytest.mark.faults
def test_flips(patient, fault_count):
    fault_count("flips", survived(patient, FLIPS, 1, flip), FLIPS)


@pytest.mark.faults
def test_truncations(patient, fault_count):
    fault_count("truncations", survived(patient, TRUNCATIONS, 2, truncate), TRUNCATIONS)
