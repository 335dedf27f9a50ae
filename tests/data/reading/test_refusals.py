"""What is refused by name: discrete actions, images, pickles, and files of other kinds."""

import gzip
import pickle
import zipfile

import numpy as np
import pytest

from rl_training import TransitionDataset
from rl_training.data import load_dataset
from rl_training.errors import DatasetError
from tests.helpers import small_arrays
from tests.logs import write_csv, write_hdf5

ROWS = 60
DISCRETE = "discrete actions are not supported"


@pytest.mark.parametrize(
    ("actions", "evidence"),
    [
        (np.arange(ROWS) % 3, "whole numbers from 0 to 2, stored as int64"),
        ((np.arange(ROWS) % 2)[:, None].astype(np.uint8), "whole numbers from 0 to 1, stored as uint8"),
        (np.arange(2 * ROWS).reshape(ROWS, 2) % 2, "whole numbers from 0 to 1"),
        (np.arange(ROWS)[:, None] % 2 == 0, "truth values"),
        (np.array(["left", "right"] * (ROWS // 2)), "words such as 'left'"),
    ],
)
def test_discrete_actions_are_refused_by_name(actions, evidence, tmp_path):
    arrays = {**small_arrays(), "actions": actions}
    for build in (load_dataset, TransitionDataset.from_dict):
        with pytest.raises(DatasetError, match=f"{DISCRETE}: `actions` holds {evidence}"):
            build(arrays)
    if actions.dtype.kind != "U":
        with pytest.raises(DatasetError, match=f"d.h5: {DISCRETE}"):
            load_dataset(write_hdf5(tmp_path / "d.h5", arrays))


def test_whole_numbers_that_are_no_labels_are_actions():
    """Commands from 0 to 100 % may be stored as integers."""
    arrays = {**small_arrays(), "actions": np.arange(ROWS)[:, None] % 11 * 10}
    for build in (load_dataset, TransitionDataset.from_dict):
        data = build(arrays)
        assert data.actions.dtype == np.float32
        assert data.spaces.action_high.tolist() == [100.0]


def test_labels_in_tables(tmp_path):
    columns = {"obs_0": np.arange(8.0), "reward": np.zeros(8)}
    with pytest.raises(DatasetError, match=f"{DISCRETE}: `action_0` holds words such as 'off'"):
        load_dataset(write_csv(tmp_path / "a.csv", {**columns, "action_0": ["off", "on"] * 4}))
    zeros_and_ones = load_dataset(write_csv(tmp_path / "b.csv", {**columns, "action_0": [0, 1] * 4}))
    assert zeros_and_ones.spaces.action_high.tolist() == [1.0]  # text has no type: these are numbers
    pandas = pytest.importorskip("pandas")
    with pytest.raises(DatasetError, match=f"DataFrame: {DISCRETE}: `action_0` holds whole numbers from 0 to 1"):
        load_dataset(pandas.DataFrame({**columns, "action_0": [0, 1] * 4}))
    assert len(load_dataset(pandas.DataFrame({**columns, "action_0": [0, 50, 100, 0] * 2}))) == 7


@pytest.mark.parametrize("shape", [(ROWS, 8, 8), (ROWS, 8, 8, 3)])
def test_images_are_refused_by_name(shape, tmp_path):
    arrays = {**small_arrays(), "observations": np.zeros(shape, dtype=np.uint8)}
    del arrays["next_observations"]
    for build in (load_dataset, TransitionDataset.from_dict):
        with pytest.raises(DatasetError, match=r"images are not supported: `observations` has shape \(60, 8, 8"):
            build(arrays)
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DatasetError, match="d.npz: images are not supported"):
        load_dataset(tmp_path / "d.npz")


def zip_of(name, text="a,b\n1,2\n"):
    def write(path):
        with zipfile.ZipFile(path, "w") as archive:
            archive.writestr(name, text)

    return write


def write_objects(path):
    with path.open("wb") as stream:
        np.save(stream, np.array([{}], dtype=object), allow_pickle=True)


def write_array(path):
    with path.open("wb") as stream:
        np.save(stream, np.zeros(3))


KINDS = {
    "d.pkl": (lambda p: p.write_bytes(pickle.dumps({"rewards": [1]})), "is a pickle, which may run code when opened"),
    "protocol-0.pickle": (lambda p: p.write_bytes(pickle.dumps([1], protocol=0)), "is a pickle"),
    "renamed.dat": (lambda p: p.write_bytes(pickle.dumps({"rewards": [1]})), "is a pickle"),
    "model.zip": (zip_of("archive/data.pkl"), "is a pickle"),
    "objects.npy": (write_objects, "is a pickle"),
    "array.npy": (write_array, "is one array alone; save all fields together"),
    "d.xlsx": (zip_of("xl/workbook.xml"), "is an Excel workbook; save it as CSV"),
    "d.xls": (lambda p: p.write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + bytes(600)), "is an Excel workbook"),
    "logs.zip": (zip_of("logs/a.csv"), "is a zip of CSV files; unpack it and name the folder"),
    "d.jsonl": (lambda p: p.write_text('{"obs": [1, 2], "action": 0}\n' * 3), "is JSON, which is not read"),
    "d.json": (lambda p: p.write_text('[\n {"obs": 1}]'), "is JSON, which is not read"),
    "d.csv.gz": (lambda p: p.write_bytes(gzip.compress(b"a,b\n1,2\n")), "is a gzip file; unpack it first"),
    "d.mat": (lambda p: p.write_bytes(b"MATLAB 5.0 MAT-file, Platform: GLNXA64" + bytes(200)), "is a MATLAB file"),
    "photo.jpg": (lambda p: p.write_bytes(b"\xff\xd8\xff\xe0" + bytes(50)), "is an image"),
}


@pytest.mark.parametrize("name", KINDS)
def test_files_are_refused_by_their_kind(name, tmp_path):
    write, message = KINDS[name]
    write(tmp_path / name)
    with pytest.raises(DatasetError, match=f"{name}: {message}") as caught:
        load_dataset(tmp_path / name)
    assert "\n" not in str(caught.value)
    assert caught.value.exit_code == 3


def test_arrays_without_next_observations():
    """The following row, as for files: of a cut episode the last row has none and is left out."""
    arrays = {
        "observations": np.arange(8.0)[:, None],
        "actions": np.linspace(0, 1, 8)[:, None],
        "rewards": np.arange(8.0),
        "terminals": np.array([0, 0, 1, 0, 0, 0, 0, 0]),
        "timeouts": np.array([0, 0, 0, 0, 0, 1, 0, 0]),
    }
    data = TransitionDataset.from_dict(arrays)
    assert data.rewards.tolist() == [0, 1, 2, 3, 4, 6]
    assert data.next_observations[:, 0].tolist() == [1, 2, 2, 4, 5, 7]
    assert data.terminals.tolist() == [False, False, True, False, False, False]
    assert data.timeouts.tolist() == [False, False, False, False, True, True]
    assert load_dataset(arrays).fingerprint == data.fingerprint
    unmarked = {name: value for name, value in arrays.items() if name != "timeouts"}
    assert len(TransitionDataset.from_dict(unmarked)) == 7
    with pytest.raises(DatasetError, match="no transition is left"):
        TransitionDataset.from_dict({name: value[:1] for name, value in unmarked.items()})
    with pytest.raises(DatasetError, match="Did you mean `next_observations`"):
        TransitionDataset.from_dict({**arrays, "next_observation": arrays["observations"]})
