"""Data files that swell, lie, loop or point elsewhere, of every format; and what reading each takes.

`hostile_files(folder)` writes them, `measured(paths)` reads them: another test may use both.
"""

import bz2
import io
import json
import os
import re
import resource
import signal
import subprocess
import sys
import zipfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout
from dataclasses import dataclass
from pathlib import Path

import h5py
import numpy as np
import pyarrow as arrow
from pyarrow.parquet import write_table

from rl_training.data.reading.guards import MARGIN
from rl_training.storage import write_manifest
from tests.data.test_hostile_data import HOSTILE, LOG
from tests.helpers import ROOT, environment, small_arrays, small_dataset
from tests.logs import table, transitions, write_csv, write_d3rlpy, write_hdf5, write_minari

LIMIT = 10 * 2**20  # max_dataset_bytes
ALLOWED = LIMIT + MARGIN  # bytes: what docs/data.md states
SECONDS = 120  # after which a file counts as one that hangs
Write = Callable[[Path], Path]


@dataclass(frozen=True)
class Outcome:
    """What became of a file: read, refused, or something that must not happen; and the bytes it took."""

    name: str
    outcome: str
    grown: int

    @property
    def good(self) -> bool:
        """Whether the file was read or refused, within the stated memory."""
        return self.outcome in ("read", "refused") and self.grown <= ALLOWED


def hostile_files(folder: Path) -> Iterator[tuple[str, Path]]:
    """Write every file below a folder, and yield its name and path."""
    cases = {**{f"known {name}": write for name, (write, _) in HOSTILE.items()}, **written_here()}
    for number, (name, write) in enumerate(cases.items()):
        place = folder / f"{number:03d}"
        place.mkdir()
        yield name, write(place)


