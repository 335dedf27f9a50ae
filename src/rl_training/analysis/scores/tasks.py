"""What scores belong to, an environment, the data that was learned from, or both, and how policies were trained there."""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

DATA = "data"  # in place of an environment where there is none
OFFLINE, ONLINE = "gradient steps on data", "environment steps"
_DIGITS = 6  # of a fingerprint that is shown


class Source(NamedTuple):
    """Where policies of a group were evaluated and what they learned from, as a run or an evaluation tells it."""

    group: str
    env: str
    data: str = ""  # what people call it
    fingerprint: str | None = None  # None for policies that learned from no data
    told: bool = True  # whether it is known at all what they learned from
    steps: Mapping[str, int | None] = {}  # by what they were taken on; None for an unknown number, empty if nothing is told


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


def trained_differently(sources: Sequence[Source], tasks: Sequence[str]) -> Iterator[str]:
    """Where the groups of a task took unequal numbers of steps, or steps of another kind, a line for each such task.

    A step in the environment is worth more than one on data, so their numbers are not added.
    """
    for task in dict.fromkeys(tasks):
        own = [one for one, named in zip(sources, tasks, strict=True) if named == task and one.steps]
        kinds = {tuple(one.steps) for one in own}
        if len(kinds) > 1:
            how = "trained in different ways"
        elif any(len({one.steps[kind] for one in own} - {None}) > 1 for kind in next(iter(kinds), ())):
            how = "trained for unequal numbers of steps"
        else:
            continue
        alone = kinds in ({(OFFLINE,)}, {(ONLINE,)})
        yield f"{task}: {how}: {by_group((one.group, _steps_text(one.steps, alone=alone)) for one in own)}"


def _steps_text(steps: Mapping[str, int | None], *, alone: bool) -> str:
    """The steps in their order; of a kind that all took `alone`, the number is enough."""
    if alone:
        return " ".join(f"{count:,}" for count in steps.values())
    return ", then ".join(kind if count is None else f"{count:,} {kind}" for kind, count in steps.items())


def by_group(values: Iterable[tuple[str, str]]) -> str:
    """Return what is said of each group, such as `a x; b x and y`, each value once."""
    found: dict[str, dict[str, None]] = defaultdict(dict)
    for group, value in values:
        found[group][value] = None
    return "; ".join(f"{group} {' and '.join(own)}" for group, own in found.items())


def different_data(sources: Sequence[Source], tasks: Sequence[str]) -> Iterator[str]:
    """What the groups of a task learned from, a line for each task on which that is not the same."""
    for task in dict.fromkeys(tasks):
        own = [one for one, named in zip(sources, tasks, strict=True) if named == task and one.told]
        if len({one.fingerprint for one in own}) > 1:
            named = ((one.group, f"{one.data} {(one.fingerprint or '')[:_DIGITS]}".strip() or "none") for one in own)
            yield f"{task}: trained on different data: {by_group(named)}"
