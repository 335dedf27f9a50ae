"""What a reader hands over: fields by our names, not yet checked, with a note of how they were read and what to mend."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rl_training.data.columns import ColumnMap
from rl_training.data.offline_dataset import OPTIONAL, REQUIRED, TransitionDataset, as_flags, with_terminals
from rl_training.errors import DatasetError, did_you_mean

Arrays = dict[str, NDArray[Any]]
Ends = Literal["auto", "timeouts"]
NextObservations = Literal["auto", "following"]
OnBadRows = Literal["error", "drop"]


@dataclass(frozen=True)
class ReadOptions:
    """How a file is to be read where its content alone does not say; each is the mend of some finding of the doctor."""

    columns: ColumnMap | None = None  # of a table
    ends: Ends = "auto"  # `timeouts`: every marked end is a time limit
    next_observations: NextObservations = "auto"  # `following`: made from the following row, whatever the file holds
    reward_lag: int = 0  # the reward of a row is stored this many rows later
    on_bad_rows: OnBadRows = "error"  # `drop`: leave out transitions with NaN or inf, and cut the episode there
    action_scale: float = 1.0  # factor from the stored unit to the real one
    action_low: tuple[float, ...] | None = None  # real bounds, where the file has none
    action_high: tuple[float, ...] | None = None
    max_bytes: int | None = None  # most memory the arrays may take; by default 80 % of what is free


@dataclass
class Reading:
    """Fields as they stand in a file, under our names; `next_observations` are always there, ends may be missing."""

    source: str
    format: str
    arrays: Arrays
    notes: list[str] = field(default_factory=list)
    action_low: Any = None
    action_high: Any = None
    both_ends: NDArray[np.intp] | None = None  # rows marked both as done and as a time limit, before a rule settled it

    @property
    def origin(self) -> str:
        """One line: what was recognised, and how the ends were read."""
        return "; ".join([f"{self.source}: read as {self.format}", *self.notes])

    def dataset(self) -> TransitionDataset:
        """Return the checked dataset, or raise one DatasetError that names every fault."""
        bounds = {"action_low": self.action_low, "action_high": self.action_high}
        return TransitionDataset.from_dict(self.arrays, **bounds, source=self.source, origin=self.origin)


def reading_of(arrays: Mapping[str, Any], found: list[str], source: str, title: str) -> Reading:
    """Return arrays under our names with flags for ends and next observations; what a file left open is settled here.

    `masks` (OGBench) are 0 where nothing is to be bootstrapped, and `terminals` beside them mark the end of a trajectory.
    Without next observations the next row is the next observation.
    """
    named: Arrays = {}
    for name, array in arrays.items():
        target = ALIASES.get(name, name)
        if target in named:
            raise DatasetError(f"{source}: holds `{target}` twice, under two names ({name} is one); remove one")
        named[target] = np.asarray(array)
    for name in ("observations", "actions", "rewards"):
        if name not in named:
            near = did_you_mean(name, found)
            goal = " (goal-conditioned files have none: relabel them for one task first)" if name == "rewards" else ""
            listed = ", ".join(sorted(found)) or "nothing"
            raise DatasetError(f"{source}: `{name}` is missing{goal}.{near} Found: {listed}")
    lengths = {name: array.shape[0] if array.ndim else 0 for name, array in named.items()}
    if len(set(lengths.values())) > 1 or not lengths["rewards"]:
        raise DatasetError(f"{source}: arrays must share one length above 0, got {lengths}")
    notes: list[str] = []
    both = None
    if "dones" in named and "terminals" not in named and "timeouts" in named:
        flags = (as_flags(named[name], name, source) for name in ("dones", "timeouts"))
        both = np.flatnonzero(np.logical_and(*flags))
    values = _with_ends(named, source, notes)
    if "next_observations" not in values:
        return Reading(source, title, following_observations(values, source, notes), notes)
    return Reading(source, title, values, notes, both_ends=both)


def _with_ends(named: Arrays, source: str, notes: list[str]) -> Arrays:
    """True ends as `terminals`, cuts as `timeouts` where the file tells, and a note of what was taken for what."""
    if "masks" in named:
        stop = ~as_flags(named.pop("masks"), "masks", source)
        last = as_flags(named.get("terminals", np.zeros(len(stop))), "terminals", source)
        notes.append("ends: masks of 0 are true ends, `terminals` the last rows of trajectories")
        return {**named, "terminals": stop, "timeouts": last & ~stop}
    if "terminals" not in named and "dones" not in named:
        notes.append("ends: no true ends are marked, so none are assumed")
        named["terminals"] = np.zeros(len(named["rewards"]), dtype=bool)
    elif "dones" in named and "terminals" not in named:
        split = "unless a timeout" if "timeouts" in named else "every one of them, since no timeouts are marked"
        notes.append(f"ends: `dones` are true ends, {split}")
    else:
        notes.append("ends: `terminals` are true ends")
    notes.append("`timeouts` are time limits" if "timeouts" in named else "no time limits are marked")
    return with_terminals(named, source)


def following_observations(values: Arrays, source: str, notes: list[str]) -> Arrays:
    """Return the fields with the next row as the next observation, unless the episode ends.

    On a true end the next observation does not matter and is the row's own. Where an episode is cut it is unknown: that row
    is dropped, and the row before it becomes the cut.
    """
    terminals = as_flags(values["terminals"], "terminals", source)
    timeouts = as_flags(values.get("timeouts", np.zeros_like(terminals)), "timeouts", source) & ~terminals
    timeouts[-1] |= not terminals[-1]
    observations = values["observations"]
    following = np.concatenate((observations[1:], observations[-1:]))
    following[terminals] = observations[terminals]
    notes.append(f"next observations are the following rows; {int(timeouts.sum())} last rows of cut episodes are dropped")
    cut_before = np.append(timeouts[1:], False) & ~terminals
    result = {**values, "next_observations": following, "terminals": terminals, "timeouts": cut_before}
    return {name: array[~timeouts] for name, array in result.items()}


def mended(reading: Reading, options: ReadOptions) -> Reading:
    """Return a reading with the mends that the options ask for; the reading itself where they ask for none."""
    if options == replace(ReadOptions(), columns=options.columns, max_bytes=options.max_bytes):
        return reading
    arrays, notes = dict(reading.arrays), list(reading.notes)
    if options.ends == "timeouts":
        ends = as_flags(arrays["terminals"], "terminals", reading.source)
        marked = arrays.get("timeouts")
        cuts = ends if marked is None else ends | as_flags(marked, "timeouts", reading.source)
        arrays |= {"terminals": np.zeros_like(ends), "timeouts": cuts}
        notes.append(f"every end is taken as a time limit ({int(ends.sum())} were marked as true ends)")
    if options.next_observations == "following":
        arrays.pop("next_observations")
        arrays = following_observations(arrays, reading.source, notes)
    if options.reward_lag:
        arrays = _realigned(arrays, options.reward_lag, reading.source, notes)
    if options.action_scale != 1.0:
        for name in ("actions", "next_actions"):
            if name in arrays:
                arrays[name] = arrays[name] * arrays[name].dtype.type(options.action_scale)
        notes.append(f"actions are multiplied by {options.action_scale:g}")
    if options.on_bad_rows == "drop":
        arrays = _without_bad_rows(arrays, reading.source, notes)
    stale = options.reward_lag or options.on_bad_rows == "drop" or options.ends != "auto"
    if stale and arrays.pop("returns_to_go", None) is not None:
        notes.append("`returns_to_go` belonged to the rows as they were, and are left out")
    low = reading.action_low if options.action_low is None else options.action_low
    high = reading.action_high if options.action_high is None else options.action_high
    return Reading(reading.source, reading.format, arrays, notes, low, high)


def ends_of(arrays: Mapping[str, NDArray[Any]], source: str) -> NDArray[np.bool_]:
    """Return a flag on the last row of each episode, as far as ends are marked."""
    marked = [as_flags(arrays[name], name, source) for name in ("terminals", "timeouts") if name in arrays]
    ends = np.logical_or.reduce(marked) if marked else np.zeros(len(arrays["rewards"]), dtype=bool)
    ends[-1] = True
    return ends


def _realigned(arrays: Arrays, lag: int, source: str, notes: list[str]) -> Arrays:
    """Rewards moved to the rows they belong to; rows whose reward is not in the file are dropped, and cut the episode.

    Where every episode begins (or, for a negative lag, ends) with a reward of 0 that belongs to no row, the move stays
    inside episodes; otherwise the rewards of the whole file are one shifted column.
    """
    rewards, ends = arrays["rewards"].reshape(-1), ends_of(arrays, source)
    rows = np.arange(len(rewards))
    episode = np.cumsum(np.append(False, ends[:-1]))
    stored = rows + lag
    inside = (stored >= 0) & (stored < len(rows))
    edges = np.append(True, ends[:-1]) if lag > 0 else ends
    if not rewards[edges].any():
        inside[inside] &= episode[stored[inside]] == episode[rows[inside]]
    notes.append(f"rewards are moved by {lag} rows; {int((~inside).sum())} rows without one are dropped")
    moved = {**arrays, "rewards": rewards[np.clip(stored, 0, len(rows) - 1)]}
    return _keep(moved, inside, ends)


def _without_bad_rows(arrays: Arrays, source: str, notes: list[str]) -> Arrays:
    """The transitions that are finite; the row before one that is left out becomes a cut."""
    good = np.ones(len(arrays["rewards"]), dtype=bool)
    for name, array in arrays.items():
        if array.dtype.kind == "f" and name != "returns_to_go":
            good &= np.isfinite(array.reshape(len(array), -1)).all(axis=1)
    if not good.any():
        raise DatasetError(f"{source}: every row holds NaN or inf, so nothing is left once they are dropped")
    notes.append(f"{int((~good).sum())} rows with NaN or inf are dropped")
    return _keep(arrays, good, ends_of(arrays, source))


def _keep(arrays: Arrays, kept: NDArray[np.bool_], ends: NDArray[np.bool_]) -> Arrays:
    """The kept rows; a kept row whose successor in its episode is gone becomes a cut."""
    lost_next = np.append(~kept[1:], False) & ~ends
    terminals = arrays["terminals"].reshape(-1).astype(bool)
    timeouts = (ends & ~terminals) | lost_next
    return {name: array[kept] for name, array in {**arrays, "timeouts": timeouts}.items()}


ALIASES: dict[str, str] = {
    "obs": "observations",
    "action": "actions",
    "reward": "rewards",
    "next_obs": "next_observations",
    "done": "dones",
    "terminal": "terminals",
    "terminated": "terminals",
    "terminations": "terminals",
    "timeout": "timeouts",
    "truncated": "timeouts",
    "truncations": "timeouts",
    "next_action": "next_actions",
}
FIELDS = (*REQUIRED, *OPTIONAL, "dones", "masks")
