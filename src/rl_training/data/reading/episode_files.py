"""A dataset of several files: a folder, a glob or a list. Every file begins a new episode, and all must agree in columns."""

import glob
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from rl_training.data.reading.base import Candidate
from rl_training.data.reading.guards import check_size
from rl_training.data.reading.notes import Count, Note, merged_notes
from rl_training.data.reading.reading import Reading, whole_episodes
from rl_training.data.reading.refused_files import file_fault
from rl_training.data.reading.source_rows import SourceRows
from rl_training.data.spaces import Names, common_names
from rl_training.errors import DatasetError
from rl_training.storage import natural_order

_NOT_DATA = {
    *(".md", ".rst", ".yaml", ".yml", ".json", ".toml", ".ini", ".cfg", ".conf", ".py", ".ipynb", ".m", ".sh", ".bat"),
    *(".html", ".xml", ".pdf", ".doc", ".docx"),
}
_NOT_DATA_NAMES = {"readme", "license", "licence", "notes", "changelog"}
_MOST_SHOWN = 3
Recognise = Callable[[Candidate], str | None]
"""Returns the format of a path, or None if it holds no data."""


@dataclass(frozen=True)
class Found:
    """The files of a source, in order, and what was skipped beside them."""

    paths: tuple[Path, ...]
    skipped: tuple[str, ...] = ()

    @property
    def notes(self) -> list[Note]:
        """What was skipped, in words."""
        if not self.skipped:
            return []
        shown = f"skipped ({shortened(self.skipped)})"
        return [Count(len(self.skipped), f"other file is {shown}", f"other files are {shown}")]


def find_files(text: str, recognise: Recognise) -> Found:
    """Return the data files that a path means: itself, the files of a folder, or the matches of a glob, in natural order."""
    path = Path(text)
    if path.is_dir() and recognise(Candidate(path)) is None:
        return _sorted_out(text, list(path.iterdir()), recognise)
    if not path.exists() and glob.has_magic(text):
        matches = [Path(match) for match in glob.glob(text, recursive=True)]
        if not matches:
            raise DatasetError(f"{text}: matches no file; check the folder and the pattern")
        return _sorted_out(text, matches, recognise)
    return Found((path,))


def _sorted_out(text: str, entries: Sequence[Path], recognise: Recognise) -> Found:
    """The entries that hold data, all in one format; the others are skipped."""
    formats: dict[Path, str] = {}
    for entry in sorted(entries, key=natural_order):
        try:
            found = None if _is_beside(entry) else recognise(Candidate(entry))
        except OSError as error:
            raise DatasetError(f"{entry}: cannot be read: {error.strerror or error}") from None
        if found is not None:
            formats[entry] = found
    skipped = [entry for entry in sorted(entries, key=natural_order) if entry not in formats]
    if not formats:
        raise DatasetError(f"{text}: holds no data files{_reason(skipped)}")
    if len(counts := Counter(formats.values())) > 1:
        listed = ", ".join(f"{count} {name}" for name, count in counts.most_common())
        raise DatasetError(f"{text}: holds files of several formats ({listed}); name those of one with a glob or a list")
    return Found(tuple(formats), tuple(entry.name for entry in skipped))


def _is_beside(path: Path) -> bool:
    """Whether a file is about the data rather than data: hidden, a readme, a column map."""
    return path.name.startswith(".") or path.suffix.lower() in _NOT_DATA or path.stem.lower() in _NOT_DATA_NAMES


def _reason(skipped: Sequence[Path]) -> str:
    """Why nothing was found, for the first file with a known fault, or for folders inside the folder."""
    for path in skipped:
        if path.is_file() and not path.name.startswith(".") and (fault := file_fault(Candidate(path))):
            return f": {path.name} {fault}"
    inside = next((path for path in skipped if path.is_dir() and not path.name.startswith(".")), None)
    if inside is not None:
        return f"; folders inside it are not searched, but a glob such as '{inside.parent}/*/*.csv' is a dataset"
    return f" ({shortened([path.name for path in skipped])} skipped)" if skipped else ": it is empty"


