"""Logged transitions: checked once when loaded, then sampled deterministically."""

import os
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training import rng
from rl_training.data.batch import Batch
from rl_training.data.reading.unsupported import image_fault, label_fault
from rl_training.data.returns import rewards_of_steps_after
from rl_training.data.row_blocks import bad_rows, breaks, column_range
from rl_training.data.spaces import Names, Spaces
from rl_training.data.store.fingerprints import Fingerprints, with_bounds
from rl_training.data.store.records import RecordFile
from rl_training.errors import DatasetError, did_you_mean

RowLabels = Callable[[NDArray[Any]], str]
"""Names rows for a message, such as `line 3, line 9`."""

REQUIRED = ("observations", "actions", "rewards", "next_observations", "terminals")
OPTIONAL = ("timeouts", "next_actions", "returns_to_go")


@dataclass(frozen=True, eq=False)
class Episode:
    """A view of one episode of a dataset."""

    rows: slice
    rewards: NDArray[Any]
    ended: bool  # by a true end, not a time limit

    @property
    def length(self) -> int:
        """Number of transitions."""
        return int(self.rows.stop - self.rows.start)

    @property
    def total_reward(self) -> float:
        """Undiscounted return."""
        return float(self.rewards.sum(dtype=np.float64))


@dataclass(frozen=True, eq=False)
class TransitionDataset:
    """Rows (s, a, r, s', ends) in time order, episode after episode, with real actions and their bounds.

    `terminals` are true ends (no bootstrap), `timeouts` cuts (the value of s' still counts). Use `from_dict` to build one:
    it checks everything and reports every fault at once.
    """

    observations: NDArray[Any]  # (rows, observation_dim)
    actions: NDArray[Any]  # (rows, action_dim)
    rewards: NDArray[Any]  # (rows,)
    next_observations: NDArray[Any]  # (rows, observation_dim)
    terminals: NDArray[np.bool_]  # (rows,)
    timeouts: NDArray[np.bool_]  # (rows,)
    next_actions: NDArray[Any] | None = None  # (rows, action_dim)
    returns_to_go: NDArray[Any] | None = None  # (rows,)
    action_low: NDArray[np.float32] | None = None
    action_high: NDArray[np.float32] | None = None
    observation_names: Names | None = None  # of the columns, where the source has any
    action_names: Names | None = None
    origin: str = ""  # where it came from and how it was read, as text
    origin_in_short: str = ""  # the same without what is usual; empty if nothing is known to be
    time_skips: str = ""  # the rows inside episodes after which the time of the log skips samples, in words
    cut_from: NDArray[np.int64] | None = None  # of each episode: that of the log which it is a part of; None if all are whole
    unseen_rewards: NDArray[np.float64] | None = None  # (rows,): of the step after, whose row was left out; 0 elsewhere
    records: RecordFile | None = None  # the file that holds the rows, if they are mapped rather than in memory

    @classmethod
    def from_dict(
        cls,
        data: Mapping[str, Any],
        *,
        action_low: Any = None,
        action_high: Any = None,
        observation_names: Sequence[str] | None = None,
        action_names: Sequence[str] | None = None,
        source: str = "dataset",
        origin: str = "",
        find_cuts: bool = True,
        row_labels: RowLabels | None = None,
    ) -> Self:
        """Return a checked dataset, or raise one DatasetError that names every fault.

        `dones` may replace terminals: without timeouts each done counts as a true end (one warning), with them a done row
        is a true end unless it is a timeout. If no timeout is marked, cuts are inferred where observations break, unless
        `find_cuts` is false because every end is marked. A row that is both is a true end.

        Without `next_observations` the following row is the next observation, as in a log: the last row of an episode that
        was cut has no known successor and is left out, and the row before it becomes the cut. Then every end must be
        marked, since observations cannot show where one is missing. `row_labels` names rows in messages.
        """
        arrays = _checked_arrays(with_terminals(data, source), source, row_labels)
        if "next_observations" not in arrays:
            arrays = _with_successors(arrays, source)
        if "timeouts" not in arrays or (find_cuts and not arrays["timeouts"][:-1].any()):
            arrays["timeouts"] = cuts_in(*(arrays[name] for name in ("observations", "next_observations", "terminals")))
        arrays["timeouts"] = arrays["timeouts"] & ~arrays["terminals"]
        arrays["timeouts"][-1] = not arrays["terminals"][-1]  # the end of the data cuts an unfinished episode
        low, high = checked_bounds(action_low, action_high, arrays["actions"].shape[1], source)
        names = {
            "observation_names": checked_names(observation_names, arrays["observations"].shape[1], "observations", source),
            "action_names": checked_names(action_names, arrays["actions"].shape[1], "actions", source),
        }
        return cls(**arrays, action_low=low, action_high=high, **names, origin=origin)  # type: ignore[arg-type]

    def with_bounds(self, low: NDArray[np.float32] | None, high: NDArray[np.float32] | None) -> Self:
        """Return the same rows with other action bounds."""
        return replace(self, action_low=low, action_high=high)

    def __len__(self) -> int:
        return len(self.rewards)

    @property
    def observation_dim(self) -> int:
        """Width of an observation."""
        return int(self.observations.shape[1])

    @property
    def action_dim(self) -> int:
        """Width of an action."""
        return int(self.actions.shape[1])

    @cached_property
    def spaces(self) -> Spaces:
        """Sizes, names and action bounds: the stated ones, else the smallest and the largest action in each column."""
        low, high = self.action_low, self.action_high
        if low is None or high is None:
            low, high = _rounded_inwards(*column_range(self.actions))
        return Spaces(self.observation_dim, self.action_dim, low, high, self.observation_names, self.action_names)

    @cached_property
    def episode_ends(self) -> NDArray[np.bool_]:
        """True on the last row of each episode: a true end, a cut, or the end of the data."""
        ends = self.terminals | self.timeouts
        ends[-1] = True
        return ends

    @cached_property
    def episode_spans(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """First rows and lengths of the episodes."""
        last = np.flatnonzero(self.episode_ends).astype(np.int64)
        starts = np.append(np.int64(0), last[:-1] + 1)
        return starts, last + 1 - starts

    def episodes(self) -> Iterator[Episode]:
        """Yield the episodes in order."""
        for start, length in zip(*(values.tolist() for values in self.episode_spans), strict=True):
            rows = slice(start, start + length)
            yield Episode(rows, self.rewards[rows], bool(self.terminals[rows.stop - 1]))

    def episode_returns(self) -> NDArray[np.float64]:
        """Return the undiscounted return of the rows of each episode."""
        return np.add.reduceat(self.rewards.astype(np.float64), self.episode_spans[0])

    def logged_returns(self) -> NDArray[np.float64]:
        """Return what each episode earned as it was logged, with the rewards of last steps that were left out."""
        unseen = 0.0 if self.unseen_rewards is None else np.add.reduceat(self.unseen_rewards, self.episode_spans[0])
        return np.asarray(self.episode_returns() + unseen)

    def statistics(self) -> dict[str, float]:
        """Return counts, logged returns and lengths as plain numbers; of parts of episodes also how many are whole."""
        returns, lengths = self.logged_returns(), self.episode_spans[1]
        parts = {} if self.cut_from is None else {"parts_of": len(np.unique(self.cut_from))}
        return {
            "rows": len(self),
            "episodes": len(returns),
            "true_ends": int(self.terminals.sum()),
            "return_mean": float(returns.mean()),
            "return_std": float(returns.std()),
            "return_min": float(returns.min()),
            "return_max": float(returns.max()),
            "length_mean": float(lengths.mean()),
            "reward_mean": float(self.rewards.mean(dtype=np.float64)),
            **parts,
        }

    def fields(self) -> dict[str, NDArray[Any]]:
        """Return the fields of a row by name; optional ones only if present."""
        named = {name: getattr(self, name) for name in (*REQUIRED, *OPTIONAL)}
        return {name: value for name, value in named.items() if value is not None}

    @cached_property
    def fingerprint(self) -> str:
        """SHA-256 over every field and the bounds: equal exactly for equal data, in memory or mapped."""
        if self.records is not None:
            content = self.records.content
        else:
            prints = Fingerprints()
            prints.add(self.fields())
            content = prints.content()
        return with_bounds(content, {"action_low": self.action_low, "action_high": self.action_high})

    def sample(self, batch_size: int, *, seed: int | Sequence[int] = 0, step: int = 0) -> Batch:
        """Return the batch of (seed, step), the same at every call: (batch, ...), or (members, batch, ...) for many seeds."""
        seeds = [seed] if isinstance(seed, int) else list(seed)
        rows = rng.integers(seeds, "batches", step, (batch_size,), high=len(self)).numpy()
        rows = rows[0] if isinstance(seed, int) else rows

        def pick(values: NDArray[Any] | None) -> torch.Tensor | None:
            return None if values is None else torch.from_numpy(values[rows])

        picked = {name: pick(getattr(self, name)) for name in (*REQUIRED, "next_actions", "returns_to_go")}
        picked["terminals"] = torch.from_numpy(self.terminals[rows].astype(np.float32))
        return Batch(**picked)  # type: ignore[arg-type]


def with_terminals(data: Mapping[str, Any], source: str) -> dict[str, Any]:
    """Return the fields with `dones` replaced by `terminals` (and `timeouts`) by the rule of `ends_of`."""
    values = {name: value for name, value in data.items() if value is not None}
    if "dones" not in values:
        return {name: value for name, value in data.items() if name != "dones"}
    flags = {n: as_flags(values.pop(n), n, source) for n in ("dones", "terminals", "timeouts") if n in values}
    if set(flags) == {"dones"}:
        warnings.warn(f"{source}: `dones` without `timeouts`: every done is taken as a true end", stacklevel=3)
    return {**values, **ends_of(**flags)}


def ends_of(
    dones: NDArray[np.bool_], terminals: NDArray[np.bool_] | None = None, timeouts: NDArray[np.bool_] | None = None
) -> dict[str, NDArray[np.bool_]]:
    """Return the `terminals` that `dones` imply, and the `timeouts` where anything marks them.

    With `terminals`, any other done is a time limit; with `timeouts`, any other done is a true end; alone, every done is one.
    """
    if terminals is not None:
        cuts = np.zeros_like(dones) if timeouts is None else timeouts
        return {"terminals": terminals, "timeouts": cuts | (dones & ~terminals)}
    return {"terminals": dones} if timeouts is None else {"terminals": dones & ~timeouts, "timeouts": timeouts}


def cuts_in(observations: NDArray[Any], next_observations: NDArray[Any], terminals: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return the unmarked cuts: rows after which observations break, other than true ends."""
    return np.append(breaks(observations, next_observations), False) & ~terminals


def following_rows(observations: NDArray[Any], terminals: NDArray[np.bool_]) -> NDArray[Any]:
    """Return the next row as the next observation; on a true end, where it does not matter, the row's own."""
    following = np.concatenate((observations[1:], observations[-1:]))
    following[terminals] = observations[terminals]
    return following


def _with_successors(arrays: dict[str, NDArray[Any]], source: str) -> dict[str, NDArray[Any]]:
    """The rows that have a successor, with the following row as the next observation."""
    terminals = arrays["terminals"]
    cuts = arrays.get("timeouts", np.zeros_like(terminals)) & ~terminals
    cuts[-1] = not terminals[-1]
    if cuts.all():
        raise DatasetError(f"{source}: no transition is left: every row is the last of an episode and has no successor")
    following = following_rows(arrays["observations"], terminals)
    moved = {"next_observations": following, "timeouts": np.append(cuts[1:], False) & ~terminals}
    unseen = rewards_of_steps_after(arrays["rewards"], cuts, cuts | terminals)
    moved |= {} if unseen is None else {"unseen_rewards": unseen}
    return {name: array[~cuts] for name, array in {**arrays, **moved}.items()}


def _rounded_inwards(low: NDArray[Any], high: NDArray[Any]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Ranges in single precision that exceed the given ones nowhere; equal ends stay equal."""
    small, large = low.astype(np.float32), high.astype(np.float32)
    inner_small = np.where(small < low, np.nextafter(small, np.float32(np.inf)), small)
    inner_large = np.where(large > high, np.nextafter(large, np.float32(-np.inf)), large)
    apart = inner_small < inner_large
    return np.where(apart, inner_small, small), np.where(apart, inner_large, small)


def checked_names(names: Sequence[str] | None, width: int, field: str, source: str) -> Names | None:
    """Return the names of `width` columns, or None where there are none; another number of them is refused."""
    if names is None:
        return None
    if len(names) != width or len(set(names)) != width or not all(isinstance(name, str) for name in names):
        raise DatasetError(f"{source}: `{field}` has {width} columns: as many different names are needed, got {list(names)}")
    return tuple(names)


def checked_bounds(
    low: Any, high: Any, width: int, source: str
) -> tuple[NDArray[np.float32] | None, NDArray[np.float32] | None]:
    """Return the bounds of `width` actions as arrays, or None; bounds of another shape or order are refused."""
    if low is None or high is None:
        return None, None
    bounds = tuple(np.asarray(bound, dtype=np.float32).reshape(-1) for bound in (low, high))
    if any(bound.shape != (width,) or not np.isfinite(bound).all() for bound in bounds) or (bounds[0] > bounds[1]).any():
        raise DatasetError(
            f"{source}: the bounds of {width} actions must be {width} finite numbers each, low not above high, "
            f"got {bounds[0].tolist()} and {bounds[1].tolist()}"
        )
    return bounds[0], bounds[1]


def as_flags(values: Any, name: str, source: str) -> NDArray[np.bool_]:
    """Return booleans, (rows,), from an array of booleans or of 0 and 1; anything else is refused."""
    array = np.asarray(values)
    if array.ndim != 1 and not (array.ndim == 2 and array.shape[1] == 1):
        raise DatasetError(f"{source}: `{name}` has shape {array.shape}; (rows,) is needed")
    if array.dtype.kind not in "biuf" or not _all_flags(array):
        raise DatasetError(f"{source}: `{name}` holds values other than 0 and 1 (dtype {array.dtype})")
    return array.astype(bool).reshape(-1)


def _all_flags(array: NDArray[Any]) -> bool:
    return array.dtype.kind == "b" or bool(((array == 0) | (array == 1)).all())


def _checked_arrays(values: Mapping[str, Any], source: str, row_labels: RowLabels | None) -> dict[str, NDArray[Any]]:
    """Arrays of the right rank, length and type, all finite; or one error with every fault."""
    faults: list[str] = []
    known = (*REQUIRED, *OPTIONAL)
    for name in values:
        if name not in known:
            faults.append(f"unknown field `{name}`.{did_you_mean(name, known)}")
    needed = (name for name in REQUIRED if name != "next_observations")
    faults += [f"field `{name}` is missing" for name in needed if values.get(name) is None]
    arrays: dict[str, NDArray[Any]] = {}
    for name in known:
        if values.get(name) is not None:
            array, fault = _checked_array(name, np.asarray(values[name]))
            if fault:
                faults.append(fault)
            else:
                arrays[name] = array
    if not faults:
        faults = _shape_faults(arrays)
    if not faults:
        faults = _finite_faults(arrays, row_labels)
    if faults:
        found = f" (found: {', '.join(sorted(values))})" if any("is missing" in fault for fault in faults) else ""
        raise DatasetError(f"{source}: {'; '.join(faults)}{found}")
    return arrays


def _checked_array(name: str, array: NDArray[Any]) -> tuple[NDArray[Any], str]:
    if name in ("actions", "next_actions") and (fault := label_fault({name: array})):
        return array, fault
    if name in ("observations", "next_observations") and (fault := image_fault(name, array)):
        return array, fault
    if array.dtype.kind not in "fiub":
        return array, f"`{name}` has dtype {array.dtype}; numbers are needed"
    if name in ("terminals", "timeouts"):
        flags = array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array
        if flags.ndim != 1:
            return array, f"`{name}` has shape {array.shape}; (rows,) is needed"
        if not _all_flags(array):
            return array, f"`{name}` holds values other than 0 and 1"
        return flags.astype(bool), ""
    if name in ("rewards", "returns_to_go"):
        array = array.reshape(-1) if array.ndim == 2 and array.shape[1] == 1 else array
    rank = 1 if name in ("rewards", "returns_to_go") else 2
    if array.ndim != rank:
        return array, f"`{name}` has shape {array.shape}; {'(rows,)' if rank == 1 else '(rows, dims)'} is needed"
    if rank == 2 and array.shape[1] == 0:
        return array, f"`{name}` has shape {array.shape}; at least one column is needed"
    keep = array.dtype.kind == "f" and array.dtype.itemsize in (4, 8)
    return np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("=") if keep else np.float32), ""


def _shape_faults(arrays: Mapping[str, NDArray[Any]]) -> list[str]:
    lengths = {name: len(array) for name, array in arrays.items()}
    if len(set(lengths.values())) > 1:
        return [f"arrays must share one length, got {lengths}"]
    if not lengths["rewards"]:
        return ["there are no rows"]
    faults = []
    for first, second in (("observations", "next_observations"), ("actions", "next_actions")):
        if second in arrays and arrays[first].shape != arrays[second].shape:
            faults.append(f"`{first}` {arrays[first].shape} and `{second}` {arrays[second].shape} differ in shape")
    return faults


def _finite_faults(arrays: Mapping[str, NDArray[Any]], row_labels: RowLabels | None) -> list[str]:
    faults = []
    checked = [name for name, array in arrays.items() if array.dtype.kind == "f" and name != "returns_to_go"]
    if "returns_to_go" in arrays and (np.isnan(returns := arrays["returns_to_go"]) | (returns == np.inf)).any():
        faults.append("`returns_to_go` holds NaN or +inf; the only infinity allowed is -inf (no floor)")
    with ThreadPoolExecutor(min(4, os.cpu_count() or 1)) as pool:
        found = zip(checked, pool.map(bad_rows, [arrays[name] for name in checked]), strict=True)
    for name, bad in found:
        if len(bad):
            rows = ", ".join(map(str, bad[:3])) if row_labels is None else row_labels(bad[:3])
            faults.append(f"`{name}` is NaN or inf in {len(bad)} rows (first: {rows}); fix them, or set on_bad_rows: drop")
    return faults
