"""Every finding of the doctor names a fix that works: it is applied as written, and the finding is gone."""

import json
import re
import shlex
from dataclasses import replace

import numpy as np
import pytest
import yaml

from rl_training.cli import run
from rl_training.data import load_dataset, save_dataset
from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine
from tests.doctor.test_doctor import Recipe, make_dataset
from tests.doctor.test_false_alarms import arrays, disturbances
from tests.helpers import call_cli
from tests.logs import linear_log, plant, table, write_csv

NAMES = {"obs_0": "T_room", "obs_1": "trend", "obs_2": "T_out", "action_0": "valve", "reward": "comfort"}
MAP = {"observations": ["T_room", "trend", "T_out"], "actions": ["valve"], "reward": "comfort", "episode": "episode"}


def episodes_of(values):
    return np.cumsum(np.append(False, (values["terminals"] | values["timeouts"])[:-1]))


def saved(path, values):
    np.savez(path / "log.npz", **values)
    return path / "log.npz"


def found(capsys, path, *flags):
    """The doctor's findings by code, from the shell; its exit code says whether one is an error."""
    capsys.readouterr()
    code = run(["data", "doctor", str(path), *flags, "--json"])
    findings = json.loads(capsys.readouterr().out)["findings"]
    assert code == (3 if any(finding["severity"] == "error" for finding in findings) else 0)
    return {finding["code"]: finding for finding in findings}


def flags_of(fix):
    """The options that a fix names, with their values."""
    return shlex.split(" ".join(re.findall(r"--[a-z-]+(?: (?:-?\d[\w.]*|drop|following|timeouts))?", fix)))


def not_finite(values):
    values["observations"][[50, 400], 1] = np.nan


def wrong_successors(values):
    rows = np.arange(20, 1500, 70)
    values["next_observations"][rows] = values["next_observations"][rows[::-1]]


def leaks(values):
    ends = np.flatnonzero(values["timeouts"])[:-1]
    values["next_observations"][ends] = values["observations"][ends + 1]


def both_ends(values):
    values["terminals"] |= values["timeouts"]


def limits_as_ends(values):
    values["terminals"], values["timeouts"] = values["timeouts"], values["terminals"]


def late(values):
    values["rewards"] = np.roll(values["rewards"], 1)


def early(values):
    values["rewards"] = np.roll(values["rewards"], -1)


def on_arrival(values):
    first = np.append(True, values["timeouts"][:-1])
    values["rewards"] = np.where(first, 0.0, np.roll(values["rewards"], 1)).astype(np.float32)


def percent(values):
    values["actions"] *= 100.0
    values |= {"action_low": np.array([-1.0, -1.0]), "action_high": np.array([1.0, 1.0])}


BY_FLAGS = {
    "not-finite": [not_finite],
    "next-observation-break": [wrong_successors],
    "next-observation-leak": [leaks],
    "ends-overlap": [both_ends],
    "ends-at-one-length": [limits_as_ends],
    "shifted-rewards": [late, early, on_arrival],
    "action-units": [percent],
}


@pytest.mark.parametrize(
    ("code", "fault"), [(c, f) for c, faults in BY_FLAGS.items() for f in faults], ids=lambda v: getattr(v, "__name__", v)
)
def test_the_options_that_a_finding_names(code, fault, tmp_path, capsys):
    values = linear_log("dense")
    fault(values)
    path = saved(tmp_path, values)
    finding = found(capsys, path)[code]
    flags = flags_of(finding["fix"])
    assert flags, finding
    assert found(capsys, path, *flags) == {}, finding


def test_time_limits_among_true_ends_are_named_by_their_length(tmp_path, capsys):
    """Half of the episodes end before: `--ends timeouts` would turn true ends into time limits."""
    values = linear_log("dense")
    keep = np.ones(len(values["rewards"]), dtype=bool)
    for start in range(0, len(keep), 200):
        stop = start + 17 + start // 80
        values["terminals"][stop], keep[stop + 1 : start + 100] = True, False
    values = {name: array[keep] for name, array in values.items()}
    true_ends = values["terminals"].sum()
    values["terminals"] |= values["timeouts"]
    values["timeouts"][:] = False
    path = saved(tmp_path, values)
    finding = found(capsys, path)["ends-at-one-length"]
    assert flags_of(finding["fix"]) == ["--time-limit", "100"]
    assert found(capsys, path, *flags_of(finding["fix"])) == {}
    assert load_dataset(path, time_limit=100).terminals.sum() == true_ends


