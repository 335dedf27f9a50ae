"""The doctor: what is wrong with logged data, with evidence and the fix, before it becomes silent nonsense.

`examine` looks at everything; `quick_findings` is the cheap part, which every training run takes a look with.
"""

import warnings
from collections.abc import Callable, Collection, Iterator
from dataclasses import asdict, dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from rl_training.data.blocks import bad_rows, blocks, column_range
from rl_training.data.dataset_loaders import read_dataset
from rl_training.data.environments import EnvironmentSpaces, environment_spaces
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.reading import Reading
from rl_training.data.reward_alignment import find_shift
from rl_training.data.subsets import episode_digests
from rl_training.errors import DatasetError

Severity = Literal["error", "warning"]
HUGE = 1e6
QUICK_ROWS = 20_000  # the cheap part looks at no more rows than these, spread over the data


@dataclass(frozen=True)
class Finding:
    """Something wrong or doubtful."""

    code: str
    severity: Severity
    evidence: str  # what was seen, where
    fix: str  # what to do, often a flag to add

    def __str__(self) -> str:
        return f"{self.code}: {self.evidence}; {self.fix}"

    def to_json(self) -> dict[str, str]:
        """Return plain values."""
        return asdict(self)


@dataclass
class Case:
    """A dataset on the table: checked arrays, the ends as they were marked, and what is known of the environment."""

    data: TransitionDataset
    terminals: NDArray[np.bool_]  # as marked
    timeouts: NDArray[np.bool_]
    both_ends: NDArray[np.intp] | None = None  # rows marked as done and as a time limit, where a rule has settled that
    bad: dict[str, NDArray[np.intp]] = field(default_factory=dict)  # rows with NaN or inf, by field
    env: EnvironmentSpaces | None = None
    limit: int | None = None  # look at no more rows than this, where that is enough

    @cached_property
    def windows(self) -> list[slice]:
        """The stretches of rows that are looked at."""
        rows = len(self.data)
        if self.limit is None or rows <= self.limit:
            return [slice(0, rows)]
        starts = np.linspace(0, rows - self.limit // 4, 4).astype(int)
        return [slice(int(start), int(start) + self.limit // 4) for start in starts]

    def per_row(self, measure: Callable[[slice], NDArray[Any]]) -> NDArray[Any]:
        """Return one number for each row that is looked at, measured in blocks."""
        parts = [(window.start, part) for window in self.windows for part in blocks(window.stop - window.start)]
        return np.concatenate([measure(slice(start + part.start, start + part.stop)) for start, part in parts])

    @cached_property
    def marked(self) -> NDArray[np.bool_]:
        """Ends as they were marked, true or not."""
        return self.terminals | self.timeouts

    @cached_property
    def step_scale(self) -> NDArray[np.float64]:
        """The usual change of each observation column in a step."""
        part = self.windows[0]
        rows = slice(part.start, min(part.stop, part.start + 50_000))
        change = np.abs(self.data.next_observations[rows] - self.data.observations[rows]).astype(np.float64)
        return np.asarray(np.median(change, axis=0) + 1e-3 * change.mean(axis=0) + 1e-12)

    @cached_property
    def broken(self) -> NDArray[np.intp]:
        """Rows whose next observation is not the observation of the row after, wherever no end is marked."""
        found = []
        tolerance = 1e-3 * self.step_scale + 1e-6
        for window in self.windows:
            for part in blocks(window.stop - window.start - 1):
                rows = slice(window.start + part.start, window.start + part.stop)
                after = self.data.observations[rows.start + 1 : rows.stop + 1]
                apart = (np.abs(after - self.data.next_observations[rows]) > tolerance).any(axis=1)
                found.append(rows.start + np.flatnonzero(apart & ~self.marked[rows]))
        rows_found = np.concatenate(found) if found else np.empty(0, dtype=np.intp)
        unsure = [near for rows in self.bad.values() for near in (rows, rows - 1)]  # NaN has no successor
        return np.setdiff1d(rows_found, np.concatenate(unsure)) if unsure else rows_found

    @cached_property
    def leaks(self) -> NDArray[np.intp]:
        """Cut rows whose next observation is the first of the following episode, a jump away."""
        cuts = np.flatnonzero(self.marked[:-1] & ~self.data.terminals[:-1])[:5000]
        tolerance = 1e-3 * self.step_scale + 1e-6
        same = (np.abs(self.data.observations[cuts + 1] - self.data.next_observations[cuts]) <= tolerance).all(axis=1)
        rows: NDArray[np.intp] = cuts[same]
        real = len(rows) >= 3 and 2 * len(rows) > len(cuts) and np.median(self.jumps(rows)) > 2.0 * self.usual_jump
        return rows if real else rows[:0]

    @cached_property
    def usual_jump(self) -> float:
        """How far the observation usually moves inside episodes."""
        inside = np.flatnonzero(~self.marked[: self.windows[0].stop - 1])[:20_000]
        return float(np.median(self.jumps(inside))) if len(inside) else np.inf

    def jumps(self, rows: NDArray[np.intp]) -> NDArray[np.float64]:
        """How far the observation moves from a row to the next, in usual steps: what half of the columns exceed.

        A clock that strikes twelve or a set-point that is moved is one column of several; a new episode moves most.
        """
        rows = rows[rows < len(self.data) - 1]
        change = np.abs(self.data.observations[rows + 1] - self.data.observations[rows]) / self.step_scale
        return np.asarray(np.sort(change, axis=1)[:, change.shape[1] // 2], dtype=np.float64)


def examine(source: Any, env_id: str | None = None) -> list[Finding]:
    """Return every finding on data, errors first; with an environment also what does not fit it.

    `source` is a reading (`read_dataset`), a dataset, or anything that `load_dataset` takes. A dataset that has been checked
    shows less than a reading: some faults have been refused or settled by then.
    """
    reading = source if isinstance(source, Reading) else _as_reading(source)
    env = None if env_id is None else environment_spaces(env_id)
    arrays = {name: np.asarray(array) for name, array in reading.arrays.items()}
    bad = {n: r for n, a in arrays.items() if a.dtype.kind == "f" and n != "returns_to_go" and len(r := bad_rows(a))}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            data = _healed(reading, bad).dataset() if bad else reading.dataset()
        marked = arrays["timeouts"] if reading.inferred is None else arrays["timeouts"] & ~reading.inferred
    except DatasetError as error:
        return [Finding("malformed", "error", str(error), "mend the file")]
    case = Case(data, arrays["terminals"], marked, reading.both_ends, bad, env)
    return _sorted(finding for check in (*QUICK_CHECKS, *THOROUGH_CHECKS) for finding in check(case))


def _as_reading(source: Any) -> Reading:
    if isinstance(source, TransitionDataset):
        return Reading(source.origin or "dataset", "dataset", source.fields(), [], source.action_low, source.action_high)
    return read_dataset(source)


def _healed(reading: Reading, bad: Collection[str]) -> Reading:
    """The reading with 0 for NaN and inf, so that everything else can be looked at."""
    arrays = {
        name: np.nan_to_num(array, posinf=0.0, neginf=0.0) if name in bad else array for name, array in reading.arrays.items()
    }
    return Reading(reading.source, reading.format, arrays, [], reading.action_low, reading.action_high)


def quick_findings(dataset: TransitionDataset, env: EnvironmentSpaces | None = None) -> list[Finding]:
    """Return what the cheap checks find on a checked dataset; the time they take does not grow with its size."""
    case = Case(dataset, dataset.terminals, dataset.timeouts, env=env, limit=QUICK_ROWS)
    return _sorted(finding for check in QUICK_CHECKS for finding in check(case))


def _sorted(findings: Iterator[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: finding.severity != "error")


def _some(rows: NDArray[np.intp]) -> str:
    return f"{len(rows)} row{'s' * (len(rows) != 1)} (first: {', '.join(map(str, rows[:3]))})"


def check_spaces(case: Case) -> Iterator[Finding]:
    """Sizes and ranges against the environment's."""
    if case.env is None:
        return
    spaces, data = case.env.spaces, case.data
    ours, theirs = (data.observation_dim, data.action_dim), (spaces.observation_dim, spaces.action_dim)
    if ours != theirs:
        evidence = (
            f"the data has {ours[0]} observations and {ours[1]} actions, {case.env.env_id} has {theirs[0]} and {theirs[1]}"
        )
        yield Finding("space-mismatch", "error", evidence, "check the environment id and the columns")
        return
    low, high = column_range(data.observations[case.windows[0]])
    room = 1e-3 * np.maximum(1.0, np.abs(case.env.observation_high))
    beyond = np.flatnonzero((low < case.env.observation_low - room) | (high > case.env.observation_high + room))
    for column in beyond[:3]:
        evidence = (
            f"observation column {column} spans {low[column]:.4g} to {high[column]:.4g}, that of {case.env.env_id} "
            f"{case.env.observation_low[column]:.4g} to {case.env.observation_high[column]:.4g}"
        )
        yield Finding(
            "space-mismatch", "warning", evidence, "check the environment id, and the order and units of the columns"
        )


def check_finite(case: Case) -> Iterator[Finding]:
    """NaN and inf."""
    for name, rows in case.bad.items():
        fix = "mend the log, or leave these transitions out with --on-bad-rows drop"
        yield Finding("not-finite", "error", f"`{name}` holds NaN or inf in {_some(rows)}", fix)


def check_successors(case: Case) -> Iterator[Finding]:
    """Next observations that are not those of the next row, inside episodes and at their ends."""
    broken, rows = case.broken, sum(part.stop - part.start for part in case.windows)
    if len(broken) > 0.5 * rows:
        evidence = f"{len(broken) / rows:.0%} of the next observations are not those of the row after"
        yield Finding(
            "next-observation-break", "warning", f"{evidence}: the rows seem shuffled", "order them by episode and time"
        )
    elif len(broken) and not _unmarked_ends(case):
        evidence = f"the next observation is not the observation of the row after in {_some(broken)}, inside episodes"
        fix = "rebuild them with --next-observations following, or mark an end in these rows"
        yield Finding("next-observation-break", "error", evidence, fix)
    if len(case.leaks):
        evidence = f"the next observation at a time limit is the first of the following episode in {_some(case.leaks)}"
        fix = "leave these rows out with --next-observations following"
        yield Finding("next-observation-leak", "error", evidence, fix)


def _unmarked_ends(case: Case) -> bool:
    """Whether breaks are ends that nobody marked: no time limits anywhere, and the observation itself jumps."""
    if not case.marked[:-1].any():
        return True
    return bool(
        not case.timeouts[:-1].any() and len(case.broken) and np.median(case.jumps(case.broken)) > 2.0 * case.usual_jump
    )


def check_ends(case: Case) -> Iterator[Finding]:
    """Ends that overlap, are missing, or look like time limits."""
    if case.both_ends is not None and len(case.both_ends):
        evidence = f"an end and a time limit are both marked in {_some(case.both_ends)}"
        rule = "a terminal counts as a true end, a `done` as a time limit; mark them apart, or add --ends timeouts"
        yield Finding("ends-overlap", "warning", evidence, rule)
    if len(case.broken) and _unmarked_ends(case) and len(case.broken) <= 0.5 * len(case.data):
        evidence = f"no time limits are marked, but observations break off after {_some(case.broken)}"
        yield Finding("missing-ends", "warning", evidence, "they are taken as time limits; mark those that are true ends")
    elif not case.timeouts[:-1].any():
        jumps = _lone_jumps(case)
        if len(jumps) >= 2:
            evidence = f"no time limits are marked, and the observation jumps after {_some(jumps)}{_rhythm(jumps)}"
            yield Finding("missing-ends", "error", evidence, "mark the ends, or name the episode column in the column map")
    starts, lengths = case.data.episode_spans
    ended = lengths[np.asarray(case.data.terminals[starts + lengths - 1])]
    if len(ended) >= 3 and ended.max() == ended.min() > 1 and ended.max() == lengths.max():
        evidence = f"all {len(ended)} true ends fall at length {ended[0]}, as if time limits were stored as terminals"
        yield Finding("ends-at-one-length", "warning", evidence, "if they are time limits, add --ends timeouts")


def _lone_jumps(case: Case) -> NDArray[np.intp]:
    """Rows after which the observation moves many times as far as it usually does."""
    part = case.windows[0]
    rows = part.start + np.flatnonzero(~case.marked[part.start : part.stop - 1])
    if len(rows) < 10:
        return np.empty(0, dtype=np.intp)
    sizes = case.jumps(rows)
    large = rows[sizes > max(12.0, 3.0 * float(np.quantile(sizes, 0.95)))]
    return large if len(large) < 0.1 * len(rows) else np.empty(0, dtype=np.intp)


def _rhythm(rows: NDArray[np.intp]) -> str:
    gaps = np.diff(rows)
    return f", every {gaps[0]} rows" if len(gaps) and (gaps == gaps[0]).all() else ""


def check_actions(case: Case) -> Iterator[Finding]:
    """Actions outside their bounds, or in another unit."""
    data = case.data
    if case.env is not None and case.env.spaces.action_dim != data.action_dim:
        return
    known = case.env is not None or data.action_low is not None
    yield from _against_bounds(case) if known else _without_bounds(case)


def _against_bounds(case: Case) -> Iterator[Finding]:
    spaces = case.data.spaces if case.env is None else case.env.spaces
    whose = "the recorded bounds" if case.env is None else f"the bounds of {case.env.env_id}"
    shown = f"{whose} ({spaces.action_low.tolist()} to {spaces.action_high.tolist()})"
    sizes = case.per_row(lambda part: np.abs(spaces.normalize_actions(case.data.actions[part])).max(axis=1))
    rows = case.per_row(lambda part: np.arange(part.start, part.stop))
    beyond, largest = rows[sizes > 1.0 + 1e-3], float(sizes.max())
    if len(beyond) > 0.2 * len(rows) or largest > 8.0:
        evidence = f"actions reach {largest:.3g} times {shown} in {_some(beyond)}{_unit(largest)}"
        yield Finding("action-units", "error", evidence, f"add --action-scale {1 / largest:.4g}, or what the unit asks for")
    if len(beyond) and len(beyond) <= 0.2 * len(rows):
        evidence = f"actions leave {shown} in {_some(beyond)}, up to {largest:.3g} times"
        yield Finding(
            "actions-out-of-bounds", "error", evidence, "check the environment and the units; mend these rows in the log"
        )
    if largest < 0.6 and (sizes > 0.999 * largest).mean() > 0.005:
        evidence = f"actions stop at {largest:.3g} of {shown}, as if they were stored scaled"
        yield Finding("action-units", "warning", evidence, f"if so, add --action-scale {1 / largest:.4g}")


def _without_bounds(case: Case) -> Iterator[Finding]:
    """No bounds are known: what the data says by itself."""
    fix = "give the bounds with --action-low and --action-high, the unit with --action-scale, or the environment with --env"
    for column in range(case.data.action_dim):
        sizes = case.per_row(lambda part, column=column: np.abs(case.data.actions[part, column]))  # type: ignore[misc]
        rows = case.per_row(lambda part: np.arange(part.start, part.stop))
        usual = sizes <= 1.5 * np.quantile(sizes, 0.99)
        bound = float(sizes[usual].max())
        beyond = rows[~usual]
        if len(beyond) and bound > 0 and (sizes[usual] >= 0.999 * bound).mean() > 0.002:
            evidence = f"action column {column} stops at {bound:.4g} but for {_some(beyond)}, up to {float(sizes.max()):.4g}"
            yield Finding(
                "actions-out-of-bounds", "warning", evidence, "check these rows; the bounds are taken from the data"
            )
        if bound > 10.0:
            evidence = f"action column {column} reaches {bound:.4g}, and no bounds are known{_unit(bound)}"
            yield Finding("action-units", "warning", evidence, fix)


def _unit(ratio: float) -> str:
    return " (degrees for radians?)" if 55 < ratio < 60 else " (percent?)" if 95 < ratio < 105 else ""


def check_columns(case: Case) -> Iterator[Finding]:
    """Columns that never change, or are huge."""
    for name in ("observations", "actions", "rewards"):
        values = getattr(case.data, name).reshape(len(case.data), -1)
        ranges = [column_range(values[part]) for part in case.windows]
        low, high = np.min([r[0] for r in ranges], axis=0), np.max([r[1] for r in ranges], axis=0)
        for column in np.flatnonzero(low == high)[:3]:
            what = "`rewards`" if name == "rewards" else f"`{name}` column {column}"
            fix = "nothing can be learned from it" if name == "rewards" else "leave it out, or check the log"
            yield Finding("constant-column", "warning", f"{what} is {low[column]:.6g} in every row", fix)
        for column in np.flatnonzero(np.maximum(np.abs(low), np.abs(high)) > HUGE)[:3]:
            evidence = f"`{name}` column {column} reaches {max(abs(low[column]), abs(high[column])):.3g}"
            fix = "set reward.scale" if name == "rewards" else "set normalize_observations, or mend the unit"
            yield Finding("huge-column", "warning", evidence, f"{fix}: such numbers make training diverge")


def check_duplicates(case: Case) -> Iterator[Finding]:
    """Episodes that are there twice."""
    seen: dict[bytes, int] = {}
    lengths = case.data.episode_spans[1]
    pairs = [(seen.setdefault(digest, number), number) for number, digest in enumerate(episode_digests(case.data))]
    twins = [(first, second) for first, second in pairs if first != second and lengths[second] > 1]
    if twins:
        shown = ", ".join(f"{second} is {first} again" for first, second in twins[:3])
        fix = "leave them out with `rl-training data filter --unique`, or they count twice and leak into validation"
        yield Finding("duplicate-episodes", "warning", f"{len(twins)} episodes are there twice ({shown})", fix)


def check_alignment(case: Case) -> Iterator[Finding]:
    """Rewards shifted against transitions."""
    data = case.data
    if case.bad or len(case.leaks):  # what the seams would show is no evidence
        return
    fields = (data.observations, data.actions, data.rewards, data.next_observations, data.terminals)
    shift = find_shift(*fields, data.episode_ends)
    if shift is not None:
        side = ("late", "before") if shift.lag > 0 else ("early", "after")
        evidence = (
            f"rewards are one row {side[0]}: {shift.place} ({shift.rows} rewards) the error is {shift.own_error:.3g} "
            f"explained by the own transition, {shift.other_error:.3g} by the one {side[1]}"
        )
        across = " --reward-lag-across" if shift.across else ""
        yield Finding("shifted-rewards", "error", evidence, f"add --reward-lag {shift.lag}{across}")


Check = Callable[[Case], Iterator[Finding]]
QUICK_CHECKS: tuple[Check, ...] = (check_spaces, check_finite, check_ends, check_successors, check_actions, check_columns)
THOROUGH_CHECKS: tuple[Check, ...] = (check_duplicates, check_alignment)
