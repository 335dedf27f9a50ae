"""Checks of episodes: their ends, what follows them, and whether they occur twice."""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from rl_training.data.subsets import episode_digests
from rl_training.doctor.evidence import CheckInput, Rows
from rl_training.doctor.findings import Finding, Severity, option

_CHANCE = 0.01  # of so many true ends at one length, below which it is no coincidence
_FEWEST_LEAKS = 3  # that make an error
_FEWEST_ALONE, _MOST_ALONE, _LONGER = 5, 0.8, 5  # true ends in single rows, their share of all, and rows of other episodes


def check_successors(inputs: CheckInput) -> Iterator[Finding]:
    """Next observations that are not those of the next row, inside episodes and at their ends."""
    broken, rows = inputs.broken, len(inputs.sample_rows)
    if len(inputs.read_again):
        yield _read_again(inputs)
    if len(broken) > 0.5 * rows:
        evidence = f"{len(broken) / rows:.0%} of the next observations are not those of the row after: the rows seem shuffled"
        yield Finding("next-observation-break", "warning", evidence, "order the rows by episode and time")
    elif len(broken):
        yield _broken_rows(inputs)
    if len(inputs.leaks):
        yield _leak(inputs, inputs.leaks)


def _read_again(inputs: CheckInput) -> Finding:
    """Columns with noise that is drawn anew for the next observation; the rows are in order, as the others show."""
    one = len(inputs.read_again) == 1
    evidence = (
        f"{inputs.named('observations', inputs.read_again)} alone {'does' if one else 'do'} not continue into the next row: "
        f"{'it was' if one else 'they were'} read again"
    )
    rebuild = f"rebuild next observations with {option(next_observations='following')}"
    return Finding(
        "next-observation-break", "warning", evidence, f"{rebuild}, or leave {'it' if one else 'them'} out {inputs.leave_out}"
    )


def _leak(inputs: CheckInput, rows: Rows) -> Finding:
    """Next observations across time limits: wrong for sure if most of them jump, and are not merely unexpected."""
    jumps = inputs.jumps.at(rows, inputs.data.observations[rows + 1])
    severity: Severity = "error" if len(rows) >= _FEWEST_LEAKS and 2 * jumps.sum() > len(rows) else "warning"
    evidence = f"the next observation at a time limit is the first of the following episode in {inputs.some(rows)}"
    return Finding(
        "next-observation-leak", severity, evidence, f"leave these rows out with {option(next_observations='following')}"
    )


def _broken_rows(inputs: CheckInput) -> Finding:
    """Breaks where no end is marked: an end without a mark, or a next observation that is wrong.

    What the log makes us expect decides. If it expects the row below, the next observation is wrong; if it expects the next
    observation, an episode ended. Rebuilding next observations would then ruin them.
    """
    data, rows = inputs.data, inputs.broken
    stored, following = data.next_observations[rows], data.observations[rows + 1]
    surprise = inputs.jumps.surprising(rows, stored).mean() - inputs.jumps.surprising(rows, following).mean()
    if surprise < -0.3 or (surprise <= 0.3 and not inputs.marked[:-1].any()):
        evidence = f"no end is marked where the row after is not the next observation, in {inputs.some(rows)}"
        fix = "mark a time limit in these rows (`timeouts`)"
        if not inputs.timeouts[:-1].any():
            fix = "they are taken as time limits; mark those that are true ends"
        return Finding("missing-ends", "warning", evidence, fix)
    columns = np.setdiff1d(np.flatnonzero((np.abs(following - stored) > inputs.tolerance).any(axis=0)), inputs.read_again)
    evidence = (
        f"the next observation is not the observation of the row after in {inputs.named('observations', columns)}, "
        f"inside episodes, in {inputs.some(rows)}"
    )
    fix = f"rebuild them with {option(next_observations='following')}"
    if surprise > 0.3:
        return Finding("next-observation-break", "error", evidence, fix)
    return Finding(
        "next-observation-break", "warning", evidence, f"{fix}; but if episodes end there, mark a time limit in these rows"
    )


def check_missing_ends(inputs: CheckInput) -> Iterator[Finding]:
    """Places where an episode seems to begin though no end is marked, and what is assumed without any end."""
    if len(inputs.broken):
        return  # next observations are stored, and say more
    seams, marked = inputs.seams, inputs.marked[:-1].any()
    taken = "no end is marked there"
    if not marked:
        taken = f"no end is marked, so the {len(inputs.data):,} rows are taken as one episode that is cut after the last"
    if len(seams) >= (2 if marked else 1):
        jumping = inputs.jumps.columns(seams, inputs.data.observations[seams + 1])
        columns = np.flatnonzero(jumping.mean(axis=0) > 0.5)
        columns = columns if len(columns) else np.flatnonzero(jumping.any(axis=0))
        jump = "jumps" if len(columns) == 1 else "jump"
        jumps = f"{inputs.named('observations', columns)} {jump} after {inputs.some(seams)}{_rhythm(seams)}"
        fix = f"if an episode ends there, {_marking(inputs, 'it')}; if only the state of the plant changed, nothing is wrong"
        yield Finding("missing-ends", "warning", f"{jumps}, but {taken}" if marked else f"{taken}, but {jumps}", fix)
    elif not marked and not inputs.divided:
        yield Finding("missing-ends", "warning", taken, f"if there are several, {_marking(inputs, 'their ends')}")


