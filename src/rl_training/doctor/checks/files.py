"""Checks of the files of a dataset, or of the stretches of a single one, against each other."""

from collections.abc import Iterator, Sequence

import numpy as np

from rl_training.data.row_blocks import spread_evenly
from rl_training.doctor.charts import short
from rl_training.doctor.evidence import CheckInput, Rows
from rl_training.doctor.findings import Finding
from rl_training.doctor.units import Numbers, OtherUnit, Profiles, other_units, profiles_of

_ROWS = 5000  # of a file, which tell what it is like
_MOST_COLUMNS = 256
_SHOWN = 3
_STRETCHES, _SHORTEST = 20, 100  # of a single file, and rows of each
_GROWN = 1.5  # times, that a column swings wider than before


def check_units(inputs: CheckInput) -> Iterator[Finding]:
    """Columns that some files have in another unit than the others."""
    places = inputs.source_rows
    if places is None or places.files is None or len(places.names) < 2:
        yield from _midway(inputs)
        return
    files = np.unique(places.files)
    chosen = [_some(np.flatnonzero(places.files == file)) for file in files]
    names = [places.names[file] for file in files]
    profiles = profiles_of(_rows_and_moves(inputs, rows) for rows in chosen)
    for unit in _told(profiles):
        yield _finding(inputs, unit, profiles, names)


def _midway(inputs: CheckInput) -> Iterator[Finding]:
    """Columns of a single file that change their unit once, and keep it."""
    rows = np.arange(len(inputs.data))
    if len(rows) < _STRETCHES * _SHORTEST:
        return
    stretches = np.array_split(rows, _STRETCHES)
    profiles = profiles_of(_rows_and_moves(inputs, _some(stretch)) for stretch in stretches)
    for unit in _told(profiles):
        first = int(min(unit.files.max(), unit.others.max())) + 1
        if len(unit.files) + len(unit.others) == _STRETCHES and first == int(max(unit.files.min(), unit.others.min())):
            if _is_amplitude(inputs, profiles, unit, first):
                continue
            before, after = (_range(profiles, own, unit.column) for own in (np.arange(first), np.arange(first, _STRETCHES)))
            row = int(stretches[first][0])
            place = f"row {row}" if inputs.source_rows is None else inputs.source_rows.place(row)
            seen = f"{_named(inputs, unit.column)} is {before} up to about {place}, and {after} from there on"
            evidence = f"{seen}: in level, spread and steps the larger are {unit.conversion}"
            convert = f"convert one part ({unit.conversion.undone(larger=unit.larger)}), or leave it out of the data"
            yield Finding("unit-change", "warning", evidence, f"if the unit differs, {convert}")


def _told(profiles: Profiles) -> list[OtherUnit]:
    """The columns in another unit; rewards, which come last, only alone, since they may be computed from the others."""
    parts = (profiles.low, profiles.middle, profiles.high, profiles.steps)
    without_rewards = Profiles(profiles.rows, *(part[:, :-1] for part in parts))
    return list(other_units(without_rewards)) or list(other_units(profiles))


def _is_amplitude(inputs: CheckInput, profiles: Profiles, unit: OtherUnit, first: int) -> bool:
    """Whether a column swings wider about 0 from there on (or until then), and readings or commands do so with it.

    Commands of ten times the amplitude move the plant more; commands in another unit do not.
    """
    column, width = unit.column, min(inputs.data.observation_dim, _MOST_COLUMNS)
    about_zero = profiles.low[:, column].max() < 0.0 < profiles.high[:, column].min()
    sides = np.arange(max(1, first - 1)), np.arange(min(first + 1, _STRETCHES - 1), _STRETCHES)  # the change is between them
    narrow, wide = sides if (unit.files[0] >= first) == unit.larger else sides[::-1]
    grown = profiles.spread[wide].min(axis=0) > _GROWN * profiles.spread[narrow].max(axis=0)
    others = grown[width:] if column < width else grown[:width]
    return bool(unit.conversion.offset == 0.0 and about_zero and others.any())


def _some(rows: Rows) -> Rows:
    return rows[spread_evenly(len(rows), _ROWS)]


def _rows_and_moves(inputs: CheckInput, rows: Rows) -> tuple[Numbers, Numbers]:
    """Rows of observations, actions and rewards side by side, and how far they move from each to the next of its episode."""
    inside = rows[~inputs.data.episode_ends[rows]]
    return _values(inputs, rows), np.abs(_values(inputs, inside + 1) - _values(inputs, inside))


def _values(inputs: CheckInput, rows: Rows) -> Numbers:
    roles = (inputs.data.observations, inputs.data.actions, inputs.data.rewards[:, None])
    return np.concatenate([values[rows, :_MOST_COLUMNS].astype(np.float64) for values in roles], axis=1)


def _named(inputs: CheckInput, column: int) -> str:
    observed, commanded = (min(width, _MOST_COLUMNS) for width in (inputs.data.observation_dim, inputs.data.action_dim))
    if column == observed + commanded:
        return "`rewards`"
    return inputs.named("observations", [column]) if column < observed else inputs.named("actions", [column - observed])


def _finding(inputs: CheckInput, unit: OtherUnit, profiles: Profiles, names: Sequence[str]) -> Finding:
    """Say which column of which files, both ranges, and how to convert."""
    here, there = (_range(profiles, own, unit.column) for own in (unit.files, unit.others))
    which, them = ("this file", "it") if len(unit.files) == 1 else ("these files", "them")
    more = f" and {len(unit.files) - _SHOWN} more" if len(unit.files) > _SHOWN else ""
    few = ", ".join(names[file] for file in unit.files[:_SHOWN]) + more
    rest = names[unit.others[0]] if len(unit.others) == 1 else f"{len(unit.others)} others"
    seen = f"{_named(inputs, unit.column)} is {here} in {few}, and {there} in {rest}"
    evidence = f"{seen}: in level, spread and steps the larger are {unit.conversion}"
    convert = f"convert it in {which} ({unit.conversion.undone(larger=unit.larger)}), or leave {them} out of the data"
    return Finding("unit-change", "warning", evidence, f"if the unit differs, {convert}")


def _range(profiles: Profiles, files: Rows, column: int) -> str:
    return f"{short(profiles.low[files, column].min())} to {short(profiles.high[files, column].max())}"
