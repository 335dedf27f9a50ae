"""Data in a store: read as from a disk, through copies that are verified at every use."""

import shutil
import sys

import numpy as np
import pytest

from rl_training.config.loading import make_config
from rl_training.data.dataset_loaders import load_dataset
from rl_training.data.store.directory import save_dataset
from rl_training.errors import ConfigError, DatasetError, StorageError
from rl_training.remote import cache
from rl_training.remote.address import open_filesystem
from rl_training.remote.store import Store
from tests.helpers import call_cli, run_values, small_arrays, small_dataset


def put(local, address):
    """Copy a file or a folder to a store."""
    open_filesystem(address).put(str(local), Store(address)._root, recursive=local.is_dir())


def same(one, other):
    return all(np.array_equal(values, other.fields()[name]) for name, values in one.fields().items())


@pytest.fixture
def downloads(monkeypatch):
    """The names of the files that are fetched."""
    fetched, download = [], Store.download
    monkeypatch.setattr(Store, "download", lambda self, name, *rest: fetched.append(name) or download(self, name, *rest))
    return fetched


@pytest.fixture
def npz(tmp_path):
    np.savez(tmp_path / "log.npz", **small_arrays())
    return tmp_path / "log.npz"


def test_a_file_is_read_as_from_a_disk_and_fetched_once(npz, any_store, downloads):
    put(npz, f"{any_store}/log.npz")
    for _ in range(2):
        assert same(load_dataset(f"{any_store}/log.npz"), load_dataset(npz))
    assert downloads == [""]
    values = run_values(env_id=None, algo_kwargs={"dataset": f"{any_store}/log.npz"})
    assert make_config(values).algo_kwargs.dataset[0].path == f"{any_store}/log.npz"


def test_a_copy_that_was_damaged_is_fetched_again_and_so_is_data_that_has_changed(npz, store, downloads, tmp_path):
    put(npz, f"{store}/log.npz")
    load_dataset(f"{store}/log.npz")
    (copy,) = (tmp_path / "machines").rglob("log.npz")
    data = bytearray(copy.read_bytes())
    data[len(data) // 2] ^= 1
    copy.write_bytes(data)
    assert same(load_dataset(f"{store}/log.npz"), load_dataset(npz))
    np.savez(npz, **small_arrays(rows=90, seed=7))
    put(npz, f"{store}/log.npz")
    assert same(load_dataset(f"{store}/log.npz"), load_dataset(npz))
    assert len(downloads) == 3


def test_folders_globs_and_dataset_directories(any_store, tmp_path):
    logs = tmp_path / "logs"
    logs.mkdir()
    for number in (1, 2, 10):
        np.savez(logs / f"run{number}.npz", **small_arrays(rows=20, seed=number))
    (logs / "README.md").write_text("not data")
    save_dataset(small_dataset(), tmp_path / "converted")
    put(logs, f"{any_store}/logs")
    put(tmp_path / "converted", f"{any_store}/converted")
    assert same(load_dataset(f"{any_store}/logs"), load_dataset(logs))
    assert same(load_dataset(f"{any_store}/logs/"), load_dataset(logs))
    assert same(load_dataset(f"{any_store}/logs/run1*.npz"), load_dataset(f"{logs}/run1*.npz"))
    assert same(load_dataset(f"{any_store}/converted"), load_dataset(tmp_path / "converted"))
    assert (
        same(load_dataset([f"{any_store}/logs/run2.npz", str(logs / "run1.npz")]), load_dataset(logs / "run[12].npz"))
        is False
    )


def test_what_is_not_there_or_cannot_be_is_one_line(any_store, capsys):
    for address, words in ((f"{any_store}/none.h5", "there is nothing here"), (f"{any_store}/*.h5", "matches no file")):
        with pytest.raises(DatasetError, match=words):
            load_dataset(address)
    assert "there is nothing here" in call_cli(capsys, "data", "inspect", f"{any_store}/none.h5", code=3).stderr
    for address, words in (
        ("s4://bucket/x", "is of no known kind; there are s3://, gs://"),
        ("zip://x::s3://bucket/y", "is of no known kind"),
        ("s3://", "does not say where"),
        ("s3://bucket/simplecache::s3://x", "does not say where"),
    ):
        with pytest.raises(ConfigError, match=words):
            load_dataset(address)
    with pytest.raises(ConfigError, match="a new dataset must be on a file system"):
        save_dataset(small_dataset(), f"{any_store}/out")


def test_without_the_library_the_extra_is_named(monkeypatch, machine):
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(ConfigError, match=r's3://bucket/x: needs s3fs: pip install "rl-training\[remote\]"'):
        load_dataset("s3://bucket/x")


def test_guards_are_those_of_local_files(npz, store, tmp_path, monkeypatch):
    np.savez(tmp_path / "evil.npz", **{**small_arrays(), "rewards": np.array([print], dtype=object)})
    put(tmp_path / "evil.npz", f"{store}/evil.npz")
    with pytest.raises(DatasetError, match="evil.npz"):
        load_dataset(f"{store}/evil.npz")
    put(npz, f"{store}/log.npz")
    with pytest.raises(DatasetError, match="bytes"):
        load_dataset(f"{store}/log.npz", max_bytes=100)
    usage = type(shutil.disk_usage("/"))(10**9, 10**9, 5000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    np.savez(npz, **small_arrays(seed=4))
    put(npz, f"{store}/log.npz")
    with pytest.raises(StorageError, match="5,000 are free in .*name another in RL_TRAINING_CACHE"):
        load_dataset(f"{store}/log.npz")


def test_what_changes_while_it_is_read_is_refused_and_nothing_is_kept(npz, store, monkeypatch, tmp_path):
    put(npz, f"{store}/logs/one.npz")
    put(npz, f"{store}/logs/two.npz")
    download = Store.download

    def changing(self, name, *rest):
        self.write("one.npz", b"other data")
        return download(self, name, *rest)

    monkeypatch.setattr(Store, "download", changing)
    monkeypatch.setattr("rl_training.remote.store._PAUSES", ())
    with pytest.raises((DatasetError, StorageError), match="changed while|has not the"):
        load_dataset(f"{store}/logs")
    assert not list((tmp_path / "machines").rglob("*.npz"))


@pytest.mark.parametrize("name", ["../x", "a/../../x", "/x", "a//x", "a\\x", "x\n", "./x", "x" * 300])
def test_names_that_leave_their_folder_are_refused(name):
    assert not cache.safe_name(name)
    assert cache.safe_name("checkpoints/step-000000100/state.json")


def test_a_cache_that_others_may_write_to_is_refused(tmp_path, machine):
    (tmp_path / "machines" / "first" / "data").mkdir(parents=True)
    (tmp_path / "machines" / "first" / "data").chmod(0o777)
    with pytest.raises(StorageError, match="others may write there"):
        cache.cache_folder("data")


def test_a_store_that_fails_is_tried_again_and_then_told_in_one_line(store, monkeypatch):
    monkeypatch.setattr("rl_training.remote.store._PAUSES", (0.0, 0.0))
    tried = []

    def fail(*_, **__):
        tried.append(1)
        raise ConnectionError("broken\nline")

    place = Store(store)
    monkeypatch.setattr(type(place._files), "pipe_file", fail)
    with pytest.raises(StorageError, match="does not answer as it should: broken line"):
        place.write("x", b"1")
    assert len(tried) == 3
