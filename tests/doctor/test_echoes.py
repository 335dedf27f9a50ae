"""Sensors that show the command of their own row."""

import numpy as np
import pytest

from rl_training.data import load_dataset
from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine, quick_findings
from tests.helpers import generator


def log(noise=0.5, episodes=12, length=100, seed=0):
    """A room that two valves heat and cool, which a controller with noise holds at 20 degrees; the columns by name."""
    draw = generator(seed)
    columns = {name: [] for name in ("room", "outside", "hot", "cold", "reward", "last")}
    for _ in range(episodes):
        room, outside = draw.normal(20.0, 3.0), draw.normal(5.0, 2.0)
        for step in range(length):
            hot, cold = (
                np.clip(0.3 * (21.0 - room) + noise * draw.normal(), -1, 2),
                0.2 * (room - 19.0) + noise * draw.normal(),
            )
            for name, value in (("room", room), ("outside", outside), ("hot", hot), ("cold", cold)):
                columns[name].append(value + (0.05 * draw.normal() if name == "room" else 0.0))
            columns["reward"].append(-abs(room - 20.0))
            columns["last"].append(step == length - 1)
            room += 0.4 * hot - 0.3 * cold + 0.02 * (outside - room) + 0.1 * draw.normal()
            outside += 0.1 * draw.normal()
    return {name: np.array(values) for name, values in columns.items()}


def arrays(columns, *sensors):
    return {
        "observations": np.column_stack((columns["room"], columns["outside"], *sensors)).astype(np.float32),
        "actions": np.column_stack((columns["hot"], columns["cold"])).astype(np.float32),
        "rewards": columns["reward"].astype(np.float32),
        "terminals": np.zeros(len(columns["last"]), dtype=bool),
        "timeouts": columns["last"],
    }


def echoes(values):
    return [finding for finding in examine(read_dataset(values)) if finding.code == "action-echo"]


def power(columns):
    """Watts that both valves take, the more so together."""
    return 300.0 + 4000.0 * columns["hot"] + 900.0 * columns["cold"] ** 2 + 500.0 * columns["hot"] * columns["cold"]


@pytest.mark.parametrize("seed", range(3))
def test_a_sensor_that_is_read_after_the_command_is_named(seed):
    columns = log(seed=seed)
    (finding,) = echoes(arrays(columns, power(columns)))
    assert finding.severity == "warning"
    assert finding.evidence.startswith("observation column 2 tells the command of the same row: the actions explain")
    assert "leave it out of the data" in finding.fix


@pytest.mark.parametrize("seed", range(3))
def test_states_and_what_the_command_before_did_are_no_echo(seed):
    columns = log(seed=seed)
    before = np.append(power(columns)[:1], power(columns)[:-1])
    assert not echoes(arrays(columns))
    assert not echoes(arrays(columns, before))


def test_a_noisy_sensor_of_the_command_is_no_echo():
    """Half of what is new in it is noise of its own, so it is more than the command."""
    columns = log()
    spread = power(columns).std()
    assert not echoes(arrays(columns, power(columns) + generator(1).normal(0.0, spread, len(columns["room"]))))


def test_a_rule_without_noise_looks_the_same_and_is_told_so():
    columns = log()
    columns["hot"] = columns["cold"] = generator(2).normal(size=len(columns["room"]))
    (finding,) = echoes(arrays(columns, 3.0 * columns["hot"] + 1.0))
    assert "if the command is computed from it, all is well" in finding.fix


def test_an_exact_copy_has_a_finding_of_its_own():
    columns = log()
    codes = [finding.code for finding in examine(read_dataset(arrays(columns, columns["hot"])))]
    assert "action-in-observations" in codes
    assert "action-echo" not in codes


def test_every_run_looks_for_echoes_and_few_rows_say_nothing():
    columns = log()
    values = arrays(columns, power(columns))
    assert "action-echo" in [finding.code for finding in quick_findings(load_dataset(values))]
    few = {name: array[:300] for name, array in values.items()}
    assert "action-echo" not in [finding.code for finding in quick_findings(load_dataset(few))]
