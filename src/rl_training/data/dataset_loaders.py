"""Datasets from files: npz, flat HDF5 in D4RL's style, and the old d3rlpy HDF5 layout. Nothing in a file is executed."""

import os
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, Final

import numpy as np
from numpy.typing import NDArray

from rl_training.data.offline_dataset import OPTIONAL, REQUIRED, TransitionDataset, as_flags, with_terminals
from rl_training.errors import DatasetError, did_you_mean

Arrays = dict[str, NDArray[Any]]

ALIASES: Final = MappingProxyType(
    {
        "obs": "observations",
        "action": "actions",
        "reward": "rewards",
        "next_obs": "next_observations",
        "done": "dones",
        "terminal": "terminals",
        "terminated": "terminals",
        "terminations": "terminals",
        "timeout": "timeouts",
        "truncated": "timeouts",
        "truncations": "timeouts",
    }
)
_FIELDS = (*REQUIRED, *OPTIONAL, "dones", "episode_terminals")


def load_dataset(path: str | os.PathLike[str], format: str = "auto") -> TransitionDataset:
    """Return the checked dataset in a file, its format recognised by content unless it is named."""
    file = Path(path)
    if not file.is_file():
        raise DatasetError(f"{file}: there is no such file; give the path of an .npz or HDF5 file")
    try:
        kind = _recognise(file) if format == "auto" else format
    except OSError as error:
        raise DatasetError(f"{file}: cannot be read: {str(error).splitlines()[0]}") from error
    if kind not in READERS:
        raise DatasetError(f"unknown format {format!r}.{did_you_mean(format, READERS)} There are: auto, {', '.join(READERS)}")
    try:
        return TransitionDataset.from_dict(READERS[kind](file), source=str(file))
    except DatasetError:
        raise
    except (OSError, ValueError, LookupError, TypeError, EOFError, RuntimeError, zipfile.BadZipFile, zlib.error) as error:
        raise DatasetError(f"{file}: cannot be read as {kind}: {str(error).splitlines()[0]}") from error


def _recognise(file: Path) -> str:
    """The format of a file by its first bytes and keys."""
    with file.open("rb") as stream:
        head = stream.read(8)
    if head[:4] == b"PK\x03\x04":
        return "npz"
    if head == b"\x89HDF\r\n\x1a\n":
        import h5py

        with h5py.File(file, "r") as archive:
            return "d3rlpy" if "episode_terminals" in archive and "timeouts" not in archive else "hdf5"
    raise DatasetError(f"{file}: neither an npz nor an HDF5 file; convert it, or name its format")


