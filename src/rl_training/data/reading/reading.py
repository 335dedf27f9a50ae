"""What a reader returns, and how it is settled: ends, rewards, next observations and drops, in this order.

A reader returns rows as they are in the file, under our names. `settle` turns them into transitions with the requested
fixes; the doctor checks the result before anything is refused.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import ReadOptions
from rl_training.data.offline_dataset import (
    OPTIONAL,
    REQUIRED,
    TransitionDataset,
    as_flags,
    cuts_in,
    ends_of,
    following_rows,
)
from rl_training.data.reading.bounds import requested_bounds
from rl_training.data.reading.clocks import clock_skips
from rl_training.data.reading.notes import Count, Note, Usual, unusual
from rl_training.data.reading.source_rows import SourceRows
from rl_training.data.reading.unsupported import refuse_unsupported
from rl_training.data.returns import rewards_of_steps_after
from rl_training.data.row_blocks import bad_rows
from rl_training.data.spaces import Names
from rl_training.errors import DatasetError, did_you_mean

Arrays = dict[str, NDArray[Any]]

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
BOUNDS = ("action_low", "action_high")
FIELDS = (*REQUIRED, *OPTIONAL, "dones", "masks")
NO_LIMITS = Usual("no time limits are marked")
KNOWN_NAMES = (*FIELDS, *ALIASES, *BOUNDS)


@dataclass
class Reading:
    """Fields under our names; before `settle` as they are in the file, where ends and next observations may be missing."""

    source: str
    format: str
    arrays: Arrays
    notes: list[Note] = field(default_factory=list)
    action_low: Any = None
    action_high: Any = None
    both_ends: NDArray[np.intp] | None = None  # rows of the reading that the file marks both as an end and as a time limit
    inferred: NDArray[np.bool_] | None = None  # unmarked cuts, inferred where observations break
    ends_known: bool = False  # every end is marked, so none is inferred
    observation_names: Names | None = None  # of the columns, where the source has any
    action_names: Names | None = None
    divided: bool = False  # the source says where episodes begin, by a column or by its format, even if there is only one
    source_rows: SourceRows | None = None  # where each row comes from; None: row k is row k of the source
    time_skips: NDArray[np.bool_] | None = None  # rows inside episodes after which the time skips samples
    gaps: NDArray[np.bool_] | None = None  # unmarked ends of a part of an episode that goes on after a gap
    whole: NDArray[np.int64] | None = None  # once settled: the episode of each row, before gaps and bad rows cut it
    unseen_rewards: NDArray[np.float64] | None = None  # once settled: of steps that were left out, as in a dataset

    @property
    def origin(self) -> str:
        """One line: what was recognised, and how the ends were read."""
        return self._told(self.notes)

    def _told(self, notes: Iterable[Note]) -> str:
        return "; ".join([f"{self.source}: read as {self.format}", *map(str, notes)])

    def settled(self, options: ReadOptions) -> "Reading":
        """Return the transitions of these rows, with the fixes that the options request."""
        return settle(self, options)

    def dataset(self) -> TransitionDataset:
        """Return the checked dataset, or raise one DatasetError that names every fault."""
        bounds = {"action_low": self.action_low, "action_high": self.action_high}
        names = {"observation_names": self.observation_names, "action_names": self.action_names}
        values = {**bounds, **names, "source": self.source, "origin": self.origin, "find_cuts": not self.ends_known}
        labels = None if self.source_rows is None else self.source_rows.labels
        found = TransitionDataset.from_dict(self.arrays, **values, row_labels=labels)
        in_short = self._told(unusual(self.notes))
        known = {"time_skips": self._skips_in_words(), "cut_from": self._cut_from(found), "origin_in_short": in_short}
        return replace(found, **known, unseen_rewards=self.unseen_rewards)  # type: ignore[arg-type]

    def _cut_from(self, found: TransitionDataset) -> NDArray[np.int64] | None:
        """The episode that each one of a dataset is a part of; None if all are whole."""
        if self.whole is None or len(self.whole) != len(found):
            return None
        owners = self.whole[found.episode_spans[0]]
        return owners if len(np.unique(owners)) < len(owners) else None

    def _skips_in_words(self) -> str:
        """How many rows the time skips samples after, and which are the first of them; empty if there are none."""
        rows = np.flatnonzero(np.zeros(0) if self.time_skips is None else self.time_skips)
        places = self.source_rows or SourceRows.counted(int(rows.max(initial=-1)) + 1)
        return f"{len(rows)} rows (first: {places.labels(rows[:3])})" if len(rows) else ""


def copies_held(fields: Collection[str], options: ReadOptions) -> int:
    """Return how many copies of the fields of a file are in memory at once, at most, until they are transitions."""
    followed = {"next_observations", "next_obs"} & set(fields) and options.next_observations == "auto"
    return (1 if followed else 4) + options.changes_rows


def bytes_held(shape: tuple[int, ...], dtype: np.dtype[Any]) -> int:
    """Return the bytes that an array takes in memory, with the copy in single precision of what is not a native float."""
    kept = dtype.kind == "f" and dtype.itemsize >= 4 and dtype.isnative
    return math.prod(shape) * (dtype.itemsize if kept else dtype.itemsize + 4)


def reading_of(arrays: Mapping[str, Any], found: list[str], source: str, title: str) -> Reading:
    """Return arrays under our names, of one length, with the flags of ends in their right shape."""
    named: Arrays = {}
    for name, array in arrays.items():
        target = ALIASES.get(name, name)
        if target in named:
            raise DatasetError(f"{source}: holds `{target}` twice, under two names ({name} is one); remove one")
        named[target] = np.asarray(array)
    low, high = (named.pop(name, None) for name in BOUNDS)
    for name in ("observations", "actions", "rewards"):
        if name not in named:
            near = did_you_mean(name, found)
            goal = " (goal-conditioned files have none: relabel them for one task first)" if name == "rewards" else ""
            listed = ", ".join(sorted(found)) or "nothing"
            raise DatasetError(f"{source}: `{name}` is missing{goal}.{near} Found: {listed}")
    lengths = {name: array.shape[0] if array.ndim else 0 for name, array in named.items()}
    if len(set(lengths.values())) > 1 or not lengths["rewards"]:
        raise DatasetError(f"{source}: arrays must share one length above 0, got {lengths}")
    for name in ("terminals", "timeouts", "dones", "masks"):
        if name in named:
            named[name] = as_flags(named[name], name, source)
    refuse_unsupported(named, source)
    for name in {"observations", "next_observations", "actions", "next_actions"} & set(named):
        if named[name].dtype.kind in "biu":
            named[name] = named[name].astype(np.float32)
    reading = Reading(source, title, named, [], low, high)
    _name_ends(reading)
    return reading


def _name_ends(reading: Reading) -> None:
    """Set `terminals` (true ends) and, if marked, `timeouts` (cuts) from the flags of a file, and note how they were read."""
    named, notes = reading.arrays, reading.notes
    marked_cuts = "timeouts" in named
    if "masks" in named:  # OGBench: 0 means no bootstrap; `terminals` then mark the ends of trajectories
        stop = ~named.pop("masks")
        last = [named.pop(name) for name in ("terminals", "timeouts", "dones") if name in named]
        named |= {"terminals": stop, "timeouts": np.logical_or.reduce([np.zeros_like(stop), *last]) & ~stop}
        notes.append(Usual("ends: masks of 0 are true ends, `terminals` the last rows of trajectories"))
        return
    dones, marked_ends = named.pop("dones", None), "terminals" in named
    if dones is not None:
        known = {name: named[name] for name in ("terminals", "timeouts") if name in named}
        named |= ends_of(dones, **known)
    if dones is not None and marked_ends:
        notes.append(Usual("ends: `terminals` are true ends, other `dones` time limits"))
        return
    if dones is not None:
        if marked_cuts:
            reading.both_ends = np.flatnonzero(dones & named["timeouts"])
        split = "unless a timeout" if marked_cuts else "every one of them, since no timeouts are marked"
        notes.append(Usual(f"ends: `dones` are true ends, {split}"))
    elif "terminals" not in named:
        notes.append(Usual("ends: no true ends are marked, so none are assumed"))
        named["terminals"] = np.zeros(len(named["rewards"]), dtype=bool)
    else:
        marked = bool(np.any(named["terminals"]))
        notes.append(Usual(f"ends: `terminals` are {'true ends' if marked else 'never true, so there are no true ends'}"))
    notes.append(Usual("`timeouts` are time limits") if marked_cuts else NO_LIMITS)


def settle(reading: Reading, options: ReadOptions) -> Reading:
    """Return transitions: every row with its next observation and flags; rows for which these are unknown are left out.

    The arrays of the reading are handed over, since several copies of all would be in memory otherwise.
    """
    return _Settling(reading, options).reading()


class _Settling:
    """Turns rows into transitions: ends first, then rewards, next observations and units, and last what is left out."""

    def __init__(self, reading: Reading, options: ReadOptions) -> None:
        self._source, self._options = reading, options
        self._arrays, reading.arrays = dict(reading.arrays), {}  # what is replaced below is freed
        self._notes = list(reading.notes)
        self._stored = "next_observations" in self._arrays and options.next_observations == "auto"
        self._settle_ends()
        self._whole = whole_episodes(self._terminals | self._timeouts, reading.gaps)
        self._known = np.ones(len(self._terminals), dtype=bool)
        self._unseen: NDArray[np.float64] | None = None
        if options.cut_gaps:
            self._cut_gaps()
        self._settle_rewards_and_successors()
        if options.action_lag:
            self._move_actions(options.action_lag)
        if options.action_scale != 1.0:
            for name in {"actions", "next_actions"} & set(self._arrays):
                values = self._arrays[name]
                self._arrays[name] = np.asarray(values * np.float64(options.action_scale), dtype=values.dtype)
            self._notes.append(f"actions are multiplied by {options.action_scale:g}")
        self._dropped = 0
        if options.on_bad_rows == "drop":
            self._leave_out_bad_rows()

    def _settle_ends(self) -> None:
        """Set time limits where marked, else where observations break, and at the end of the data."""
        arrays = self._arrays
        terminals, timeouts = arrays["terminals"], arrays.get("timeouts", np.zeros_like(arrays["terminals"]))
        known_both = self._source.both_ends
        self._both = np.flatnonzero(terminals & timeouts) if known_both is None else known_both
        timeouts = timeouts & ~terminals
        self._inferred = np.zeros_like(terminals)
        here, after = arrays["observations"], arrays.get("next_observations")
        search = not self._source.ends_known and not timeouts[:-1].any()
        if search and after is not None and here.ndim == 2 and here.shape == after.shape:
            self._inferred = cuts_in(here, after, terminals)
            timeouts = timeouts | self._inferred
        timeouts[-1] = not terminals[-1]
        if self._options.ends == "timeouts":
            ends = Count(int(terminals.sum()), "was marked as a true end", "were marked as true ends")
            self._notes += ["every end is taken as a time limit", ends]
            terminals, timeouts = np.zeros_like(terminals), terminals | timeouts
        if limit := self._options.time_limit:
            last = np.flatnonzero(terminals | timeouts)
            reached = last[(np.diff(last, prepend=-1) == limit) & terminals[last]]
            terminals, timeouts = terminals.copy(), timeouts.copy()
            terminals[reached], timeouts[reached] = False, True
            one, several = (f"of {limit} rows is taken as a time limit", f"of {limit} rows are taken as time limits")
            self._notes.append(Count(len(reached), f"true end of an episode {one}", f"true ends of episodes {several}"))
        self._terminals, self._timeouts = terminals, timeouts

    def _cut_gaps(self) -> None:
        """Cut episodes where a clock among the observations skips samples; transitions across a gap are left out."""
        here = self._arrays["observations"]
        inside = np.flatnonzero(~(self._terminals | self._timeouts))
        after = self._arrays["next_observations"][inside] if self._stored else here[inside + 1]
        for found in clock_skips(here[inside], after):
            rows = inside[found.flags]
            self._timeouts[rows], self._known[rows] = True, False
        if count := int((~self._known).sum()):
            after_it = "after which a clock skips samples"
            self._notes.append(
                Count(count, f"row {after_it} cuts an episode (cut_gaps)", f"rows {after_it} cut episodes (cut_gaps)")
            )

    def _settle_rewards_and_successors(self) -> None:
        lag, across = self._options.reward_lag, self._options.reward_lag_across
        following = None if self._stored else following_rows(self._arrays["observations"], self._terminals)
        if lag:
            stored, rewarded = _stored_at(self._terminals | self._timeouts, lag, across=across)
            self._known &= rewarded
            self._arrays["rewards"] = self._arrays["rewards"].reshape(-1)[stored]
            left_out = int((~self._known).sum())
            without = Count(left_out, "row without a reward is left out", "rows without a reward are left out")
            self._notes += [f"rewards are moved by {lag} row{'s' * (abs(lag) != 1)}", without]
        if following is None:
            return
        self._arrays["next_observations"] = following
        if lag > 0 and not across:  # each row logs the reward and the end that arrived with its observation
            last = np.append(~self._known[1:], False) & self._known
            ended = self._terminals[stored] & self._known
            self._terminals, self._timeouts = ended, last & ~ended
            self._notes.append("ends came with the rewards and are moved with them; next observations are the following rows")
        else:
            last_rows = ("last row of a cut episode is left out", "last rows of cut episodes are left out")
            cut = Count(int(self._timeouts.sum()), *last_rows, of=len(self._timeouts))
            self._notes += [Usual("next observations are the following rows"), *[cut] * (cut.number > 0)]
            unseen = self._timeouts & self._known
            self._unseen = rewards_of_steps_after(self._arrays["rewards"], unseen, self._terminals | self._timeouts)
            self._known &= ~self._timeouts

    def _move_actions(self, lag: int) -> None:
        """Give every row the action that is stored `lag` rows later; rows without one are left out."""
        stored, known = _stored_at(self._terminals | self._timeouts, lag, across=self._options.action_lag_across)
        for name in {"actions", "next_actions"} & set(self._arrays):
            self._arrays[name] = self._arrays[name][stored]
        without = int((self._known & ~known).sum())
        left_out = Count(without, "row without an action is left out", "rows without an action are left out")
        self._notes += [f"actions are moved by {lag} row{'s' * (abs(lag) != 1)}", *[left_out] * (without > 0)]
        self._known &= known

    def _leave_out_bad_rows(self) -> None:
        """Leave out transitions with NaN or inf; the successor of a true end does not matter."""
        here, after = self._arrays["observations"], self._arrays["next_observations"].copy()
        if here.shape == after.shape and here.ndim == 2:
            rows = bad_rows(after)
            rows = rows[self._terminals[rows]]
            after[rows] = here[rows]
            self._arrays["next_observations"] = after
        good = _finite_rows(self._arrays)
        before, ends = self._known.copy(), self._terminals | self._timeouts
        self._known &= good
        self._dropped = int((before & ~good).sum())
        cuts = int((self._known[:-1] & before[1:] & ~good[1:] & ~ends[:-1]).sum())
        left_out = Count(self._dropped, "row with NaN or inf is left out", "rows with NaN or inf are left out")
        by_it = "by rows left out: each part counts as an episode"
        cut = Count(cuts, f"cut of an episode {by_it}", f"cuts of episodes {by_it}")
        self._notes += [count for count in (left_out, cut) if count.number]

    def reading(self) -> Reading:
        """Return the transitions that are known."""
        source, options, known, arrays = self._source, self._options, self._known, self._arrays
        if not known.any():
            lacking = "every row lacks its successor, its reward or a finite number"
            raise DatasetError(f"{source.source}: no transition is left: {lacking}")
        lags = options.reward_lag or options.action_lag
        changed = options.ends != "auto" or options.time_limit or options.cut_gaps or lags or self._dropped
        if changed and arrays.pop("returns_to_go", None) is not None:
            self._notes.append("`returns_to_go` belonged to the original rows, and is left out")
        next_is_gone = np.append(~known[1:], False) & ~self._terminals
        arrays |= {"terminals": self._terminals, "timeouts": self._timeouts | next_is_gone}
        self._inferred &= ~next_is_gone
        both, places, skips = np.isin(np.arange(len(known)), self._both), source.source_rows, source.time_skips
        unseen = None if self._unseen is None or not self._unseen[known].any() else self._unseen[known]
        if not known.all():
            for name in tuple(arrays):
                arrays[name] = arrays[name][known]
            self._inferred = self._inferred[known]
            self._whole = self._whole[known]
            places = (places or SourceRows.counted(len(known))).take(known)
            skips = None if skips is None else skips[known]
        low, high = self._bounds()
        return Reading(
            *(source.source, source.format, arrays, self._notes, low, high, np.flatnonzero(both[known]), self._inferred),
            ends_known=True,
            observation_names=source.observation_names,
            action_names=source.action_names,
            divided=source.divided,
            source_rows=places,
            time_skips=skips,
            whole=self._whole,
            unseen_rewards=unseen,
        )

    def _bounds(self) -> tuple[Any, Any]:
        """The bounds that the options state, else those of the source."""
        shape = self._arrays["actions"].shape
        own = self._source.action_low, self._source.action_high
        # actions of another shape are refused with the other arrays, by what is wrong with them
        return own if len(shape) != 2 else requested_bounds(self._options, shape[1], self._source.source) or own


def whole_episodes(ends: NDArray[np.bool_], gaps: NDArray[np.bool_] | None = None) -> NDArray[np.int64]:
    """Return the number of each row's episode, given the last rows of episodes and those that only a gap cut there."""
    own = ends if gaps is None else ends & ~gaps
    return np.cumsum(np.append(False, own[:-1]), dtype=np.int64)


def _stored_at(ends: NDArray[np.bool_], lag: int, *, across: bool) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """The row that stores the reward of each row, and whether there is one, in its episode or anywhere in the file."""
    rows = np.arange(len(ends))
    stored = np.clip(rows + lag, 0, len(rows) - 1)
    known = stored == rows + lag
    if not across:
        episode = np.cumsum(np.append(False, ends[:-1]))
        known &= episode[stored] == episode
    return stored, known


def _finite_rows(arrays: Arrays) -> NDArray[np.bool_]:
    good = np.ones(len(arrays["rewards"]), dtype=bool)
    for name, array in arrays.items():
        if array.dtype.kind == "f" and name != "returns_to_go":
            good[bad_rows(array)] = False
    return good
