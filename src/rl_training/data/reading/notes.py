"""What a reading tells of itself: plain notes, usual ones, and counts, which add up over the files of a folder."""

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

_SMALL = 0.02  # share of all, up to which a number is usual


class Usual(str):
    """A note that says nothing unusual, so that the line at the start of a run leaves it out."""

    __slots__ = ()


@dataclass(frozen=True)
class Count:
    """A number of things, and what is said of one and of several of them; with `of` it is usual if it is a small share."""

    number: int
    one: str
    several: str
    usual: bool = False
    of: int = 0  # how many there are in all; 0 where their share says nothing

    def __str__(self) -> str:
        share = f" ({self.number / self.of:.0%} of all)" if self.of and not self.says_nothing_unusual else ""
        return f"{self.number:,} {self.one if self.number == 1 else self.several}{share}"

    @property
    def says_nothing_unusual(self) -> bool:
        """Whether the line at the start of a run leaves it out."""
        return self.usual or (self.of > 0 and self.number <= _SMALL * self.of)

    def plus(self, other: "Count") -> "Count":
        """Return the count of the same things here and in another file."""
        return replace(self, number=self.number + other.number, of=self.of + other.of)


Note = str | Count


def unusual(notes: Iterable[Note]) -> list[Note]:
    """Return the notes that a user should see at every start."""
    return [note for note in notes if not _is_usual(note)]


def _is_usual(note: Note) -> bool:
    return note.says_nothing_unusual if isinstance(note, Count) else isinstance(note, Usual)


def merged_notes(notes: Sequence[Sequence[Note]]) -> list[Note]:
    """Return the notes of all files, each once; counts are added up, others tell in how many files they hold."""
    files: Counter[str] = Counter()
    sums: dict[str | tuple[str, str], Note] = {}
    for note in (note for own in notes for note in own):
        if isinstance(note, Count):
            before = sums.get((note.one, note.several))
            sums[note.one, note.several] = before.plus(note) if isinstance(before, Count) else note
        else:
            files[note] += 1
            sums[note] = note
    return [_in_files(note, files[note], len(notes)) if isinstance(note, str) else note for note in sums.values()]


def _in_files(note: str, files: int, of: int) -> str:
    return note if files == of else f"{note} (in {files} of {of} files)"
