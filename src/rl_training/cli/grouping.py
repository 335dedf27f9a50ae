"""Remarks on several policies in few lines: what differs only in its numbers is said once, of all that it holds for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_NUMBER = re.compile(r"(?<![\w.])-?\d+(?:\.\d+)?(?:e[+-]?\d+)?(?!\w)")  # none that is part of a name


@dataclass(frozen=True)
class Remark:
    """What is said of one policy; `alone` is added only where it is said of no other."""

    name: str
    text: str
    alone: str = ""


def grouped(remarks: Sequence[Remark], names: Sequence[str]) -> list[str]:
    """Return a line for each remark, or one for several that differ only in their numbers, in the order of the first.

    `names` are all policies there are. A number that differs is given as `LOWEST to HIGHEST`.
    """
    groups: dict[str, list[Remark]] = {}
    for one in remarks:
        groups.setdefault(_NUMBER.sub("#", one.text), []).append(one)
    return [_line(group, names) for group in groups.values()]


def _line(group: Sequence[Remark], names: Sequence[str]) -> str:
    if len(group) == 1:
        return f"{group[0].name}: {group[0].text}{group[0].alone}"
    own = list(dict.fromkeys(one.name for one in group))
    who = f"all {len(names)}" if len(own) == len(names) else _listed(own)
    return f"{who}: {_spanned([one.text for one in group])}"


def _listed(names: Sequence[str]) -> str:
    """The names, with the members of a run together, such as `runs/a:0,2, runs/b`."""
    members: dict[str, list[str]] = {}
    for name in names:
        run, separator, member = name.rpartition(":")
        whole = separator and member.isdigit()
        members.setdefault(f"{run}:" if whole else name, []).append(member if whole else "")
    return ", ".join(f"{run}{','.join(sorted(found, key=lambda one: int(one or 0)))}" for run, found in members.items())


def _spanned(texts: Sequence[str]) -> str:
    """One text for some that differ only in their numbers."""
    columns = iter(zip(*(_NUMBER.findall(text) for text in texts), strict=True))

    def span(_: re.Match[str]) -> str:
        found = sorted(set(next(columns)), key=float)
        return found[0] if len(found) == 1 else f"{found[0]} to {found[-1]}"

    return _NUMBER.sub(span, texts[0])