def test_overlaps_beside_true_ends(tmp_path, capsys):
    """Where some true ends are no time limits, the way to keep them is to read the column as `done`."""
    values = plant()
    ends = np.flatnonzero(values["timeouts"])
    values["terminals"][ends[::2]] = True
    values["timeouts"][ends[::4]] = False
    columns = table(values)
    path = write_csv(tmp_path / "log.csv", columns)
    finding = found(capsys, path)["ends-overlap"]
    assert "`done`" in finding["fix"]
    mapped = (
        "{observations: 'obs_*', actions: [action_0], reward: reward, done: terminal, timeout: timeout, episode: episode}"
    )
    assert "ends-overlap" not in found(capsys, path, "--columns", mapped)
    data = read_dataset(path, options=None).dataset()
    assert data.terminals.sum() == len(ends[::2])


def test_shuffled_rows_of_a_table(tmp_path, capsys):
    columns = table(plant(rows=1200))
    order = np.random.Generator(np.random.Philox(0)).permutation(1200)
    path = write_csv(tmp_path / "log.csv", {name: column[order] for name, column in columns.items()})
    mapped = "{observations: 'obs_*', next_observations: 'next_obs_*', actions: [action_0], reward: reward, timeout: timeout"
    finding = found(capsys, path, "--columns", mapped + "}")["next-observation-break"]
    assert "order the rows by episode and time" in finding["fix"]
    assert found(capsys, path, "--columns", mapped + ", episode: episode, time: time}") == {}


def test_missing_ends_in_a_table(tmp_path, capsys):
    values = plant()
    columns = table(values, next_observations=False)
    bare = {name: column for name, column in columns.items() if name not in ("episode", "time", "terminal", "timeout")}
    path = write_csv(tmp_path / "bare.csv", bare)
    finding = found(capsys, path)["missing-ends"]
    assert finding["severity"] == "warning"
    assert "taken as one episode" in finding["evidence"]
    assert "`obs_0` (observation column 0)" in finding["evidence"]
    assert "line 121" in finding["evidence"]  # the header is line 1
    assert "`episode`" in finding["fix"]
    whole = write_csv(tmp_path / "whole.csv", {**bare, "episode": columns["episode"]})
    assert found(capsys, whole) == {}


def test_missing_ends_among_marked_ones(tmp_path, capsys):
    """Time limits are marked but for some: rebuilding next observations would ruin them, so that is not the advice."""
    values = plant()
    ends = np.flatnonzero(values["timeouts"])
    values["timeouts"][ends[5::5]] = False
    finding = found(capsys, saved(tmp_path, values))["missing-ends"]
    assert "--next-observations" not in finding["fix"]
    values["timeouts"][ends] = True
    assert found(capsys, saved(tmp_path, values)) == {}


def test_missing_ends_with_next_observations(tmp_path, capsys):
    values = plant()
    path = saved(tmp_path, {name: array for name, array in values.items() if name not in ("terminals", "timeouts")})
    finding = found(capsys, path)["missing-ends"]
    assert "taken as time limits" in finding["fix"]
    assert (load_dataset(path).timeouts == values["timeouts"]).all()  # what was said is what is done


def named_table(values):
    columns = table(values, next_observations=False)
    return {NAMES.get(name, name): column for name, column in columns.items() if name not in ("time", "terminal", "timeout")}


def as_map(**changes):
    return yaml.safe_dump({**MAP, **changes}, default_flow_style=True, width=10_000).strip()


