"""Files that lie, swell, point elsewhere or are simply wrong: refused before allocation, in one line, with exit code 3."""

import io
import struct
import subprocess
import sys
import zipfile

import h5py
import numpy as np
import pytest

from rl_training.data import TransitionDataset, load_dataset
from rl_training.errors import DatasetError
from tests.helpers import call_cli, environment, small_arrays, tiny_run
from tests.logs import episodes, table, transitions, write_csv, write_d3rlpy, write_hdf5, write_minari, write_old_d3rlpy

LOG = episodes()


def npz_with_header(path, shape, data=b"\0" * 64, dtype="<f4"):
    """An npz whose `rewards` claim a shape that is not what is stored."""
    arrays = small_arrays()
    header = io.BytesIO()
    np.lib.format.write_array_header_1_0(header, {"descr": dtype, "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, value in arrays.items():
            if name != "rewards":
                buffer = io.BytesIO()
                np.lib.format.write_array(buffer, value)
                archive.writestr(f"{name}.npy", buffer.getvalue())
        archive.writestr("rewards.npy", header.getvalue() + data)
    return path


def npz_bomb(path):
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        header = io.BytesIO()
        rows = 80_000_000
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": (rows, 1)})
        with archive.open("observations.npy", "w", force_zip64=True) as stream:
            stream.write(header.getvalue())
            for _ in range(rows * 4 // 2**20):
                stream.write(b"\0" * 2**20)
            stream.write(b"\0" * (rows * 4 % 2**20))
    return path


def hdf5_shape_bomb(path, rows=10**12):
    arrays = small_arrays()
    arrays.pop("rewards")
    write_hdf5(path, arrays)
    with h5py.File(path, "a") as file:
        file.create_dataset("rewards", (rows,), "f4", chunks=(1000,))
    return path


def hdf5_bomb_under_memory(path):
    """One that would fit, and is stored in next to nothing."""
    return hdf5_shape_bomb(path, 10**8)


def minari_with_links(path):
    write_minari(path, LOG)
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1"]
        file["episode_1"] = h5py.SoftLink("/episode_0")
    return path


def minari_cycle(path):
    write_minari(path, LOG)
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_1"]["rewards"]
        file["episode_1"]["rewards"] = file["episode_1"]  # a group that holds itself
    return path


def d3rlpy_external(path):
    write_d3rlpy(path, LOG)
    write_hdf5(path.with_name("other.h5"), {"x": LOG[0]["actions"]})
    with h5py.File(path, "a") as file:
        del file["actions_0"]
        file["actions_0"] = h5py.ExternalLink("other.h5", "/x")
    return path


def old_d3rlpy_external_storage(path):
    write_old_d3rlpy(path, LOG)
    raw = path.with_name("raw")
    raw.write_bytes(b"\0" * 10_000)
    with h5py.File(path, "a") as file:
        rows = len(file["rewards"])
        del file["rewards"]
        file.create_dataset("rewards", (rows,), "f4", external=[(str(raw), 0, rows * 4)])
    return path


def unknown_filter(path):
    write_hdf5(path, small_arrays())
    with h5py.File(path, "a") as file:
        values = file["rewards"][()]
        del file["rewards"]
        file.create_dataset("rewards", data=values, chunks=(60,), compression="gzip")
    data = path.read_bytes()
    marker = struct.pack("<H", 1)  # the id of gzip in a filter message becomes one that nobody knows
    place = data.rfind(b"deflate")
    start = data.rfind(marker, 0, place)
    path.write_bytes(data[:start] + struct.pack("<H", 399) + data[start + 2 :])
    return path


def string_rewards(path):
    write_hdf5(path, {**small_arrays(), "rewards": np.array([b"1"] * 60)})
    return path


def gzip_csv(path):
    import gzip

    path.write_bytes(gzip.compress(b"obs_0,action_0,reward\n1,2,3\n" * 10))
    return path


def parquet_bomb(path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    column = pyarrow.DictionaryArray.from_arrays(pyarrow.array(np.zeros(30_000_000, dtype=np.int8)), pyarrow.array([1.0]))
    write_table(pyarrow.table({"obs_0": column, "action_0": column, "reward": column}), path)
    return path


def minari_fifo(path):
    """A link to a pipe: whoever follows it waits for ever."""
    import os

    write_minari(path, LOG)
    os.mkfifo(path / "data" / "pipe.h5")
    with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
        del file["episode_0"]["observations"]
        file["episode_0"]["observations"] = h5py.ExternalLink("pipe.h5", "/x")
    return path


def huge_chunk(path):
    arrays = small_arrays(rows=10)
    arrays.pop("observations")
    write_hdf5(path, arrays)
    with h5py.File(path, "a") as file:
        shape = {"shape": (10, 3), "maxshape": (None, 3), "chunks": (30_000_000, 3)}
        file.create_dataset("observations", dtype="f4", compression="gzip", **shape)[:] = 1.0
    return path


def parquet_of_lists(path):
    pyarrow = pytest.importorskip("pyarrow")
    from pyarrow.parquet import write_table

    rows = 300_000
    lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(np.zeros(rows * 100, dtype=np.float32)), 100)
    ones = pyarrow.array(np.ones(rows, dtype=np.float32))
    write_table(pyarrow.table({"obs_0": lists, "action_0": ones, "reward": ones}), path)
    return path


def wide_cell(path):
    rows = ["1,0.5,1"] * 5000
    rows[2] = "x" * 60_000 + ",0.5,1"
    path.write_text("obs_0,action_0,reward\n" + "\n".join(rows) + "\n")
    return path


def long_header(path):
    path.write_text("x" * 200_000 + ",obs_0,action_0,reward\n1,2,3,4\n")
    return path


def torn_header(path):
    with zipfile.ZipFile(path, "w") as archive:
        text = b"{('descr': '<f4', 'fortran_order': False, 'shape': (8,), }".ljust(117) + b"\n"
        archive.writestr("rewards.npy", b"\x93NUMPY\x01\x00" + struct.pack("<H", len(text)) + text + b"\0" * 32)
    return path


HOSTILE = {
    "minari pipe": (lambda p: minari_fifo(p / "m"), "link to somewhere else"),
    "hdf5 chunk": (lambda p: huge_chunk(p / "d.h5"), "looks like a decompression bomb"),
    "parquet lists": (lambda p: parquet_of_lists(p / "d.parquet"), "looks like a decompression bomb"),
    "csv cell": (lambda p: wide_cell(p / "d.csv"), "holds text"),
    "csv header": (lambda p: long_header(p / "d.csv"), "is not in a known format"),
    "npz header": (lambda p: torn_header(p / "d.npz"), "cannot be read"),
    "long name": (lambda p: p / ("x" * 5000), "cannot be read"),
    "pipe": (lambda p: __import__("os").mkfifo(p / "pipe") or p / "pipe", "is not a regular file"),
    "npz shape": (lambda p: npz_with_header(p / "d.npz", (10**15,)), "claims the shape"),
    "npz negative": (lambda p: npz_with_header(p / "d.npz", (-5,)), "d.npz"),
    "npz object": (lambda p: npz_with_header(p / "d.npz", (8,), dtype="|O"), "is a pickle"),
    "npz bomb": (lambda p: npz_bomb(p / "d.npz"), "looks like a decompression bomb"),
    "hdf5 shape": (lambda p: hdf5_shape_bomb(p / "d.h5"), "more than 80 %"),
    "hdf5 hollow": (lambda p: hdf5_bomb_under_memory(p / "d.h5"), "looks like a decompression bomb"),
    "hdf5 strings": (lambda p: string_rewards(p / "d.h5"), "numbers are needed"),
    "hdf5 filter": (lambda p: unknown_filter(p / "d.h5"), "cannot be read: "),
    "minari links": (lambda p: minari_with_links(p / "m"), "not a plain group"),
    "minari cycle": (lambda p: minari_cycle(p / "m"), "not a plain array"),
    "d3rlpy link": (lambda p: d3rlpy_external(p / "d.h5"), "link to somewhere else"),
    "old d3rlpy storage": (lambda p: old_d3rlpy_external_storage(p / "d.h5"), "not a plain array"),
    "gzip": (lambda p: gzip_csv(p / "d.csv.gz"), "is a gzip file"),
    "parquet bomb": (lambda p: parquet_bomb(p / "d.parquet"), "looks like a decompression bomb"),
    "directory": (lambda p: p, "holds no data"),
    "empty": (lambda p: (p / "d.npz").write_bytes(b"") or p / "d.npz", "not in a known format"),
    "noise": (lambda p: (p / "d.bin").write_bytes(bytes(range(256)) * 20) and p / "d.bin", "not in a known format"),
}


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    """The file of a case, written when first asked for: some take a while."""
    paths = {}

    def written(case):
        if case not in paths:
            paths[case] = HOSTILE[case][0](tmp_path_factory.mktemp("hostile"))
        return paths[case]

    return written


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_are_refused_in_one_line(case, hostile, capsys):
    path, message = hostile(case), HOSTILE[case][1]
    with pytest.raises(DatasetError, match=message) as caught:
        load_dataset(path)
    assert len(str(caught.value).splitlines()) == 1
    for command in ("inspect", "doctor"):
        assert call_cli(capsys, "data", command, path, code=3).stderr.startswith("error: ")


BOMBS = ["npz shape", "npz bomb", "hdf5 shape", "hdf5 hollow", "hdf5 chunk", "parquet bomb", "parquet lists", "csv cell"]


def test_bombs_take_no_memory(hostile):
    """All in one process: its memory never grows by 200 MiB."""
    pytest.importorskip("pyarrow")
    paths = [str(hostile(case)) for case in BOMBS]
    code = (
        "import resource, sys\n"
        "from rl_training.data import load_dataset\n"
        "from rl_training.errors import DatasetError\n"
        "import h5py, pyarrow.parquet\n"
        "before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss\n"
        "for path in sys.argv[1:]:\n"
        "    try:\n        load_dataset(path)\n    except DatasetError:\n        pass\n"
        "    else:\n        sys.exit(f'{path} was read')\n"
        "    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024\n"
        "    if grown > 200:\n        sys.exit(f'{path}: {grown} MiB')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, *paths], env=environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


WRITERS = {
    "npz": lambda p: np.savez(p / "d", **small_arrays()) or p / "d.npz",
    "hdf5": lambda p: write_hdf5(p / "d.h5", small_arrays()),
    "minari": lambda p: write_minari(p / "m", LOG) / "data" / "main_data.hdf5",
    "d3rlpy": lambda p: write_d3rlpy(p / "d.h5", LOG),
    "old d3rlpy": lambda p: write_old_d3rlpy(p / "d.h5", LOG),
    "csv": lambda p: write_csv(p / "d.csv", table(transitions(LOG))),
}


@pytest.mark.parametrize("name", WRITERS)
def test_cut_and_flipped_files_are_never_a_traceback(name, tmp_path):
    """A cut CSV may still be a table; everything else must be refused, and nothing may fail in another way."""
    path = WRITERS[name](tmp_path)
    good = path.read_bytes()
    draw = np.random.Generator(np.random.Philox(1))
    refused = 0
    for place in draw.integers(0, len(good), 40).tolist():
        flipped = bytearray(good)
        flipped[place] ^= 1 << int(draw.integers(8))
        for bad in (good[:place], bytes(flipped)):
            path.write_bytes(bad)
            try:
                load_dataset(path)
            except DatasetError as error:
                refused += len(str(error).splitlines()) == 1
    assert refused >= (30 if name != "csv" else 1)


TYPOS = [
    "observation",
    "observtions",
    "obervations",
    "observations_",
    "Observations",
    "action_s",
    "actons",
    "actionss",
    "rewrds",
    "rewards0",
]


@pytest.mark.parametrize("typo", TYPOS)
def test_misspelt_keys_are_recognised(typo, tmp_path):
    right = next(name for name in ("observations", "actions", "rewards") if name[0] == typo[0].lower())
    arrays = small_arrays()
    arrays[typo] = arrays.pop(right)
    np.savez(tmp_path / "d.npz", **arrays)
    with pytest.raises(DatasetError, match=f"`{right}` is missing.*Did you mean `{typo}`.*Found: "):
        load_dataset(tmp_path / "d.npz")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"observations": np.zeros((60, 3, 3), dtype=np.float32)}, "`observations` has shape"),
        ({"observations": np.zeros(60, dtype=np.float32)}, "`observations` has shape"),
        ({"actions": np.zeros((60, 2), dtype=np.int64)}, "continuous float actions"),
        ({"rewards": np.zeros((60, 2), dtype=np.float32)}, "`rewards` has shape"),
        ({"terminals": np.full(60, 2)}, "other than 0 and 1"),
        ({"rewards": np.array(["a"] * 60)}, "numbers are needed"),
        ({"next_observations": np.zeros((60, 4), dtype=np.float32)}, "differ in shape"),
        ({"rewards": np.zeros(59, dtype=np.float32)}, "share one length"),
    ],
)
def test_wrong_shapes_and_types_are_named(change, message, tmp_path):
    np.savez(tmp_path / "d.npz", **{**small_arrays(), **change})
    with pytest.raises(DatasetError, match=message):
        load_dataset(tmp_path / "d.npz")


