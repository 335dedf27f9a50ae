"""Minari's HDF5 on disk, read with h5py alone: a directory with `data/main_data.hdf5` and one group per episode."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import ReadOptions
from rl_training.data.offline_dataset import as_flags
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.guards import Allowance, read_small_file
from rl_training.data.reading.hdf5.arrays import EpisodeArrays, StoredArray, hdf5_array, hdf5_group, open_hdf5
from rl_training.data.reading.notes import Count, Note, Usual
from rl_training.data.reading.reading import Arrays, Reading
from rl_training.data.spaces import Names, indexed_names
from rl_training.errors import DatasetError

_DATA_FILES = ("", "main_data.hdf5", "data/main_data.hdf5")
_OBSERVATIONS = "observations"
_SPACE = "action_space"
_MAX_DEPTH = 8  # of nested observations
_MOST_NESTED = 4096  # arrays of one observation
_COPIES = 4  # of the stored bytes that are in memory at once
_FIELDS = ("observations", "actions", "rewards", "terminations", "truncations")


class MinariReader(Reader):
    """Episodes with one more observation than actions."""

    name = "minari"
    title = "Minari HDF5"

    def recognises(self, candidate: Candidate) -> bool:
        """Return whether a directory or file holds `episode_0` groups."""
        file = _data_file(candidate.path)
        return file is not None and "episode_0" in Candidate(file).hdf5_names

    def read(self, path: Path, options: ReadOptions) -> Reading:
        """Return the episodes one after the other, in the order of their numbers."""
        file = _data_file(path)
        if file is None:
            raise DatasetError(f"{path}: there is no data/main_data.hdf5 in it (Minari's arrow storage is not supported)")
        source = str(path)
        reading, episodes = EpisodeArrays(Allowance(source, options.max_bytes), _COPIES), _Episodes(source)
        with open_hdf5(file) as archive:
            numbers = sorted(int(name[8:]) for name in archive if re.fullmatch(r"episode_\d{1,9}", name))
            for number in numbers:
                group = hdf5_group(archive, name := f"episode_{number}")
                if group is None:
                    raise DatasetError(f"{source}: `{name}` is not a plain group inside the file")
                episodes.add(_episode(group, source), reading)
            space = _space_attribute(archive)
        low, high = _action_bounds(file, space)
        notes: list[Note] = [
            Usual("ends: `terminations` are true ends, `truncations` time limits"),
            Count(len(numbers), "episode", "episodes", usual=True),
        ]
        names = episodes.names
        if names:
            notes.append("nested observations in alphabetical order")
        return Reading(source, self.title, episodes.joined(), notes, low, high, observation_names=names)


class _Episodes:
    """The arrays of episodes, added one after the other; nested observations as one array."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._nested: dict[str, tuple[int, ...]] | None = None  # the paths of nested observations, and their shapes
        self._parts: dict[str, list[NDArray[Any]]] = {name: [] for name in _FIELDS}

    @property
    def names(self) -> Names | None:
        """The names of nested observations."""
        return tuple(name for path, shape in (self._nested or {}).items() for name in indexed_names(path, shape)) or None

    def add(self, episode: dict[str, StoredArray], reading: EpisodeArrays) -> None:
        """Read an episode, whose nested observations must be those of the first."""
        nested = {name: item.shape[1:] for name, item in episode.items() if name not in _FIELDS}
        if self._nested is None:
            self._nested = nested
        if list(nested) != list(self._nested):
            raise DatasetError(f"{self._source}: its episodes differ in their nested observations")
        for name in _FIELDS:
            if name in episode:
                self._parts[name].append(reading.read(episode[name]))
        if nested:
            columns = [reading.read(episode[path]) for path in nested]
            self._parts[_OBSERVATIONS].append(np.concatenate([c.reshape(len(c), -1) for c in columns], axis=1))

    def joined(self) -> Arrays:
        """Return the transitions; what was read is let go on the way."""
        if not self._parts["rewards"]:
            raise DatasetError(f"{self._source}: holds no episodes")
        last = np.cumsum([len(rewards) for rewards in self._parts["rewards"]]) - 1
        observations = self._parts.pop(_OBSERVATIONS)
        values = {name: np.concatenate(self._parts.pop(name)) for name in _FIELDS if name != _OBSERVATIONS}
        result = {
            "observations": np.concatenate([part[:-1] for part in observations]),
            "actions": values["actions"],
            "rewards": values["rewards"],
            "next_observations": np.concatenate([part[1:] for part in observations]),
            "terminals": as_flags(values["terminations"], "terminations", self._source),
            "timeouts": as_flags(values["truncations"], "truncations", self._source),
        }
        result["timeouts"][last] |= ~result["terminals"][last]  # the recorder may have cut an episode
        return result


