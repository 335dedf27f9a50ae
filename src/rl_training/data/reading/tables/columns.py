"""The columns of each role: selected by name, by pattern, by expression, or by guessing."""

import fnmatch
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from rl_training.config.columns import ColumnMap
from rl_training.data.reading.tables.expressions import Expression, ExpressionError, column, parse
from rl_training.errors import DatasetError, did_you_mean

WIDE = ("observations", "actions", "next_observations", "next_actions")
FLAGS = ("terminal", "done", "timeout")
AS_WRITTEN = ("episode", "time")  # identifiers and dates, which are not used as numbers

_NUMBERED = r"([_.\[ ]?\d+\]?|[_.].+)"
_GUESSES: dict[str, str] = {
    "observations": rf"(?i:obs|observation|observations|state){_NUMBERED}|s_?\d+",
    "actions": rf"(?i:act|action|actions|control){_NUMBERED}|[ua]_?\d+|(?i:action)",
    "next_observations": rf"(?i:next_(obs|observation|observations|state)){_NUMBERED}",
    "next_actions": rf"(?i:next_(act|action|actions)){_NUMBERED}",
    "reward": r"r|(?i:rew|reward|rewards)",
    "episode": r"ep|(?i:episode|episode_id|episode_index|trajectory|traj|trajectory_id|run_id)",
    "time": r"t|(?i:time|timestamp|datetime|frame_index|time_step|timestep)",
    "terminal": r"(?i:terminal|terminals|terminated)",
    "done": r"(?i:done|dones)",
    "timeout": r"(?i:timeout|timeouts|truncated|truncation)",
}
"""Common column names; single letters only in the case written here, since `T` may be a temperature."""


@dataclass(frozen=True)
class Selected:
    """A column of a field: its name for users, and what it is computed from."""

    name: str
    source: Expression


@dataclass(frozen=True)
class Selection:
    """What each role of a column map selects from a table."""

    wide: Mapping[str, Sequence[Selected]]  # of every role in WIDE, some of them empty
    single: Mapping[str, Selected]  # the reward, and the flags that are mapped
    as_written: Mapping[str, str]  # the columns of the episode and of the time

    @property
    def all(self) -> list[Selected]:
        """Every column used as numbers."""
        return [*(one for chosen in self.wide.values() for one in chosen), *self.single.values()]

    @property
    def numbers(self) -> list[str]:
        """The columns of the table that must be read as numbers, each once."""
        return list(dict.fromkeys(name for one in self.all for name in one.source.columns))

    @property
    def note(self) -> str:
        """Which columns are used for what, in a few words."""
        observations, actions = ([one.name for one in self.wide[role]] for role in WIDE[:2])
        return f"observations {_listed(observations)}, actions {_listed(actions)}, reward `{self.single['reward'].name}`"


def guess_columns(found: Sequence[str], source: str) -> ColumnMap:
    """Return the column map that the names of a table suggest, or a DatasetError that shows how to write one."""
    guess: dict[str, Any] = {}
    for role, pattern in _GUESSES.items():
        names = [name for name in found if re.fullmatch(pattern, name)]
        if role in WIDE:
            guess[role] = _in_number_order(names)
        elif names:
            guess[role] = names[0]
    if not guess["observations"] or not guess["actions"] or "reward" not in guess:
        shown = ", ".join(found[:20]) + (", ..." if len(found) > 20 else "")
        raise DatasetError(
            f"{source}: cannot infer the roles of its columns; name them (`columns`, or --columns map.yaml), such as "
            f"`{{observations: 'obs_*', actions: [u], reward: r, episode: run}}`. Found: {shown or 'none'}"
        )
    return ColumnMap(**guess)


def select(roles: ColumnMap, found: Sequence[str], source: str) -> Selection:
    """Return what a column map selects from the columns found, or a DatasetError for what is not there."""
    as_written = {role: _existing(name, found, source) for role in AS_WRITTEN if (name := getattr(roles, role)) is not None}
    texts = {role: text for role in ("reward", *FLAGS) if (text := getattr(roles, role)) is not None}
    single = {role: _selected(text, found, source) for role, text in texts.items()}
    taken = {role: _named(getattr(roles, role), found, expressions=role == "actions") for role in WIDE}
    taken |= {"single": {*texts.values(), *as_written.values()}}
    wide = {}
    for role in WIDE:
        others = {name for other, names in taken.items() if other != role for name in names}
        wide[role] = _entries(getattr(roles, role), found, others, source)
        ((twice, count),) = Counter(one.name for one in wide[role]).most_common(1) or [("", 0)]
        if count > 1:
            raise DatasetError(f"{source}: two of the {role} are named `{twice}`; give one of them another name")
    return Selection(wide, single, as_written)


