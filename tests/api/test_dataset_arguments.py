"""Data passed to a managed algorithm: files, folders, tables with a column map."""

import numpy as np
import pytest

import rl_training
from rl_training.errors import ConfigError
from tests.helpers import assert_same_run, small_dataset
from tests.logs import write_csv

ROLES = {"observations": ["x", {"error": "x - 0.5"}], "actions": "u", "reward": "-abs(x - 0.5)"}
OPTIONS = {"device": "cpu", "hidden_sizes": (8,), "batch_size": 16}


def table(seed):
    draw = np.random.Generator(np.random.Philox(seed))
    return {"x": np.round(draw.uniform(size=20), 4), "u": np.round(draw.uniform(size=20), 4)}


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "logs").mkdir()
    for number in (1, 2, 10):
        write_csv(tmp_path / "logs" / f"run{number}.csv", table(number))
    return tmp_path / "logs"


def test_files_folders_and_lists_with_a_column_map(folder, tmp_path):
    sources = {
        "folder": f"{folder}/",
        "path": folder,
        "glob": f"{folder}/*.csv",
        "list": [folder / f"run{number}.csv" for number in (1, 2, 10)],
        "block": {"path": str(folder)},
    }
    for name, source in sources.items():
        model = rl_training.IQL(dataset=source, columns=ROLES, run_dir=tmp_path / name, **OPTIONS).learn(10)
        assert model.config.algo_kwargs.dataset[0].columns.reward == "-abs(x - 0.5)"
        assert_same_run(tmp_path / "folder", tmp_path / name)


def test_a_frame_with_a_column_map(folder, tmp_path):
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(table(1))
    for name, data in {"frame": frame, "file": folder / "run1.csv"}.items():
        rl_training.IQL(dataset=data, columns=ROLES, run_dir=tmp_path / name, **OPTIONS).learn(10)
    assert_same_run(tmp_path / "frame", tmp_path / "file")
    again = rl_training.IQL.load(tmp_path / "frame", dataset=frame, columns=ROLES).learn(12)
    assert again.num_timesteps == 12


def test_columns_need_a_table():
    for data in (None, small_dataset()):
        with pytest.raises(ConfigError, match="columns names the columns of a table"):
            rl_training.IQL(dataset=data, columns=ROLES)