def test_a_running_sum(tmp_path, capsys):
    values = plant()
    episode = episodes_of(values)
    total = np.concatenate([np.cumsum(values["rewards"][episode == number]) for number in range(episode[-1] + 1)])
    path = write_csv(tmp_path / "sum.csv", named_table({**values, "rewards": total.astype(np.float32)}))
    finding = found(capsys, path, "--columns", as_map())["running-sum"]
    assert "diff(NAME)" in finding["fix"]
    assert found(capsys, path, "--columns", as_map(reward="diff(comfort)")) == {}
    summed = {**values, "rewards": total.astype(np.float32)}
    assert "running-sum" in found(capsys, saved(tmp_path, summed))
    first = np.append(True, np.diff(episode) > 0)
    summed["rewards"] = np.where(first, total, np.diff(total, prepend=0.0)).astype(np.float32)
    assert found(capsys, saved(tmp_path, summed)) == {}


@pytest.mark.parametrize("fault", ["stuck-sensor", "outlier-rows"])
def test_cells_to_be_emptied(fault, tmp_path, capsys):
    values = plant()
    rows = slice(1000, 1300) if fault == "stuck-sensor" else slice(1000, 1002)
    values["observations"][rows, 2] = values["observations"][1000, 2] if fault == "stuck-sensor" else -9999.0
    columns = named_table(values)
    path = write_csv(tmp_path / "log.csv", columns)
    finding = found(capsys, path, "--columns", as_map())[fault]
    assert "`T_out` (observation column 2)" in finding["evidence"]
    assert "line 1002" in finding["evidence"]
    assert finding["severity"] == "warning"
    columns["T_out"] = columns["T_out"].astype(object)
    columns["T_out"][rows] = ""
    path = write_csv(tmp_path / "empty.csv", columns)
    assert found(capsys, path, "--columns", as_map(), *flags_of(finding["fix"])) == {}
    left_out = as_map(observations=["T_room", "trend"])
    assert fault not in found(capsys, tmp_path / "log.csv", "--columns", left_out)


def test_every_constant_column_is_named(tmp_path, capsys):
    values = plant()
    columns = named_table(values) | {f"flag_{i}": np.full(len(values["rewards"]), float(i)) for i in range(5)}
    columns |= {"damper": np.full(len(values["rewards"]), 0.35)}
    path = write_csv(tmp_path / "log.csv", columns)
    wide = as_map(observations=["T_room", "trend", "T_out", "flag_*"], actions=["valve", "damper"])
    finding = found(capsys, path, "--columns", wide)["constant-column"]
    assert all(f"`flag_{i}`" in finding["evidence"] for i in range(5))
    assert "`damper` (action column 1) is 0.35" in finding["evidence"]
    assert "held at its value" in finding["fix"]
    assert found(capsys, path, "--columns", as_map()) == {}


def test_lost_digits(tmp_path, capsys):
    values = plant()
    columns = named_table(values)
    columns["T_out"] = 2e8 + columns["T_out"].astype(np.float64) * 50
    path = write_csv(tmp_path / "log.csv", columns)
    finding = found(capsys, path, "--columns", as_map())["huge-column"]
    assert "`T_out`" in finding["evidence"]
    assert "x - 2e+08" in finding["fix"]
    assert found(capsys, path, "--columns", as_map(observations=["T_room", "trend", "T_out - 2e+08"])) == {}


def test_commands_outside_their_bounds(tmp_path, capsys):
    values = plant()
    values["actions"][[100, 900]] = 1.5
    path = write_csv(tmp_path / "log.csv", named_table(values))
    bounds = ("--action-low", "-1", "--action-high", "1")
    finding = found(capsys, path, "--columns", as_map(), *bounds)["actions-out-of-bounds"]
    assert finding["severity"] == "error"
    assert "line 102, line 902" in finding["evidence"]
    assert found(capsys, path, "--columns", as_map(actions=["clip(valve, -1, 1)"]), *bounds) == {}


def test_rows_that_set_the_range_alone(tmp_path, capsys):
    values = plant()
    values["actions"][[100, 900]] = 40.0
    path = write_csv(tmp_path / "log.csv", named_table(values))
    finding = found(capsys, path, "--columns", as_map())["actions-out-of-bounds"]
    assert finding["severity"] == "warning"
    assert "`valve` (action column 0) is -1 to 1, but reaches 40" in finding["evidence"]
    assert "clip(u, -1, 1)" in finding["fix"]
    assert found(capsys, path, "--columns", as_map(actions=["clip(valve, -1, 1)"])) == {}


