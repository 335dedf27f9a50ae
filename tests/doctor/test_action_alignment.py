"""Actions that are stored in other rows than their own, told from rewards that are, and from plants that look alike."""

import numpy as np
import pytest

from rl_training.config.blocks import ReadOptions
from rl_training.data import load_dataset
from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine
from tests.doctor.test_fixes import flags_of, found, saved
from tests.helpers import generator

EPISODES, LENGTH = 20, 120


def plant(seed=0, dead_time=0, feedback=0.3, explore=0.4, noise=0.02, effect=0.5, gusts=0.0, with_cost=True):
    """A mass that a controller with noise holds: its place and speed, gusts, one command, and a cost."""
    draw = generator(seed)
    values = {name: [] for name in ("observations", "actions", "rewards", "terminals", "timeouts")}
    for _ in range(EPISODES):
        place, speed, waiting = draw.normal(), 0.0, [0.0] * dead_time
        for _ in range(LENGTH):
            gust = gusts * draw.normal()
            seen = (place + noise * draw.normal(), speed + noise * draw.normal(), gust)
            action = float(np.clip(-feedback * (seen[0] + 2.0 * seen[1]) + explore * draw.normal(), -1.0, 1.0))
            waiting.append(action)
            speed += effect * waiting.pop(0) + gust - 0.1 * speed
            place += 0.2 * speed
            for name, value in zip(
                values, (seen, (action,), -(speed**2) - with_cost * 0.5 * action**2, False, False), strict=True
            ):
                values[name].append(value)
        values["timeouts"][-1] = True
    kinds = {"terminals": bool, "timeouts": bool}
    return {name: np.array(own, dtype=kinds.get(name, np.float32)) for name, own in values.items()}


def shifted(findings):
    return [finding for finding in findings if finding.code.startswith("shifted")]


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(("lag", "severity"), [(1, "error"), (-1, "warning")])
def test_a_shifted_column_of_actions_is_named_and_its_fix_is_the_right_one(lag, severity, seed, tmp_path, capsys):
    """Rewards have costs of actions, so that a shift of the rewards would make the doctor silent as well."""
    values = plant(seed)
    moved = {**values, "actions": np.roll(values["actions"], lag, axis=0)}
    path = saved(tmp_path, moved)
    finding = found(capsys, path)["shifted-actions"]
    assert finding["severity"] == severity
    assert f"one row {'late' if lag > 0 else 'early'}" in finding["evidence"]
    assert "reward_lag" not in finding["fix"]
    flags = flags_of(finding["fix"])
    assert flags == ["--action-lag", str(lag), "--action-lag-across"]
    assert not {"shifted-actions", "shifted-rewards"} & set(found(capsys, path, *flags))
    mended, whole = load_dataset(moved, action_lag=lag, action_lag_across=True), load_dataset(values)
    assert np.isin(mended.actions, whole.actions).all()
    assert len(whole) - len(mended) <= 1


def test_actions_that_are_late_inside_each_episode():
    """The first row of every episode holds a 0 that nobody commanded, and the last action is lost."""
    values = plant()
    late = np.roll(values["actions"], 1, axis=0)
    late[::LENGTH] = 0.0
    (finding,) = shifted(examine(read_dataset({**values, "actions": late})))
    assert "add --action-lag 1 (`action_lag: 1`)" in finding.fix
    assert not shifted(examine(read_dataset({**values, "actions": late}, options=ReadOptions.checked({"action_lag": 1}))))


def test_late_actions_show_without_a_word_of_the_rewards():
    values = plant(gusts=1.0)
    late = {
        **values,
        "actions": np.roll(values["actions"], 1, axis=0),
        "rewards": generator(9).normal(size=len(values["rewards"])),
    }
    (finding,) = shifted(examine(read_dataset(late)))
    assert (finding.code, finding.severity) == ("shifted-actions", "warning")


@pytest.mark.parametrize("lag", [1, -1])
def test_shifted_rewards_are_still_called_so(lag):
    values = plant()
    (finding,) = shifted(examine(read_dataset({**values, "rewards": np.roll(values["rewards"], lag)})))
    assert finding.code == "shifted-rewards"
    assert f"--reward-lag {lag}" in finding.fix


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize(
    "kind",
    [
        {},
        {"dead_time": 1},
        {"dead_time": 3},
        {"dead_time": 1, "feedback": 0.0},
        {"feedback": 2.0, "explore": 0.01},
        {"feedback": 2.0, "explore": 0.01, "dead_time": 2},
        {"feedback": 1.0, "explore": 0.0, "noise": 0.2, "effect": 0.01},
    ],
    ids=str,
)
def test_dead_times_and_tight_control_are_no_shift(kind, seed):
    assert not shifted(examine(read_dataset(plant(seed, **kind))))


def test_where_nothing_tells_which_column_is_wrong_no_lag_is_advised():
    """Commands have no visible effect, and rewards are their cost: either column may be off."""
    values = plant(effect=0.0, with_cost=False)
    values["rewards"] = np.roll(-(values["actions"][:, 0] ** 2), -1)
    (finding,) = shifted(examine(read_dataset(values)))
    assert finding.code == "shifted-rewards"
    assert "rewards are one row early, or actions one row late" in finding.evidence
    assert "--reward-lag" not in finding.fix