def joined(paths: Sequence[Path], read: Callable[[Path], Reading], title: str, limit: int | None) -> Reading:
    """Return the transitions of several files one after the other; files that differ in columns are refused."""
    readings: list[Reading] = []
    held = 0
    for path in paths:
        readings.append(read(path))
        held += sum(array.nbytes for array in readings[-1].arrays.values())
        check_size(f"{title}, up to {path.name}", 2 * held, limit)
        _check_agreement(readings[0], readings[-1])
    names = _file_names(paths)
    first = readings[0]
    fields = [name for name in first.arrays if all(name in reading.arrays for reading in readings)]
    kinds = " and ".join(dict.fromkeys(reading.format for reading in readings))
    offsets = np.cumsum([0, *(len(reading.arrays["rewards"]) for reading in readings)])
    both = [r.both_ends + offset for r, offset in zip(readings, offsets, strict=False) if r.both_ends is not None]
    stated = all(reading.action_low is not None and reading.action_high is not None for reading in readings)
    return Reading(
        source=title,
        format=f"{len(paths)} files of {kinds}, {names[0]} to {names[-1]}",
        arrays={name: np.concatenate([reading.arrays[name] for reading in readings]) for name in fields},
        notes=merged_notes([reading.notes for reading in readings]),
        action_low=np.min([reading.action_low for reading in readings], axis=0) if stated else None,
        action_high=np.max([reading.action_high for reading in readings], axis=0) if stated else None,
        both_ends=np.concatenate([np.empty(0, dtype=np.intp), *both]),
        inferred=np.concatenate([_flags(reading.inferred, reading) for reading in readings]),
        ends_known=True,
        observation_names=common_names([r.observation_names for r in readings], "observations", names),
        action_names=common_names([r.action_names for r in readings], "actions", names),
        source_rows=_joined_rows(readings, names),
        time_skips=np.concatenate([_flags(reading.time_skips, reading) for reading in readings]),
        whole=_joined_episodes(readings),
        unseen_rewards=_joined_unseen(readings),
    )


def _flags(found: NDArray[np.bool_] | None, reading: Reading) -> NDArray[np.bool_]:
    return np.zeros(len(reading.arrays["rewards"]), dtype=bool) if found is None else found


def _joined_unseen(readings: Sequence[Reading]) -> NDArray[np.float64] | None:
    """The rewards of steps that were left out, 0 in files without any; None if there are none at all."""
    if all(reading.unseen_rewards is None for reading in readings):
        return None
    own = [np.zeros(len(r.arrays["rewards"])) if r.unseen_rewards is None else r.unseen_rewards for r in readings]
    return np.concatenate(own)


def _joined_episodes(readings: Sequence[Reading]) -> NDArray[np.int64]:
    """The episode of each row, numbered on from file to file."""
    found, first = [], 0
    for reading in readings:
        own = reading.whole
        if own is None:  # it was mapped as it is
            own = whole_episodes(reading.arrays["terminals"] | reading.arrays["timeouts"])
        found.append(first + own)
        first = int(found[-1][-1]) + 1
    return np.concatenate(found)


def _joined_rows(readings: Sequence[Reading], names: Sequence[str]) -> SourceRows:
    parts = [reading.source_rows or SourceRows.counted(len(reading.arrays["rewards"])) for reading in readings]
    lines = [part.lines for part in parts if part.lines is not None]
    return SourceRows(
        np.concatenate([part.rows for part in parts]),
        np.concatenate(lines) if len(lines) == len(parts) else None,
        np.repeat(np.arange(len(parts), dtype=np.int32), [len(part.rows) for part in parts]),
        tuple(names),
    )


def _check_agreement(first: Reading, other: Reading) -> None:
    """Refuse a file whose columns are not those of the first."""
    for field in ("observations", "actions"):
        mine, own = (reading.arrays[field].shape[1:] for reading in (first, other))
        names = [_names_of(reading, field) for reading in (first, other)]
        if mine == own and (None in names or set(names[0] or ()) == set(names[1] or ())):
            continue
        if names[0] is None or names[1] is None:
            difference = f"{own} instead of {mine}"
        else:
            missing = [f"`{name}` is missing" for name in names[0] if name not in names[1]]
            difference = ", ".join([*missing, *(f"`{name}` is new" for name in names[1] if name not in names[0])][:6])
        raise DatasetError(f"{other.source}: its {field} differ from those of {Path(first.source).name}: {difference}")


def _names_of(reading: Reading, field: str) -> Names | None:
    return reading.observation_names if field == "observations" else reading.action_names


def _file_names(paths: Sequence[Path]) -> list[str]:
    """The names of files, with their folders only where two would be equal."""
    names = [path.name for path in paths]
    return names if len(set(names)) == len(names) else [str(path) for path in paths]


def shortened(names: Sequence[str]) -> str:
    """Return the first few names in one text."""
    return ", ".join(names[:_MOST_SHOWN]) + (", ..." if len(names) > _MOST_SHOWN else "")