@pytest.mark.parametrize("dtype", ["<f8", ">f4", ">f8", "<f2", "uint8"])
def test_safe_types_are_taken(dtype, tmp_path):
    arrays = small_arrays()
    arrays["observations"] = np.abs(arrays["observations"]).astype(dtype)
    arrays["next_observations"] = np.abs(arrays["next_observations"]).astype(dtype)
    np.savez(tmp_path / "d.npz", **arrays)
    data = load_dataset(tmp_path / "d.npz")
    assert data.observations.dtype in (np.float32, np.float64)
    assert data.observations.dtype.isnative
    assert np.array_equal(data.observations, arrays["observations"].astype(np.float64))


@pytest.mark.parametrize("field", ["observations", "actions", "rewards", "next_observations"])
@pytest.mark.parametrize("row", [0, 30, 59])
@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
def test_bad_numbers_everywhere(field, row, value, tmp_path):
    arrays = small_arrays()
    arrays[field][row] = value
    with pytest.raises(DatasetError, match=f"`{field}` is NaN or inf in 1 rows .first: {row}."):
        load_dataset(arrays)
    kept = load_dataset(arrays, on_bad_rows="drop")
    assert len(kept) == 59
    ends = np.append(False, kept.episode_ends[:-1])
    inside = ~kept.episode_ends[:-1]
    assert np.array_equal(kept.next_observations[:-1][inside], kept.observations[1:][inside])
    assert ends.sum() >= 5