def _marking(inputs: CheckInput, what: str) -> str:
    """How ends are marked, without what the source has or cannot have."""
    if not inputs.mapped:
        return f"mark {what} in `timeouts`"
    named = "" if inputs.divided else "name the `episode` or `time` column in the column map, or "
    return f"{named}mark {what} in a column that is mapped as `timeout`"


def _rhythm(rows: Rows) -> str:
    gaps = np.diff(rows)
    return f", every {gaps[0]} rows" if len(gaps) > 1 and (gaps == gaps[0]).all() else ""


def check_ends(inputs: CheckInput) -> Iterator[Finding]:
    """True ends that are also time limits, or look like them."""
    both = inputs.both_ends
    if both is not None and len(both) and inputs.data.terminals[both[both < len(inputs.data)]].any():
        evidence = f"a true end and a time limit are both marked in {inputs.some(both)}; they count as true ends"
        alone = inputs.terminals.sum() > len(both)
        fix = "if they are time limits, map the column of true ends as `done` instead of `terminal`"
        if not inputs.mapped:
            fix = "if they are time limits, store the true ends as `dones` instead of `terminals`"
        yield Finding(
            "ends-overlap", "warning", evidence, fix if alone else f"if they are time limits, add {option(ends='timeouts')}"
        )
        return
    yield from _ends_at_one_length(inputs)
    yield from _ends_in_first_rows(inputs)


def _ends_in_first_rows(inputs: CheckInput) -> Iterator[Finding]:
    """True ends that nearly all stand in an episode of a single row, while other episodes are longer."""
    last = np.flatnonzero(inputs.data.episode_ends)
    lengths, ended = np.diff(last, prepend=-1), inputs.data.terminals[last]
    alone = ended & (lengths == 1)
    most = not alone.all() and alone.sum() >= max(_FEWEST_ALONE, _MOST_ALONE * ended.sum())
    if not most or np.median(lengths[~alone]) < _LONGER:
        return
    usual = f"the other {(~alone).sum()} episodes have {np.median(lengths[~alone]):.0f} rows in the median"
    seen = f"of {ended.sum()} true ends these are the only row of their episode: {inputs.some(last[alone])}; {usual}"
    fix = "if they are marked one row late, mark the last row of the episode that ended, not the first row after it"
    yield Finding("ends-in-first-rows", "warning", seen, fix)


def _ends_at_one_length(inputs: CheckInput) -> Iterator[Finding]:
    last = np.flatnonzero(inputs.data.episode_ends)
    lengths = np.diff(last, prepend=-1)
    ended = inputs.data.terminals[last]
    if ended.sum() < 2:
        return
    longest = int(lengths[ended].max())
    suspects = last[ended & (lengths == longest)]
    if not _no_coincidence(lengths[ended], longest) or longest < lengths.max() or _paid_at(inputs, suspects):
        return
    if len(suspects) == ended.sum():
        count = "both" if len(suspects) == 2 else f"all {len(suspects)}"
        evidence = f"{count} true ends fall at length {longest}, as if time limits were stored as terminals"
        yield Finding("ends-at-one-length", "warning", evidence, f"if they are time limits, add {option(ends='timeouts')}")
        return
    evidence = (
        f"{len(suspects)} of {ended.sum()} true ends fall at the longest length, {longest}, as if these were time limits"
    )
    yield Finding("ends-at-one-length", "warning", evidence, f"if they are, add {option(time_limit=longest)}")


def _no_coincidence(lengths: NDArray[np.int64], longest: int) -> bool:
    """Whether so many ends at the longest length are unlikely, given how many are a little shorter (Poisson)."""
    at, near = int((lengths == longest).sum()), int(((lengths < longest) & (lengths >= 0.8 * longest)).sum())
    if at < 2 or longest < 2:
        return False
    expected = (near + 1) / max(1.0, 0.2 * longest)
    terms = np.cumprod(np.append(1.0, expected / np.arange(1, at)))
    return bool(1.0 - np.exp(-expected) * terms.sum() < _CHANCE)


def _paid_at(inputs: CheckInput, rows: Rows) -> bool:
    """Whether the rewards of these ends lie apart from all others: a payout or a penalty, so the task is over."""
    rewards, inside = inputs.data.rewards, ~inputs.data.episode_ends
    sample = rewards[inside][:200_000]
    if not len(sample):
        return False
    low, high = sample.min(), sample.max()
    slack = 0.1 * (high - low)
    return bool(((rewards[rows] < low - slack) | (rewards[rows] > high + slack)).mean() > 0.9)


def check_duplicates(inputs: CheckInput) -> Iterator[Finding]:
    """Episodes that occur twice."""
    seen: dict[bytes, int] = {}
    lengths = inputs.data.episode_spans[1]
    pairs = [(seen.setdefault(digest, number), number) for number, digest in enumerate(episode_digests(inputs.data))]
    twins = [(first, second) for first, second in pairs if first != second and lengths[second] > 1]
    if twins:
        shown = ", ".join(f"{inputs.episode(second)} is {inputs.episode(first)} again" for first, second in twins[:3])
        fix = "leave them out with `rl-training data filter --unique`, or they count twice and leak into validation"
        count = "1 episode occurs" if len(twins) == 1 else f"{len(twins)} episodes occur"
        yield Finding("duplicate-episodes", "warning", f"{count} twice ({shown})", fix)
