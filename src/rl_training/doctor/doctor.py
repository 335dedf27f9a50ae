"""The doctor: what is wrong with logged data, with evidence and the fix, before it becomes silent nonsense.

`examine` looks at everything; `quick_findings` is the cheap part, which every training run takes a look with.
"""

import warnings
from collections.abc import Collection, Iterator
from typing import Any

import numpy as np

from rl_training.data.blocks import bad_rows
from rl_training.data.dataset_loaders import read_dataset
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.reading.reading import Reading
from rl_training.doctor.checks import QUICK_CHECKS, THOROUGH_CHECKS
from rl_training.doctor.findings import Case, Finding
from rl_training.envs.environments import EnvironmentSpaces, environment_spaces
from rl_training.errors import DatasetError

QUICK_ROWS = 20_000  # the cheap part looks at no more rows than these, spread over the data


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