@pytest.mark.parametrize("rows", [2, 5])
def test_very_small_data_trains(rows, tmp_path):
    data = TransitionDataset.from_dict(small_arrays(rows=rows, length=rows))
    assert tiny_run(tmp_path / "run", env_id=None, dataset=data).step == 120


def test_actions_that_never_change_leave_nothing_to_learn(tmp_path):
    data = TransitionDataset.from_dict(small_arrays(rows=1, length=1))
    with pytest.raises(DatasetError, match="no action column ever changes"):
        tiny_run(tmp_path / "run", env_id=None, dataset=data)


@pytest.mark.parametrize("ends", ["all", "none"])
def test_only_ends_and_no_ends(ends, tmp_path):
    arrays = small_arrays()
    arrays["terminals"][:] = ends == "all"
    arrays["timeouts"][:] = False
    data = TransitionDataset.from_dict(arrays)
    assert len(data.episode_spans[0]) == (60 if ends == "all" else 6)  # without marks, cuts are where observations break
    tiny_run(tmp_path / "run", env_id=None, dataset=data)


def test_a_file_locked_by_a_writer_is_one_line(tmp_path):
    path = write_hdf5(tmp_path / "d.h5", small_arrays())
    with h5py.File(path, "a"):
        code = "import sys\nfrom rl_training.cli import run\nsys.exit(run(['data', 'doctor', sys.argv[1]]))"
        done = subprocess.run(
            [sys.executable, "-c", code, str(path)], env=environment(), capture_output=True, text=True, check=False
        )
    assert done.returncode == 3
    assert done.stderr.count("\n") == 1


