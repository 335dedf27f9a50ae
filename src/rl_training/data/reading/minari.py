"""Minari's HDF5 on disk, read with h5py alone: a directory with `data/main_data.hdf5` and one group per episode."""

import contextlib
import json
import os
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.config.blocks import ReadOptions
from rl_training.data.offline_dataset import as_flags
from rl_training.data.reading.base import Candidate, Reader
from rl_training.data.reading.guards import check_size, hdf5_array, hdf5_bytes, hdf5_group, is_group, open_hdf5
from rl_training.data.reading.reading import Arrays, Reading
from rl_training.data.spaces import indexed_names
from rl_training.errors import DatasetError

_DATA_FILES = ("", "main_data.hdf5", "data/main_data.hdf5")
_OBSERVATIONS = "observations"
_MAX_DEPTH = 8  # of nested observations
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
        with open_hdf5(file) as archive:
            numbers = sorted(int(name[8:]) for name in archive if re.fullmatch(r"episode_\d{1,9}", name))
            groups = [hdf5_group(archive, f"episode_{number}", source) for number in numbers]
            if not groups:
                raise DatasetError(f"{path}: holds no episodes")
            items = [_episode(group, source) for group in groups]
            claimed, stored = hdf5_bytes(item for episode in items for item in episode.values())
            check_size(source, 3 * claimed, options.max_bytes, stored)
            paths = [name for name in items[0] if name not in _FIELDS]
            if any(list(episode) != list(items[0]) for episode in items):
                raise DatasetError(f"{source}: its episodes differ in their nested observations")
            values = _joined([_read(episode, paths) for episode in items], source)
            names = tuple(name for path in paths for name in indexed_names(path, items[0][path].shape[1:])) or None
            attributes = dict(archive.attrs)
        low, high = _action_bounds(file, attributes)
        notes = ["ends: `terminations` are true ends, `truncations` time limits", f"{len(items)} episodes"]
        if names:
            notes.append("nested observations in alphabetical order")
        return Reading(source, self.title, values, notes, low, high, observation_names=names)


def _data_file(path: Path) -> Path | None:
    """The HDF5 file of a dataset, given the dataset, its `data` directory or the file itself."""
    return next((path / name for name in _DATA_FILES if (path / name).is_file()), None)


def _episode(group: Any, source: str) -> dict[str, Any]:
    """The arrays of an episode, not yet read, with matching lengths; nested observations by their paths."""
    if missing := [name for name in _FIELDS if name not in group]:
        raise DatasetError(f"{source}: `{missing[0]}` is missing from {group.name}. Found: {', '.join(sorted(group))}")
    nested = is_group(group, _OBSERVATIONS)
    items = (
        dict(_nested(group[_OBSERVATIONS], source)) if nested else {_OBSERVATIONS: hdf5_array(group, _OBSERVATIONS, source)}
    )
    observed = set(items)
    items |= {name: hdf5_array(group, name, source) for name in _FIELDS if name != _OBSERVATIONS}
    length = items["rewards"].shape[0] if items["rewards"].ndim else 0
    lengths = {name: item.shape[0] if item.ndim else 0 for name, item in items.items()}
    if length < 1 or lengths != {name: length + (name in observed) for name in items}:
        raise DatasetError(f"{source}: {group.name} must have one observation more than the rest, got {lengths}")
    return items


def _nested(group: Any, source: str, path: str = "", depth: int = 0) -> Iterator[tuple[str, Any]]:
    """The arrays of Dict observations by their paths, keys in alphabetical order as in an environment."""
    if depth > _MAX_DEPTH:
        raise DatasetError(f"{source}: {group.name} is nested more than {_MAX_DEPTH} levels deep")
    for key in sorted(group):
        own = f"{path}.{key}" if path else key
        if is_group(group, key):
            yield from _nested(group[key], source, own, depth + 1)
        else:
            yield own, hdf5_array(group, key, source)


def _read(episode: dict[str, Any], paths: list[str]) -> dict[str, Any]:
    """The arrays of an episode, nested observations as one."""
    values = {name: item[()] for name, item in episode.items()}
    if paths:
        values[_OBSERVATIONS] = np.concatenate([values[path].reshape(len(values[path]), -1) for path in paths], axis=1)
    return values


def _joined(episodes: list[dict[str, Any]], source: str) -> Arrays:
    def join(name: str, rows: slice = slice(None)) -> Any:
        return np.concatenate([np.asarray(episode[name])[rows] for episode in episodes])

    values = {
        "observations": join("observations", slice(None, -1)),
        "actions": join("actions"),
        "rewards": join("rewards"),
        "next_observations": join("observations", slice(1, None)),
        "terminals": as_flags(join("terminations"), "terminations", source),
        "timeouts": as_flags(join("truncations"), "truncations", source),
    }
    last = np.cumsum([len(episode["rewards"]) for episode in episodes]) - 1
    values["timeouts"][last] |= ~values["terminals"][last]  # the recorder may have cut an episode
    return values


def _action_bounds(file: Path, attributes: dict[str, Any]) -> tuple[Any, Any]:
    """The bounds of the action space, if the metadata records them."""
    texts: list[Any] = [attributes.get("action_space")]
    with contextlib.suppress(OSError, ValueError, RecursionError, AttributeError):
        texts.append(json.loads((file.parent / "metadata.json").read_bytes()).get("action_space"))
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
