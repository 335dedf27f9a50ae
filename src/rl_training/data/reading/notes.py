"""What a reading tells of itself: plain notes, usual ones, and counts, which add up over the files of a folder."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace


class Usual(str):
    """A note that says nothing unusual, so that the line at the start of a run leaves it out."""

    __slots__ = ()


@dataclass(frozen=True)
class Count:
    """A number of things, and what is said of one and of several of them."""

    number: int
    one: str
    several: str
    usual: bool = False

    def __str__(self) -> str:
        return f"{self.number:,} {self.one if self.number == 1 else self.several}"


Note = str | Count


def unusual(notes: Iterable[Note]) -> list[Note]:
    """Return the notes that a user should see at every start."""
    return [note for note in notes if not (note.usual if isinstance(note, Count) else isinstance(note, Usual))]


def merged_notes(notes: Sequence[Sequence[Note]]) -> list[Note]:
    """Return the notes of all files, each once; counts are added up, others tell in how many files they hold."""
    files: Counter[Note] = Counter()
    sums: Counter[Note] = Counter()
    for note in (note for own in notes for note in own):
        kind = replace(note, number=0) if isinstance(note, Count) else note
        files[kind] += 1
        sums[kind] += note.number if isinstance(note, Count) else 0
    return [_merged(kind, sums[kind], files[kind], len(notes)) for kind in files]


def _merged(kind: Note, number: int, files: int, of: int) -> Note:
    if isinstance(kind, Count):
        return replace(kind, number=number)
    return kind if files == of else f"{kind} (in {files} of {of} files)"
