"""What scores belong to, an environment, the data that was learned from, or both, and what that is called."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import NamedTuple

DATA = "data"  # in place of an environment where there is none
_DIGITS = 6  # of a fingerprint that is shown


class Source(NamedTuple):
    """Where policies of a group were evaluated and what they learned from, as a run or an evaluation tells it."""

    group: str
    env: str
    data: str = ""  # what people call it
    fingerprint: str | None = None  # None for policies that learned from no data
    told: bool = True  # whether it is known at all what they learned from


def task_names(sources: Sequence[Source]) -> list[str]:
    """Return the task of each source: its environment, and its data too where a group has several sets in it.

    Without an environment the data alone is the task: figures on other rows cannot be compared.
    """
    kinds: dict[tuple[str, str], set[str]] = defaultdict(set)
    for one in sources:
        if one.fingerprint:
            kinds[one.group, one.env].add(one.fingerprint)
    split = {env for (_, env), found in kinds.items() if len(found) > 1}
    labels: dict[str | None, str] = {}  # the same data may have other names elsewhere: the first is kept
    for one in sources:
        labels.setdefault(one.fingerprint, one.data)

    def name(one: Source) -> str:
        if one.env not in split and one.env != DATA:
            return one.env
        label = labels[one.fingerprint]
        unclear = list(labels.values()).count(label) > 1 and one.fingerprint
        named = (label, f"({str(one.fingerprint)[:_DIGITS]})" if unclear else "")
        return " ".join(filter(None, named if one.env == DATA and label else (one.env, *named)))

    return [name(one) for one in sources]


def other_names(sources: Sequence[Source], tasks: Sequence[str]) -> dict[str, str]:
    """Return the task that each other name means by which scores may call it: its data, or environment and data.

    A name that could mean two tasks means none, and neither does that of data where a task has several sets.
    """
    meant: dict[str, set[str]] = defaultdict(set)
    for task in dict.fromkeys(tasks):
        own = [one for one, named in zip(sources, tasks, strict=True) if named == task]
        if len({one.fingerprint for one in own}) == 1:
            for one in own:
                for name in filter(None, (one.data, one.data and f"{one.env} {one.data}")):
                    meant[name].add(task)
    return {name: found.pop() for name, found in meant.items() if len(found) == 1 and name not in tasks}


def different_data(sources: Sequence[Source], tasks: Sequence[str]) -> Iterator[str]:
    """What the groups of a task learned from, a line for each task on which that is not the same."""
    for task in dict.fromkeys(tasks):
        own = [one for one, named in zip(sources, tasks, strict=True) if named == task and one.told]
        if len({one.fingerprint for one in own}) > 1:
            by_group: dict[str, dict[str, None]] = defaultdict(dict)
            for one in own:
                by_group[one.group][f"{one.data} {(one.fingerprint or '')[:_DIGITS]}".strip() or "none"] = None
            shown = "; ".join(f"{group} {' and '.join(found)}" for group, found in by_group.items())
            yield f"{task}: trained on different data: {shown}"