def measured(paths: dict[str, Path]) -> list[Outcome]:
    """Read files one by one, each in a fork of one process that has only imported the package."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.data.hostile_files", *map(str, paths.values())],
        env=environment(),
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    found = [json.loads(line) for line in done.stdout.splitlines()]
    return [Outcome(name, *one) for name, one in zip(paths, found, strict=True)]


def _status(key: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith(f"{key}:"))


def _read(path: str) -> tuple[str, int]:
    from rl_training.cli import run
    from rl_training.data import load_dataset
    from rl_training.errors import RLTrainingError

    before = _status("VmRSS")
    try:
        load_dataset(path, max_bytes=LIMIT)
        outcome = "read"
    except RLTrainingError as error:
        outcome = "refused" if len(str(error).splitlines()) == 1 else "several lines"
    grown = _status("VmHWM") - before
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        code = run(["data", "inspect", path, "--max-bytes", "10MiB"])
    return outcome if code in (0, 3, 4) else f"inspect ends with {code}", grown


def _child(path: str, pipe: int) -> None:
    signal.alarm(SECONDS)
    try:
        found = _read(path)
    except BaseException as error:
        found = f"traceback: {type(error).__name__}: {str(error)[:100]}", 0
    os.write(pipe, json.dumps(found).encode())
    os._exit(0)


def _measure_all(paths: Sequence[str]) -> None:
    import pyarrow.parquet  # noqa: F401 - what is imported before the fork is not counted

    import rl_training.cli.data
    import rl_training.data  # noqa: F401

    for path in paths:
        read, write = os.pipe()
        if (child := os.fork()) == 0:
            _child(path, write)
        os.close(write)
        with os.fdopen(read) as stream:
            said = stream.read()
        status = os.waitpid(child, 0)[1]
        peak = resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss * 1024
        print(said or json.dumps([f"ended by signal {os.WTERMSIG(status)}", peak]), flush=True)


# What follows writes the files.


def sparse(path: Path, size: int, head: bytes = b"") -> Path:
    with path.open("wb") as stream:
        stream.write(head)
        stream.truncate(size)
    return path


def arrays_but(**changes) -> dict[str, np.ndarray]:
    return {name: value for name, value in {**small_arrays(), **changes}.items() if value is not None}


def npz(**changes) -> Write:
    return lambda p: np.savez(p / "d.npz", **arrays_but(**changes)) or p / "d.npz"


def npy_bytes(values=None, *, descr="<f4", shape=(), version=1, data=b"") -> bytes:
    stream = io.BytesIO()
    if values is not None:
        np.lib.format.write_array(stream, values)
        return stream.getvalue()
    write = np.lib.format.write_array_header_1_0 if version == 1 else np.lib.format.write_array_header_2_0
    write(stream, {"descr": descr, "fortran_order": False, "shape": shape})
    return stream.getvalue() + data


def zipped(entries: dict[str, bytes], method=zipfile.ZIP_STORED) -> Write:
    def write(place: Path) -> Path:
        with zipfile.ZipFile(place / "d.npz", "w", method) as archive:
            for name, value in {**{k: npy_bytes(v) for k, v in small_arrays().items()}, **entries}.items():
                archive.writestr(f"{name}.npy", value)
        return place / "d.npz"

    return write


def zeros_packed(method: int) -> Write:
    """A hundred megabytes that a few bytes hold."""

    def write(place: Path) -> Path:
        return zipped({"rewards": npy_bytes(np.zeros(25_000_000, dtype=np.float32))}, method)(place)

    return write


def lying_zip(place: Path) -> Path:
    """The directory of the archive says that less is stored than there is."""
    path = zipped({"rewards": npy_bytes(np.zeros(20_000_000, dtype=np.float32))}, zipfile.ZIP_DEFLATED)(place)
    data = bytearray(path.read_bytes())
    size = (80_000_128).to_bytes(4, "little")
    while (at := data.find(size)) >= 0:
        data[at : at + 4] = (368).to_bytes(4, "little")
    path.write_bytes(data)
    return path


def many_entries(place: Path) -> Path:
    with zipfile.ZipFile(place / "d.npz", "w") as archive:
        for number in range(60_000):
            archive.writestr(f"x{number}.npy", b"")
    return place / "d.npz"


def hdf5(change: Callable[[h5py.File], object], **arrays) -> Write:
    def write(place: Path) -> Path:
        path = write_hdf5(place / "d.h5", arrays_but(**arrays))
        with h5py.File(path, "a") as file:
            change(file)
        return path

    return write


def replaced(name: str, **dataset) -> Write:
    def change(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, **dataset)

    return hdf5(change)


def inflating_chunk(file: h5py.File) -> None:
    """A chunk of 60 numbers whose packed bytes hold a gigabyte."""
    import zlib

    del file["rewards"]
    item = file.create_dataset("rewards", (60,), "f4", chunks=(60,), compression="gzip")
    packer = zlib.compressobj(9)
    parts = [packer.compress(b"\0" * 2**20) for _ in range(1024)]
    item.id.write_direct_chunk((0,), b"".join([*parts, packer.flush()]))


def many_attributes(path: Path, file: str = "") -> Path:
    """Attributes of thousands of texts, all of which are one long text in the heap of the file."""
    target = path / file
    with h5py.File(target, "a") as archive:
        archive.attrs["long"] = "y" * 100_000
        for number in range(40):
            archive.attrs.create(f"a{number}", np.full(3500, b"zz"), dtype=h5py.string_dtype())
    data = target.read_bytes()
    at = data.find((100_000).to_bytes(4, "little"))
    long = data[at : at + 16]  # length, place and number of a text in the heap
    shared = re.sub(rb"(?:\x02\0\0\0.{12}){3500}", lambda _: long * 3500, data, flags=re.DOTALL)
    assert shared != data
    target.write_bytes(shared)
    return path


def minari(change: Callable[[Path, h5py.File], object]) -> Write:
    def write(place: Path) -> Path:
        path = write_minari(place / "m", LOG)
        with h5py.File(path / "data" / "main_data.hdf5", "a") as file:
            change(path / "data", file)
        return path

    return write


def metadata(text: str) -> Write:
    return minari(lambda data, file: (data / "metadata.json").write_text(text))


def pipe_metadata(data: Path, file: h5py.File) -> None:
    (data / "metadata.json").unlink()
    os.mkfifo(data / "metadata.json")


def widening_groups(data: Path, file: h5py.File) -> None:
    """Eight levels of forty names that all mean the same group: forty to the power of eight paths."""
    episode = file["episode_0"]
    del episode["observations"]
    inner = file.create_group("level_0")
    inner["x"] = LOG[0]["observations"]
    for level in range(1, 8):
        outer = file.create_group(f"level_{level}")
        for number in range(40):
            outer[f"n{number}"] = inner
        inner = outer
    episode["observations"] = inner


def deep_groups(data: Path, file: h5py.File) -> None:
    del file["episode_0"]["observations"]
    group = file["episode_0"].create_group("observations")
    group["again"] = group


def wide_groups(data: Path, file: h5py.File) -> None:
    del file["episode_0"]["observations"]
    group = file["episode_0"].create_group("observations")
    for number in range(5000):
        group[f"n{number}"] = LOG[0]["observations"][:, :1]


def d3rlpy(change: Callable[[h5py.File], object]) -> Write:
    def write(place: Path) -> Path:
        path = write_d3rlpy(place / "d.h5", LOG)
        with h5py.File(path, "a") as file:
            change(file)
        return path

    return write


def swapped(name: str, **dataset) -> Callable[[h5py.File], None]:
    def change(file: h5py.File) -> None:
        del file[name]
        file.create_dataset(name, **dataset)

    return change


COLUMN = np.linspace(0.0, 1.0, 1000)


def parquet(columns: Callable[[], dict[str, object]] = dict, **options) -> Write:
    def write(place: Path) -> Path:
        chosen = {"obs_0": COLUMN, "action_0": COLUMN, "reward": COLUMN, **columns()}
        rows = max(len(value) for value in chosen.values())
        short = {name: value if len(value) == rows else np.resize(value, rows) for name, value in chosen.items()}
        write_table(arrow.table(short), place / "d.parquet", **options)
        return place / "d.parquet"

    return write


def repeated(value: object, rows: int) -> arrow.DictionaryArray:
    return arrow.DictionaryArray.from_arrays(arrow.array(np.zeros(rows, dtype=np.int32)), arrow.array([value]))


def changed_end(write: Write, end: bytes, keep: int) -> Write:
    def change(place: Path) -> Path:
        path = write(place)
        path.write_bytes(path.read_bytes()[:-keep] + end)
        return path

    return change


def csv(header: str, rows: Callable[[], Iterable[str]], encoding="utf-8", above: Callable[[], str] = str) -> Write:
    def write(place: Path) -> Path:
        with (place / "d.csv").open("w", encoding=encoding) as stream:
            stream.write(f"{above()}{header}\n")
            stream.writelines(f"{row}\n" for row in rows())
        return place / "d.csv"

    return write


HEADER = "obs_0,action_0,reward"


def store(change: Callable[[Path], object]) -> Write:
    def write(place: Path) -> Path:
        from rl_training.data import save_dataset

        path = save_dataset(small_dataset(), place / "store")
        change(path)
        return path

    return write


def manifest(**changes) -> Callable[[Path], None]:
    """A manifest that was changed by somebody who knows how it is sealed."""

    def change(path: Path) -> None:
        found = json.loads((path / "manifest.json").read_text())
        found.pop("sha256")
        (path / "manifest.json").unlink()
        write_manifest(path, {**found, **changes})

    return change


def wide_rows(path: Path) -> None:
    """Rows of a gigabyte each, in a file that takes no room on the disk."""
    wide = 2**28
    fields = [["observations", "<f4", [wide]], ["actions", "<f4", [2]], ["rewards", "<f4", []]]
    fields += [["next_observations", "<f4", [wide]], ["terminals", "|b1", []], ["timeouts", "|b1", []]]
    manifest(fields=fields, rows=60)(path)
    with (path / "rows.npy").open("r+b") as stream:
        stream.truncate(60 * (8 * wide + 14) + 500)


def run_with(**files: object) -> Write:
    """What looks like a checkpoint, with one file that is large."""

    def write(place: Path) -> Path:
        path = place / "checkpoint"
        path.mkdir()
        (path / "state.json").write_text("{}")
        listed = {"state.json": {"bytes": 2, "sha256": ""}, "state.safetensors": {"bytes": 2**34, "sha256": ""}}
        sparse(path / "state.safetensors", 2**34)
        write_manifest(path, {"files": listed, "format": 1, "kind": "rl_training checkpoint", **files})
        return path

    return write


def large_manifest(place: Path) -> Path:
    (place / "rows.npy").write_bytes(b"")
    (place / "manifest.json").write_text('{"x": [' + "{}," * 5_000_000 + "{}]}")
    return place


def folder_of(write: Callable[[Path, int], object], count: int) -> Write:
    def fill(place: Path) -> Path:
        for number in range(count):
            write(place, number)
        return place

    return fill


def pipe_among_files(place: Path) -> Path:
    write_csv(place / "a.csv", table(transitions(LOG)))
    os.mkfifo(place / "b.csv")
    return place


def written_here() -> dict[str, Write]:
    """What writes each file, by its name."""
    return {
        "npz names of no width": zipped({"observation_names": npy_bytes(descr="<U0", shape=(10**9,))}),
        "npz a million names": npz(observation_names=np.array(["x"] * 1_000_000)),
        "npz wide names": npz(observation_names=np.array(["x" * 1_000_000] * 3)),
        "npz bzip2": zeros_packed(zipfile.ZIP_BZIP2),
        "npz lzma": zeros_packed(zipfile.ZIP_LZMA),
        "npz bzip2 in an entry": zipped({"rewards": bz2.compress(bytes(10**7))}),
        "npz directory that lies": lying_zip,
        "npz 60,000 entries": many_entries,
        "npz rows of no width": zipped({"observations": npy_bytes(descr="<f4", shape=(10**12, 0))}),
        "npz all rows of no width": zipped(
            {name: npy_bytes(descr="<f4", shape=(10**12, 0)) for name in ("observations", "actions", "rewards", "terminals")}
        ),
        "npz long header": zipped({"rewards": b"\x93NUMPY\x02\x00\xff\xff\xff\xff" + b" " * 1000}),
        "npz deep header": zipped({"rewards": b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65_535}),
        "npz unknown version": zipped({"rewards": b"\x93NUMPY\x09\x00" + b"\0" * 200}),
        "npz records": npz(rewards=np.zeros(60, dtype=[("a", "f4"), ("b", "f4")])),
        "npz complex": npz(rewards=np.zeros(60, dtype=complex)),
        "npz dates": npz(rewards=np.zeros(60, dtype="datetime64[s]")),
        "npz bytes that swell as floats": npz(**{n: np.zeros((2_000_000, 3), np.uint8) for n in ("observations",)}),
        "npz just over": npz(observations=np.zeros((60, 60_000), np.float32), next_observations=None),
        "npz cut": lambda p: (p / "d.npz").write_bytes(npz()(p).read_bytes()[:-30]) and p / "d.npz",
        "npz sparse": lambda p: sparse(p / "d.npz", 2**36, b"PK\x03\x04"),
        "hdf5 chunk that inflates": hdf5(inflating_chunk),
        "hdf5 attributes": lambda p: many_attributes(hdf5(lambda file: None)(p)),
        "hdf5 10,000 names": hdf5(lambda file: [file.create_group(f"g{k}") for k in range(10_000)]),
        "hdf5 soft link": hdf5(lambda file: [file.pop("rewards"), file.__setitem__("rewards", h5py.SoftLink("/actions"))]),
        "hdf5 link to itself": hdf5(lambda f: [f.pop("rewards"), f.__setitem__("rewards", h5py.SoftLink("/rewards"))]),
        "hdf5 link outside": hdf5(
            lambda f: [f.pop("rewards"), f.__setitem__("rewards", h5py.ExternalLink("/etc/passwd", "/"))]
        ),
        "hdf5 group for an array": hdf5(lambda file: [file.pop("rewards"), file.create_group("rewards")]),
        "hdf5 compound": replaced("rewards", data=np.zeros(60, dtype=[("a", "f4"), ("b", "f8")])),
        "hdf5 variable lengths": replaced("rewards", shape=(60,), dtype=h5py.vlen_dtype(np.float32)),
        "hdf5 variable texts": replaced("rewards", shape=(60,), dtype=h5py.string_dtype()),
        "hdf5 arrays in cells": replaced("rewards", shape=(60,), dtype=np.dtype(("f4", (100_000,)))),
        "hdf5 references": replaced("rewards", shape=(60,), dtype=h5py.ref_dtype),
        "hdf5 nothing": replaced("rewards", data=h5py.Empty("f4")),
        "hdf5 one number": replaced("rewards", data=1.0),
        "hdf5 rows of no width": replaced("observations", shape=(10**12, 0), dtype="f4"),
        "hdf5 hollow bytes": replaced("observations", shape=(60, 9_000_000), dtype="u1"),
        "hdf5 32 dimensions": replaced("observations", shape=(60, *[1] * 30), dtype="f4"),
        "hdf5 packed twice": replaced("rewards", shape=(60,), dtype="f4", chunks=(60,), scaleoffset=2, compression="gzip"),
        "hdf5 large chunk": replaced("rewards", shape=(60,), maxshape=(None,), dtype="f4", chunks=(5_000_000,)),
        "hdf5 cut": changed_end(hdf5(lambda file: None), b"", 800),
        "hdf5 sparse": lambda p: sparse(p / "d.h5", 2**36, b"\x89HDF\r\n\x1a\n"),
        "minari sparse metadata": minari(lambda data, file: sparse(data / "metadata.json", 6 * 2**30)),
        "minari pipe for metadata": minari(pipe_metadata),
        "minari deep metadata": metadata("[" * 500_000),
        "minari metadata of many lists": metadata('{"action_space": [' + "[]," * 300_000 + "[]]}"),
        "minari metadata of another kind": metadata("[1, 2]"),
        "minari bounds that are many": metadata(json.dumps({"action_space": {"low": [0] * 300_000, "high": [1] * 300_000}})),
        "minari attributes": lambda p: many_attributes(write_minari(p / "m", LOG), "data/main_data.hdf5"),
        "minari space of many texts": minari(
            lambda data, file: file.attrs.create("action_space", [b"x" * 1000] * 3000, dtype=h5py.string_dtype())
        ),
        "minari space that is long": minari(
            lambda data, file: file.attrs.create("action_space", "[" + "[]," * 5_000_000 + "[]]")
        ),
        "minari groups that widen": minari(widening_groups),
        "minari groups that loop": minari(deep_groups),
        "minari 5,000 observations": minari(wide_groups),
        "minari hollow episode": minari(
            lambda data, file: swapped("actions", shape=(7, 10**9), dtype="f4")(file["episode_0"])
        ),
        "minari long episode": minari(lambda data, file: swapped("rewards", shape=(10**12,), dtype="f4")(file["episode_0"])),
        "minari numbers": minari(lambda data, file: [file.create_group(f"episode_{10**8 + k}") for k in range(10)]),
        "minari file for a group": minari(
            lambda data, file: [file.pop("episode_1"), file.create_dataset("episode_1", data=[1.0])]
        ),
        "d3rlpy hollow ends": d3rlpy(swapped("terminated_0", shape=(10**12,), dtype="b1")),
        "d3rlpy hollow episode": d3rlpy(swapped("observations_1", shape=(5, 10**9), dtype="f4")),
        "d3rlpy gap": d3rlpy(lambda file: file.pop("rewards_1")),
        "d3rlpy texts": d3rlpy(swapped("actions_0", shape=(7,), dtype=h5py.string_dtype())),
        "d3rlpy link": d3rlpy(lambda f: [f.pop("actions_0"), f.__setitem__("actions_0", h5py.SoftLink("/actions_1"))]),
        "parquet long text that repeats": parquet(lambda: {"episode": repeated("x" * 1_000_000, 5000)}),
        "parquet text in place of numbers": parquet(lambda: {"obs_0": repeated("x" * 1_000_000, 5000)}),
        "parquet bytes that repeat": parquet(lambda: {"obs_0": repeated(b"x" * 1_000_000, 5000)}),
        "parquet fixed bytes": parquet(lambda: {"obs_0": arrow.array([b"x" * 100_000] * 100, type=arrow.binary(100_000))}),
        "parquet packed text": parquet(
            lambda: {"episode": [f"{k}" + "x" * 200_000 for k in range(1000)]}, compression="zstd", use_dictionary=False
        ),
        "parquet packed numbers": parquet(lambda: {"obs_0": np.zeros(20_000_000)}, compression="gzip", use_dictionary=False),
        "parquet nulls": parquet(lambda: {"obs_0": arrow.nulls(20_000_000)}),
        "parquet numbers that repeat": parquet(lambda: {"obs_0": repeated(1.0, 20_000_000)}),
        "parquet structures": parquet(lambda: {"obs_0": [{"a": [1.0] * 100}] * 1000}),
        "parquet lists of lists": parquet(lambda: {"obs_0": [[[1.0] * 10] * 10] * 1000}),
        "parquet lists of texts": parquet(lambda: {"obs_0": [["x" * 1000] * 10] * 1000}),
        "parquet uneven lists": parquet(lambda: {"obs_0": [[1.0] * (k % 3) for k in range(1000)]}),
        "parquet decimals": parquet(lambda: {"obs_0": arrow.array([1] * 1000).cast(arrow.decimal128(30, 2))}),
        "parquet 3,000 columns": parquet(lambda: {f"x_{k}": COLUMN[:1].repeat(1000) for k in range(3000)}),
        "parquet long end": changed_end(parquet(), b"\xff\xff\xff\x7fPAR1", 8),
        "parquet end of zeros": changed_end(parquet(), b"\0" * 400 + b"\x90\x01\0\0PAR1", 8),
        "parquet cut": changed_end(parquet(), b"", 100),
        "csv header of a million": csv("", lambda: ["1"], above=lambda: ",".join(f"c{k}" for k in range(1_000_000))),
        "csv open quote": csv(HEADER, lambda: ['"1,2,3', *["1,2,3"] * 500_000]),
        "csv short different texts": csv(f"{HEADER},episode", lambda: (f"1,2,3,{k:x}" for k in range(700_000))),
        "csv long text among short ones": csv(
            f"{HEADER},episode", lambda: ["1,2,3," + "x" * 100_000, *["1,2,3,a"] * 100_000]
        ),
        "csv texts for numbers": csv(HEADER, lambda: (f"x{k},{k}y,z" for k in range(600_000))),
        "csv words for actions": csv(HEADER, lambda: (f"1,word{k},2" for k in range(500_000))),
        "csv tiny rows": csv(HEADER, lambda: ["1,2,3"] * 1_600_000),
        "csv empty cells": csv(HEADER, lambda: [",,"] * 3_000_000),
        "csv empty lines": csv(HEADER, lambda: ["1,2,3"] * 10, above=lambda: "\n" * 8_000_000),
        "csv comments": csv(HEADER, lambda: ["1,2,3"] * 10, above=lambda: "#\n" * 4_000_000),
        "csv one line of zeros": lambda p: sparse(p / "d.csv", LIMIT - 100, f"{HEADER}\n".encode()),
        "csv sparse": lambda p: sparse(p / "d.csv", 2**36, f"{HEADER}\n".encode()),
        "csv uneven": csv(HEADER, lambda: ["1,2,3"] * 400_000 + ["1,2"]),
        "csv long numbers": csv(HEADER, lambda: ["9" * 5000 + ",2,3"] * 1000),
        "csv dates": csv(f"{HEADER},time", lambda: (f"1,2,3,2024-01-01 00:00:00.{k:06d}" for k in range(200_000))),
        "csv of wide letters": csv(f"{HEADER},episode", lambda: ["1,2,3,\U0001f600"] * 400_000, "utf-16"),
        "csv in no encoding": lambda p: (p / "d.csv").write_bytes(b"\xff\xfe" + bytes(range(256)) * 10_000) and p / "d.csv",
        "store of wide rows": store(wide_rows),
        "store of many rows": store(manifest(rows=10**15)),
        "store with negative rows": store(manifest(rows=-5)),
        "store with a link": store(
            lambda path: [(path / "rows.npy").rename(path / "x"), (path / "rows.npy").symlink_to("x")]
        ),
        "store without sense": store(manifest(fields=[["observations", "<f4", [2**30] * 20]])),
        "store with a large manifest": large_manifest,
        "store sealed over noise": store(manifest(rows_sha256="0" * 64)),
        "run with a large state": run_with(),
        "run without files": run_with(files=3),
        "folder of 3,000 files": folder_of(lambda p, k: (p / f"{k}.csv").write_text(f"{HEADER}\n1,2,3\n2,3,4\n"), 3000),
        "folder with a pipe": pipe_among_files,
        "folder of links in a circle": folder_of(lambda p, k: (p / f"{k}.csv").symlink_to(f"{(k + 1) % 20}.csv"), 20),
        "device": lambda p: Path("/dev/zero"),
        "link to a device": lambda p: (p / "d.csv").symlink_to("/dev/zero") or p / "d.csv",
    }


if __name__ == "__main__":
    _measure_all(sys.argv[1:])
