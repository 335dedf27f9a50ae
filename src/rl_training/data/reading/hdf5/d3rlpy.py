"""d3rlpy's HDF5: flat before 2.0 (rewards shifted by a row before 1.0), one set of arrays per episode since."""

import re
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import ReadOptions
from rl_training.data.offline_dataset import as_flags
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.guards import Allowance
from rl_training.data.reading.hdf5.arrays import EpisodeArrays, StoredArray, hdf5_array, open_hdf5
from rl_training.data.reading.hdf5.flat import flat_arrays
from rl_training.data.reading.notes import Note, Usual
from rl_training.data.reading.reading import Arrays, Reading, copies_held
from rl_training.data.reading.source_rows import SourceRows
from rl_training.errors import DatasetError

_OLD = ("observations", "actions", "rewards", "terminals", "episode_terminals")
_CURRENT = ("observations", "actions", "rewards", "terminated")
_ENDS = Usual("ends: `terminals` are true ends, other `episode_terminals` time limits")
_UNSHIFTED = "version"  # a flat file with this key was written by 1.x


class D3rlpyReader(Reader):
    """What d3rlpy's `MDPDataset.dump` (before 2.0) and `ReplayBuffer.dump` (since) write."""

    name = "d3rlpy"
    title = "d3rlpy HDF5"

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether there is an episode 0, or the `episode_terminals` of the old layout."""
        names = candidate.hdf5_names
        return _is_current(names) or ("episode_terminals" in names and "timeouts" not in names)

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the transitions of either layout."""
        return (_read_current if _is_current(Candidate(path).hdf5_names) else _read_old)(path, options)


def _is_current(names: frozenset[str]) -> bool:
    return {"actions_0", "rewards_0"} <= names


def _read_old(path: Path, options: ReadOptions) -> Reading:
    """Before 1.0 the reward of row t + 1 belongs to row t, and an episode's last row is only an observation."""
    arrays, found = flat_arrays(path, _OLD, options)
    if missing := [name for name in _OLD if name not in arrays]:
        raise DatasetError(f"{path}: `{missing[0]}` is missing. Found: {', '.join(sorted(found))}")
    lengths = {name: array.shape[0] if array.ndim else 0 for name, array in arrays.items()}
    if len(set(lengths.values())) > 1 or not lengths["rewards"]:
        raise DatasetError(f"{path}: arrays must share one length above 0, got {lengths}")
    ends = as_flags(arrays["episode_terminals"], "episode_terminals", str(path))
    if _UNSHIFTED in found:
        terminals = as_flags(arrays["terminals"], "terminals", str(path))
        values = {name: arrays[name] for name in _OLD[:3]} | {"terminals": terminals, "timeouts": ends & ~terminals}
        notes: list[Note] = [_ENDS]
        return Reading(str(path), "d3rlpy HDF5, layout of 1.x", values, notes)
    ends[-1] = True
    rows = np.flatnonzero(~ends)  # every row that has a successor in its episode
    if not len(rows):
        raise DatasetError(f"{path}: no episode has two rows, so there is no transition")
    terminals = as_flags(arrays["terminals"], "terminals", str(path))[rows + 1]
    values = {
        "observations": arrays["observations"][rows],
        "actions": arrays["actions"][rows],
        "rewards": arrays["rewards"].reshape(-1)[rows + 1],
        "next_observations": arrays["observations"][rows + 1],
        "terminals": terminals,
        "timeouts": ends[rows + 1] & ~terminals,
    }
    notes = [
        "rewards belong to the row before, so an episode of L rows is L - 1 transitions",
        _ENDS,
    ]
    return Reading(str(path), "d3rlpy HDF5, old layout", values, notes, source_rows=SourceRows(rows.astype(np.int64)))


def _read_current(path: Path, options: ReadOptions) -> Reading:
    """Concatenate the episodes; `settle` drops the last row of one without a true end, as its successor is unknown."""
    source = str(path)
    parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _CURRENT[:3]}
    ended, reading = [], EpisodeArrays(Allowance(source, options.max_bytes), copies_held(_CURRENT, options))
    with open_hdf5(path) as archive:
        numbers = sorted(int(name.split("_")[1]) for name in archive if re.fullmatch(r"rewards_\d{1,9}", name))
        if numbers != list(range(len(numbers))):
            raise DatasetError(f"{path}: its episodes are not numbered from 0 without a gap")
        for number in numbers:
            episode = _episode(archive, number, source)
            ended.append(bool(reading.read(episode["terminated"]).any()))
            for name, own in parts.items():
                own.append(reading.read(episode[name]))
    last = np.cumsum([len(rewards) for rewards in parts["rewards"]]) - 1
    values: Arrays = {name: np.concatenate(parts.pop(name)) for name in _CURRENT[:3]}
    values["rewards"] = values["rewards"].reshape(-1)
    values["terminals"], values["timeouts"] = np.zeros((2, len(values["rewards"])), dtype=bool)
    values["terminals"][last[np.array(ended)]] = values["timeouts"][last[~np.array(ended)]] = True
    notes: list[Note] = [Usual("ends: `terminated` episodes have a true end, others a time limit")]
    return Reading(source, "d3rlpy HDF5", values, notes)


def _episode(archive: Any, number: int, source: str) -> dict[str, StoredArray]:
    """The arrays of an episode, not yet read, of one length."""
    try:
        items = {name: hdf5_array(archive, f"{name}_{number}", source) for name in _CURRENT}
    except KeyError:
        missing = next(f"{name}_{number}" for name in _CURRENT if f"{name}_{number}" not in archive)
        several = " (several observation arrays are not supported)" if f"{missing}_0" in archive else ""
        raise DatasetError(f"{source}: `{missing}` is missing{several}") from None
    lengths = {name: items[name].length for name in _CURRENT[:3]}
    if len(set(lengths.values())) > 1 or not lengths["rewards"]:
        raise DatasetError(f"{source}: the arrays of episode {number} must share one length above 0, got {lengths}")
    return items