def _data_file(path: Path) -> Path | None:
    """The HDF5 file of a dataset, given the dataset, its `data` directory or the file itself."""
    return next((path / name for name in _DATA_FILES if (path / name).is_file()), None)


def _episode(group: Any, source: str) -> dict[str, StoredArray]:
    """The arrays of an episode, not yet read, with matching lengths; nested observations by their paths."""
    try:
        observed = _observations(group, source)
        items = observed | {name: hdf5_array(group, name, source) for name in _FIELDS if name != _OBSERVATIONS}
    except KeyError:
        missing = next(name for name in _FIELDS if name not in group)
        raise DatasetError(f"{source}: `{missing}` is missing from {group.name}. Found: {', '.join(sorted(group))}") from None
    length = items["rewards"].length
    lengths = {name: item.length for name, item in items.items()}
    if length < 1 or lengths != {name: length + (name in observed) for name in items}:
        raise DatasetError(f"{source}: {group.name} must have one observation more than the rest, got {lengths}")
    return items


def _observations(group: Any, source: str) -> dict[str, StoredArray]:
    """The observations of an episode: one array, or nested ones by their paths."""
    nested = hdf5_group(group, _OBSERVATIONS)
    if nested is None:
        return {_OBSERVATIONS: hdf5_array(group, _OBSERVATIONS, source)}
    items = dict(islice(_nested(nested, source), _MOST_NESTED + 1))
    if len(items) > _MOST_NESTED:
        raise DatasetError(f"{source}: {group.name} nests more than {_MOST_NESTED:,} observations")
    return items


def _nested(group: Any, source: str, path: str = "", depth: int = 0) -> Iterator[tuple[str, StoredArray]]:
    """The arrays of Dict observations by their paths, keys in alphabetical order as in an environment."""
    if depth > _MAX_DEPTH:
        raise DatasetError(f"{source}: {group.name} is nested more than {_MAX_DEPTH} levels deep")
    for key in sorted(group):
        own = f"{path}.{key}" if path else key
        inner = hdf5_group(group, key)
        if inner is not None:
            yield from _nested(inner, source, own, depth + 1)
        else:
            yield own, hdf5_array(group, key, source)


def _space_attribute(archive: Any) -> str | bytes | None:
    """The attribute `action_space`, which Minari 0.4 wrote, if it is one text; no other attribute is read."""
    if _SPACE not in archive.attrs or archive.attrs.get_id(_SPACE).shape != ():
        return None
    text = archive.attrs[_SPACE]
    return text if isinstance(text, str | bytes) else None


def _action_bounds(file: Path, attribute: str | bytes | None) -> tuple[Any, Any]:
    """The bounds of the action space, if the metadata records them."""
    texts: list[Any] = [attribute]
    metadata = file.parent / "metadata.json"
    if metadata.exists():
        data = read_small_file(metadata)
        with contextlib.suppress(ValueError, RecursionError, AttributeError):
            texts.append(json.loads(data).get(_SPACE))
    for text in texts:
        with contextlib.suppress(ValueError, TypeError, RecursionError, KeyError):
            space = json.loads(text) if isinstance(text, str | bytes) else text
            low, high = (np.asarray(space[key], dtype=np.float32).reshape(-1) for key in ("low", "high"))
            if np.isfinite(low).all() and np.isfinite(high).all():
                return low, high
    return None, None


def minari_path(dataset_id: str) -> Path:
    """Return where the Minari package stores a downloaded dataset."""
    try:
        import minari  # type: ignore[import-not-found,unused-ignore]  # noqa: F401
    except ImportError:
        raise DatasetError('minari: ids need the package: pip install "rl-training[minari]"') from None
    root = Path(os.environ.get("MINARI_DATASETS_PATH", Path.home() / ".minari" / "datasets"))
    path = (root / dataset_id).resolve()
    if root.resolve() not in path.parents or not path.is_dir():
        raise DatasetError(f"minari:{dataset_id}: is not in {root}; get it with `minari download {dataset_id}`")
    return path
