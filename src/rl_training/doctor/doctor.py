"""The doctor: what is wrong with logged data, with evidence and the fix, before it silently corrupts training.

`examine` runs every check; `quick_findings` runs the cheap ones, as every training run does.
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.data.dataset_loaders import read_dataset
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.reading.reading import Reading
from rl_training.data.row_blocks import bad_rows
from rl_training.doctor.checks import QUICK_CHECKS, THOROUGH_CHECKS
from rl_training.doctor.evidence import CheckInput
from rl_training.doctor.findings import Finding
from rl_training.envs.environments import EnvironmentSpaces, environment_spaces
from rl_training.errors import DatasetError

QUICK_ROWS = 20_000  # the cheap checks read at most this many rows, spread over the data


def examine(source: Any, env_id: str | None = None) -> list[Finding]:
    """Return every finding on data, errors first; with an environment also every mismatch with it.

    `source` is a reading (`read_dataset`), a dataset, or anything that `load_dataset` takes. A checked dataset shows
    less than a reading: some faults have been refused or resolved by then.
    """
    reading = source if isinstance(source, Reading) else _as_reading(source)
    env = None if env_id is None else environment_spaces(env_id)
    arrays = {name: np.asarray(array) for name, array in reading.arrays.items()}
    bad = {n: r for n, a in arrays.items() if a.dtype.kind == "f" and n != "returns_to_go" and len(r := bad_rows(a))}
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            whole = {name: _filled(array) if name in bad else array for name, array in reading.arrays.items()}
            data = replace(reading, arrays=whole).dataset()
        marked = arrays["timeouts"] if reading.inferred is None else arrays["timeouts"] & ~reading.inferred
    except DatasetError as error:
        return [Finding("malformed", "error", str(error), "fix the file")]
    columns = {
        n: np.flatnonzero(~np.isfinite(arrays[n][bad[n]]).all(axis=0)) for n in bad if n in ("observations", "actions")
    }
    inputs = CheckInput(
        data, arrays["terminals"], marked, reading.both_ends, bad, columns, env, reading.divided, reading.source_rows
    )
    return _sorted(finding for check in (*QUICK_CHECKS, *THOROUGH_CHECKS) for finding in check(inputs))


def _as_reading(source: Any) -> Reading:
    if isinstance(source, TransitionDataset):
        return Reading(
            source=source.origin or "dataset",
            format="dataset",
            arrays=source.fields(),
            action_low=source.action_low,
            action_high=source.action_high,
            observation_names=source.observation_names,
            action_names=source.action_names,
            divided=True,
        )
    return read_dataset(source)


def _filled(values: NDArray[Any]) -> NDArray[Any]:
    """Each NaN or inf replaced by the last number above it, so that everything else can be checked; 0 if there is none."""
    flat = values.reshape(len(values), -1)
    finite = np.isfinite(flat)
    last = np.maximum.accumulate(np.where(finite, np.arange(len(flat))[:, None], -1), axis=0)
    first = np.argmax(finite, axis=0)
    source = np.where(last >= 0, last, first)
    whole = np.nan_to_num(np.take_along_axis(flat, source, axis=0), posinf=0.0, neginf=0.0)
    return np.asarray(whole.reshape(values.shape))


def quick_findings(dataset: TransitionDataset, env: EnvironmentSpaces | None = None) -> list[Finding]:
    """Return what the cheap checks find on a checked dataset; their cost does not grow with its size."""
    inputs = CheckInput(dataset, dataset.terminals, dataset.timeouts, env=env, divided=True, limit=QUICK_ROWS)
    return _sorted(finding for check in QUICK_CHECKS for finding in check(inputs))


def _sorted(findings: Iterator[Finding]) -> list[Finding]:
    return sorted(findings, key=lambda finding: finding.severity != "error")