def _check_size(file: Path, needed: int) -> None:
    """Refuse, before anything is allocated, a file that unpacks to more than the machine's free memory allows."""
    free = os.sysconf("SC_AVPHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    if needed > max(0.8 * free, 2**28):
        raise DatasetError(f"{file}: holds {needed:,} bytes of arrays, more than 80 % of the {free:,} bytes of free memory")


def _read_npz(file: Path) -> Arrays:
    with zipfile.ZipFile(file) as archive:
        _check_size(file, sum(entry.file_size for entry in archive.infolist()))
    with np.load(file, allow_pickle=False) as archive:
        arrays = {name: archive[name] for name in archive.files if ALIASES.get(name, name) in _FIELDS}
        return _transitions(arrays, archive.files, file)


def _read_hdf5_arrays(file: Path) -> tuple[Arrays, list[str]]:
    """The top-level datasets of a file; links out of it and storage outside it are refused."""
    import h5py

    arrays: Arrays = {}
    with h5py.File(file, "r") as archive:
        names = list(archive)
        wanted = [name for name in names if ALIASES.get(name, name) in _FIELDS]
        for name in wanted:
            if not isinstance(archive.get(name, getlink=True), h5py.HardLink):
                raise DatasetError(f"{file}: `{name}` is a link to somewhere else; only data inside the file is read")
            item = archive[name]
            if not isinstance(item, h5py.Dataset) or item.external or item.is_virtual:
                raise DatasetError(f"{file}: `{name}` is not a plain array stored inside the file")
        _check_size(file, sum(int(archive[name].nbytes) for name in wanted))
        for name in wanted:
            arrays[name] = archive[name][()]
    return arrays, names


def _read_hdf5(file: Path) -> Arrays:
    return _transitions(*_read_hdf5_arrays(file), file)


def _transitions(arrays: Mapping[str, NDArray[Any]], found: list[str], file: Path) -> Arrays:
    """Our field names; `next_observations` made from the following row where the file has none."""
    named: Arrays = {}
    for name, array in arrays.items():
        field = ALIASES.get(name, name)
        if field in named:
            raise DatasetError(f"{file}: holds `{field}` twice, under two names ({name} is one); remove one")
        if name != "episode_terminals":
            named[field] = array
    values = with_terminals(named, str(file))
    for name in ("observations", "actions", "rewards"):
        if name not in values:
            near = did_you_mean(name, found)
            raise DatasetError(f"{file}: `{name}` is missing.{near} Found: {', '.join(sorted(found)) or 'nothing'}")
    if "terminals" not in values:
        warnings.warn(f"{file}: no true ends are marked (no `terminals` or `dones`), so none are assumed", stacklevel=2)
        values["terminals"] = np.zeros(len(values["rewards"]), dtype=bool)
    lengths = {name: len(array) for name, array in values.items()}
    if len(set(lengths.values())) > 1 or not lengths["rewards"]:
        raise DatasetError(f"{file}: arrays must share one length above 0, got {lengths}")
    return values if "next_observations" in values else _following_observations(values, str(file))


def _following_observations(values: Arrays, source: str) -> Arrays:
    """D4RL without next observations: the next row is the next observation, unless the episode ends.

    On a true end the next observation does not matter and is the row's own. Where an episode is cut it is unknown: that row
    is dropped, and the row before it becomes the cut.
    """
    terminals = as_flags(values["terminals"], "terminals", source)
    timeouts = as_flags(values.get("timeouts", np.zeros_like(terminals)), "timeouts", source) & ~terminals
    timeouts[-1] |= not terminals[-1]
    observations = values["observations"]
    following = np.concatenate((observations[1:], observations[-1:]))
    following[terminals] = observations[terminals]
    cut_before = np.append(timeouts[1:], False) & ~terminals
    result = {**values, "next_observations": following, "terminals": terminals, "timeouts": cut_before}
    return {name: array[~timeouts] for name, array in result.items()}


def _read_d3rlpy(file: Path) -> Arrays:
    """The old d3rlpy layout: the reward of row t + 1 belongs to row t, and an episode's last row is only an observation."""
    arrays, found = _read_hdf5_arrays(file)
    for name in ("observations", "actions", "rewards", "terminals", "episode_terminals"):
        if name not in arrays:
            raise DatasetError(f"{file}: `{name}` is missing. Found: {', '.join(sorted(found))}")
    ends = as_flags(arrays["episode_terminals"], "episode_terminals", str(file))
    ends[-1] = True
    rows = np.flatnonzero(~ends)  # every row that has a successor in its episode
    terminals = as_flags(arrays["terminals"], "terminals", str(file))[rows + 1]
    return {
        "observations": arrays["observations"][rows],
        "actions": arrays["actions"][rows],
        "rewards": arrays["rewards"].reshape(-1)[rows + 1],
        "next_observations": arrays["observations"][rows + 1],
        "terminals": terminals,
        "timeouts": ends[rows + 1] & ~terminals,
    }


READERS: Final[Mapping[str, Callable[[Path], Arrays]]] = MappingProxyType(
    {"npz": _read_npz, "hdf5": _read_hdf5, "d3rlpy": _read_d3rlpy}
)
