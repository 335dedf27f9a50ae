"""A store for each test, and a cache of its own, as another machine would have."""

import itertools

import pytest

pytest.importorskip("fsspec")
_numbers = itertools.count()


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """Go on as on another machine, or the one of a name."""

    def become(name):
        monkeypatch.setenv("RL_TRAINING_CACHE", str(tmp_path / "machines" / name))

    become("first")
    return become


@pytest.fixture
def store(machine):
    """The address of a new folder in a store."""
    return f"memory://bucket-{next(_numbers)}"


@pytest.fixture(params=["store", "folder"])
def any_store(request):
    """The address of a new folder in memory, and in another test on a disk."""
    return request.getfixturevalue(request.param)


@pytest.fixture
def folder(tmp_path, machine):
    """The address of a folder on a disk that other processes see too."""
    return f"file://{tmp_path}/store"
