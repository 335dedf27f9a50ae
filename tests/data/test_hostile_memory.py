"""What reading takes: hostile files of every format, and honest ones of many episodes, stay within the stated memory."""

import resource

import pytest

from rl_training.data.reading.guards import bounded_memory
from tests.data.hostile_files import ALLOWED, hostile_files, measured, written_here
from tests.logs import episodes, write_d3rlpy, write_minari

WORST = [  # each took gigabytes, or a multiple of the limit
    *("parquet long text that repeats", "minari attributes", "minari sparse metadata", "minari groups that widen"),
    *("store of wide rows", "csv long text among short ones"),
]


def test_reading_stays_within_the_stated_memory(tmp_path):
    """The worst files, and honest ones of 500 episodes, which took 75 MiB while all arrays were held open."""
    log = episodes([5] * 500)
    paths = {"minari": write_minari(tmp_path / "m", log), "d3rlpy": write_d3rlpy(tmp_path / "d.h5", log)}
    writers = written_here()
    for name in WORST:
        (tmp_path / name).mkdir()
        paths[name] = writers[name](tmp_path / name)
    found = measured(paths)
    assert [one for one in found if not one.good] == []
    assert [one for one in found[:2] if one.outcome != "read" or one.grown > 45 * 2**20] == []


def test_the_bound_of_the_process_is_what_it_was_before():
    before = resource.getrlimit(resource.RLIMIT_DATA)
    with pytest.raises(MemoryError), bounded_memory(2**20):
        bytearray(2**30)
    assert resource.getrlimit(resource.RLIMIT_DATA) == before
    bytearray(2**30)


@pytest.mark.faults
def test_hostile_files_stay_within_the_stated_memory(tmp_path, fault_count):
    found = measured(dict(hostile_files(tmp_path)))
    assert len(found) >= 80
    fault_count("hostile data files", sum(one.good for one in found), len(found))
    assert [one for one in found if not one.good] == []
    assert max(one.grown for one in found) > ALLOWED / 4  # otherwise nothing was measured