def _entries(
    entries: Iterable[str | Mapping[str, str]], found: Sequence[str], taken: Collection[str], source: str
) -> list[Selected]:
    """The columns of one role, each text once, in order; a pattern skips columns in `taken`."""
    chosen: dict[tuple[str, str], Selected] = {}
    for entry in entries:
        if isinstance(entry, Mapping):
            ((name, text),) = entry.items()
            new = [Selected(name, _computed(text, found, source))]
        elif entry not in found and (matches := _matching(entry, found, taken)):
            new = [Selected(name, column(name)) for name in matches]
        else:
            new = [_selected(entry, found, source)]
        for one in new:
            chosen.setdefault((one.name, one.source.text), one)
    return list(chosen.values())


def _selected(text: str, found: Sequence[str], source: str) -> Selected:
    """A column by its own name, also where it is written in backquotes, or an expression by its text."""
    expression = _computed(text, found, source)
    return Selected(expression.text, expression)


def _matching(pattern: str, found: Sequence[str], taken: Collection[str]) -> list[str]:
    """The columns that a pattern matches."""
    if not any(mark in pattern for mark in "*?["):
        return []
    return _in_number_order([name for name in found if name not in taken and fnmatch.fnmatchcase(name, pattern)])


def _named(entries: Iterable[str | Mapping[str, str]], found: Sequence[str], *, expressions: bool) -> set[str]:
    """The columns that a role names, which the patterns of other roles skip; if wanted, also those it computes with."""
    names: set[str] = set()
    for entry in entries:
        for text in entry.values() if isinstance(entry, Mapping) else [entry]:
            if text in found:
                names.add(text)
            elif not _matching(text, found, ()):
                with suppress(ExpressionError):  # reported when the role itself is selected
                    expression = parse(text)
                    names |= set(expression.columns if expressions or expression.is_column else ())
    return names


class MissingColumnError(DatasetError):
    """A column that a file does not have: its names, the likelier one first, and the columns that are there."""

    def __init__(self, source: str, names: Sequence[str], found: Sequence[str], where: str = "") -> None:
        super().__init__(f"{source}: there is no column `{names[0]}`{where}.{did_you_mean(names[0], found)}")
        self.source, self.names, self.found = source, tuple(names), tuple(found)

    def beside(self, having: Mapping[str, int], others: int) -> "DatasetError":
        """Return the error as one of a file among others, given how many of them have a column of each name."""
        name = next((name for name in self.names if having.get(name)), None)
        if name is None:
            return self
        have = f"the other {'file has' if others == 1 else f'{others} files have'}"
        if having[name] < others:
            have = f"{having[name]} of the other {others} files {'has' if having[name] == 1 else 'have'}"
        return DatasetError(f"{self.source}: there is no column `{name}`, which {have}.{did_you_mean(name, self.found)}")


def _existing(text: str, found: Sequence[str], source: str) -> str:
    """The column of a name, or of a pattern that matches one column alone."""
    names = [text] if text in found else _matching(text, found, ())
    if len(names) != 1:
        raise MissingColumnError(source, [text], found)
    return names[0]


def _computed(text: str, found: Sequence[str], source: str) -> Expression:
    """The column of that name, else what the text computes from other columns."""
    if text in found or len(_matching(text, found, ())) == 1:
        return column(_existing(text, found, source))
    try:
        expression = parse(text)
    except ExpressionError as error:
        if re.fullmatch(r"[\w\s.*?\[\]%°]*", text):  # a misspelt name or a pattern without a match, rather than a formula
            raise MissingColumnError(source, [text], found) from None
        near = did_you_mean(text, found)
        raise DatasetError(f"{source}: `{_short(text)}` is neither a column nor an expression: {error}.{near}") from None
    for name, position in expression.columns.items():
        if name not in found:
            if _is_misspelt(text, expression, found):
                raise MissingColumnError(source, [text, name], found)
            where = "" if expression.is_column else f" (position {position} of `{_short(text)}`)"
            raise MissingColumnError(source, [name, text], found, where)
    return column(*expression.columns) if expression.is_column else expression


def _is_misspelt(text: str, expression: Expression, found: Sequence[str]) -> bool:
    """Whether a text is a column but for its signs (`PV-Leistung`, `PV Leistung`), or nearly, and computes from none."""
    plain = [re.sub(r"[\W_]", "", name).casefold() for name in (text, *found)]
    if plain[0] in plain[1:] and text[:1].isalnum():
        return True
    computes = len(expression.columns) == 1 or any(name in found for name in expression.columns)
    return not computes and bool(get_close_matches(text, found, n=1, cutoff=0.8))


def _short(text: str) -> str:
    return text if len(text) <= 80 else f"{text[:77]}..."


def _in_number_order(names: Sequence[str]) -> list[str]:
    """Sort names that differ only in numbers by number; keep the order of others."""
    numbers = [re.findall(r"\d+", name) for name in names]
    if all(numbers) and len({re.sub(r"\d+", "#", name) for name in names}) == 1:
        return sorted(names, key=lambda name: [int(part) for part in re.findall(r"\d+", name)])
    return list(names)


def _listed(names: Sequence[str]) -> str:
    return f"`{names[0]}`" + (f" to `{names[-1]}` ({len(names)})" if len(names) > 1 else "")