def test_no_bootstrap_crosses_an_end():
    """Whatever is marked: a true end stays one, and every cut keeps its own successor."""
    from hypothesis import given, settings
    from hypothesis import strategies as st

    @settings(max_examples=1000, deadline=None)
    @given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=2, max_size=30))
    def check(marks):
        rows = len(marks)
        terminals, timeouts = (np.array(column) for column in zip(*marks, strict=True))
        observations = np.arange(rows, dtype=np.float32)[:, None] * 10
        arrays = {
            "observations": observations,
            "actions": np.zeros((rows, 1), dtype=np.float32),
            "rewards": np.arange(rows, dtype=np.float32),
            "terminals": terminals,
            "timeouts": timeouts,
        }
        try:
            data = load_dataset(arrays)  # no next observations: made from the following rows
        except DatasetError:  # every row is a cut, so nothing is known of any
            assert not terminals.any()
            assert (timeouts[:-1] | False).all()
            return
        kept = data.rewards.astype(int)
        assert set(np.flatnonzero(terminals)) <= set(kept.tolist())
        assert np.array_equal(data.terminals, terminals[kept])
        successors = data.next_observations[~data.terminals, 0]
        assert np.array_equal(successors, (kept[~data.terminals] + 1) * 10.0)
        assert not (timeouts & ~terminals)[kept].any()  # a row whose successor is unknown is gone

    check()
