"""A sensor that is frozen for an hour of a log in minutes, and columns that rest as long without a fault."""

import numpy as np
import pytest

from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine

FROZEN = slice(1500, 1560)


def log(rows=4000):
    """Three noisy readings of slow states, rounded as sensors round, and a free action."""
    draw = np.random.Generator(np.random.Philox(0))
    slow = np.sin(np.arange(rows)[:, None] / [300.0, 170.0, 90.0])
    observations = np.round(20.0 + 5.0 * slow + draw.normal(size=(rows, 3)) * 0.5, 2)
    return {
        "observations": observations.astype(np.float32),
        "actions": draw.uniform(-1, 1, (rows, 1)).astype(np.float32),
        "rewards": draw.normal(size=rows).astype(np.float32),
        "timeouts": np.arange(1, rows + 1) % 1000 == 0,
    }


def alarms(values):
    return [finding.evidence for finding in examine(read_dataset(values)) if finding.code == "stuck-sensor"]


def test_an_hour_is_found():
    values = log()
    assert alarms(values) == []
    values["observations"][FROZEN, 1] = values["observations"][1500, 1]
    (evidence,) = alarms(values)
    assert "observation column 1" in evidence
    assert "for 60 rows" in evidence or "for 61 rows" in evidence
    short = log(rows=900)
    short["observations"][400:460, 1] = short["observations"][400, 1]
    assert alarms(short) == []  # too little to tell what is usual


@pytest.mark.parametrize("kind", ["rests now and then", "a limit", "all stand", "coarse"])
def test_rest_without_a_fault(kind):
    values = log()
    here = values["observations"]
    if kind == "coarse":
        here[:, 1] = np.round(here[:, 1] / 4.0) * 4.0
    here[FROZEN, 1] = here[1500, 1]
    if kind == "rests now and then":
        for start in (300, 2300, 3300):
            here[start : start + 12, 1] = here[start, 1]
    elif kind == "a limit":
        here[FROZEN, 1] = here[:, 1].max() + 1.0
    elif kind == "all stand":
        here[FROZEN] = here[1500]
    assert alarms(values) == []
