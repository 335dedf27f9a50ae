"""Samples that are missing inside episodes: the time or a clock moves on by more than one step."""

from collections.abc import Iterator

import numpy as np

from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.reading.clocks import clock_skips
from rl_training.doctor.evidence import CheckInput
from rl_training.doctor.findings import Finding, option

_FIX = f"these transitions take longer than the others: cut the episodes there with {option(cut_gaps=True)}"


def check_clocks(inputs: CheckInput) -> Iterator[Finding]:
    """Gaps in the time of a log, and in the clocks among its observations."""
    yield from check_time(inputs.data)
    data, rows = inputs.data, inputs.sample_rows
    inside = np.setdiff1d(rows[~inputs.marked[rows]], inputs.unsure)
    for found in clock_skips(data.observations[inside], data.next_observations[inside]):
        clock = inputs.named("observations", found.columns)
        skips = "skips" if len(found.columns) == 1 else "skip"
        evidence = f"{clock} {skips} samples inside episodes, after {inputs.some(inside[found.flags])}"
        yield Finding("time-gap", "warning", evidence, _FIX)


def check_time(data: TransitionDataset) -> Iterator[Finding]:
    """Gaps in the time column, as its reader saw them: the dataset has no such column."""
    if data.time_skips:
        yield Finding("time-gap", "warning", f"the time skips samples inside episodes, after {data.time_skips}", _FIX)