def test_a_small_part_of_the_bounds(tmp_path, capsys):
    values = linear_log("dense")
    values["actions"] *= 0.02
    path = saved(tmp_path, values)
    bounds = ("--action-low", "-1,-1", "--action-high", "1,1")
    finding = found(capsys, path, *bounds)["small-action-range"]
    assert finding["severity"] == "warning"
    assert "in 99.9 % of the rows" in finding["evidence"]  # quantiles, and not called the range
    assert "--action-low and --action-high" in finding["fix"]
    assert found(capsys, path, "--action-low", "-0.02,-0.02", "--action-high", "0.02,0.02") == {}
    assert found(capsys, path, "--action-low", "-0.02", "--action-high", "0.02") == {}  # one number for both
    assert found(capsys, path) == {}


def test_a_wrong_count_of_bounds_is_a_fault_of_the_option(tmp_path, capsys):
    path = saved(tmp_path, linear_log("dense"))
    said = call_cli(capsys, "data", "doctor", path, "--action-low", "-1,-1,-1", "--action-high", "1", code=2)
    assert "`action_low` (--action-low) has 3 numbers" in said.stderr
    assert "has 2 actions: give 2, or one for all" in said.stderr
    assert "fix the file" not in said.stdout + said.stderr


def test_a_small_part_of_an_environment(tmp_path, capsys):
    data = make_dataset("Pendulum-v1", Recipe)
    values = {name: array.copy() for name, array in data.fields().items()}
    values["actions"] *= 0.1
    path = saved(tmp_path, values)
    finding = found(capsys, path, "--env", "Pendulum-v1")["small-action-range"]
    assert "leave out --env" in finding["fix"]
    assert "small-action-range" not in found(capsys, path)


def test_duplicates_are_left_out_by_the_command_that_is_named(tmp_path, capsys):
    values = linear_log("dense")
    again = {name: np.concatenate((array, array[100:300])) for name, array in values.items()}
    path = saved(tmp_path, again)
    finding = found(capsys, path)["duplicate-episodes"]
    assert "`rl-training data filter --unique`" in finding["fix"]
    call_cli(capsys, "data", "filter", "--unique", path, tmp_path / "once.npz")
    assert found(capsys, tmp_path / "once.npz") == {}


def test_columns_in_the_order_of_the_environment(tmp_path, capsys):
    data = make_dataset("Pendulum-v1", Recipe)
    values = {**table({name: getattr(data, name) for name in data.fields()}), "episode": episodes_of(data.fields())}
    path = write_csv(tmp_path / "log.csv", values)
    wrong = "{observations: [obs_2, obs_1, obs_0], actions: [action_0], reward: reward, episode: episode, time: time}"
    finding = found(capsys, path, "--env", "Pendulum-v1", "--columns", wrong)["space-mismatch"]
    assert "order" in finding["fix"]
    right = wrong.replace("obs_2, obs_1, obs_0", "obs_0, obs_1, obs_2")
    assert found(capsys, path, "--env", "Pendulum-v1", "--columns", right) == {}


def test_constant_rewards_are_told_and_huge_ones_need_nothing():
    values = arrays(disturbances, 0)
    constant = {**values, "rewards": np.ones_like(values["rewards"])}
    assert any("nothing can be learned" in finding.fix for finding in examine(read_dataset(constant)))
    huge = {**values, "rewards": values["rewards"] * 1e9}  # which the default scale of rewards makes ordinary
    assert examine(read_dataset(huge)) == examine(read_dataset(values))


def test_a_finding_on_a_stored_dataset_keeps_its_names(tmp_path):
    values = plant()
    values["observations"][:, 1] = values["next_observations"][:, 1] = 3.0
    data = load_dataset(values)
    named = replace(data, observation_names=("T_room", "trend", "T_out"), action_names=("valve",))
    save_dataset(named, tmp_path / "log")
    assert any("`trend` (observation column 1)" in finding.evidence for finding in examine(tmp_path / "log"))
