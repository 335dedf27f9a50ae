"""Findings on single columns: read again, copied from the action, counting on; and fixes that suit the source."""

import numpy as np
import pytest

from rl_training.data import load_dataset
from rl_training.data.dataset_loaders import read_dataset
from rl_training.doctor.doctor import examine, quick_findings
from tests.doctor.test_false_alarms import arrays, disturbances
from tests.doctor.test_fixes import as_map, found, named_table, saved
from tests.helpers import generator
from tests.logs import linear_log, plant, write_csv


def with_column(values, here, after=None):
    """The log with one more observation column."""
    after = np.append(here[1:], here[-1]) if after is None else after
    wide = {"observations": here, "next_observations": after}
    return values | {name: np.column_stack((values[name], column)).astype(np.float32) for name, column in wide.items()}


def read_again(values, seed=0):
    noise = 1e5 + generator(seed).normal(0, 5, (2, len(values["rewards"])))
    return with_column(values, noise[0], noise[1])


def codes(values):
    return [finding.code for finding in examine(read_dataset(values))]


def test_a_column_that_is_read_again_is_named(tmp_path, capsys):
    values = read_again(linear_log("dense"))
    column = values["observations"].shape[1] - 1
    path = saved(tmp_path, values)
    findings = found(capsys, path)
    assert list(findings) == ["next-observation-break"]
    finding = findings["next-observation-break"]
    assert finding["severity"] == "warning"
    assert finding["evidence"] == f"observation column {column} alone does not continue into the next row: it was read again"
    assert "column map" not in finding["fix"]
    assert found(capsys, path, "--next-observations", "following") == {}
    without = {name: values[name][:, :-1] for name in ("observations", "next_observations")}
    assert found(capsys, saved(tmp_path, values | without)) == {}


def test_wrong_next_observations_show_beside_a_column_that_is_read_again():
    values = read_again(linear_log("dense"))
    rows = np.arange(20, 1500, 70)
    values["next_observations"][rows] = values["next_observations"][rows[::-1]]
    evidence = [f.evidence for f in examine(read_dataset(values)) if f.code == "next-observation-break"]
    column = values["observations"].shape[1] - 1
    assert len(evidence) == 2
    assert sum(f"{len(rows)} rows" in text and str(column) not in text.split(", inside")[0] for text in evidence) == 1


def test_shuffled_rows_are_still_shuffled():
    """Columns that hardly move go on in most rows, whatever their order."""
    values = plant(rows=1200)
    flags = (np.arange(1200) > 1150).astype(np.float32)
    for _ in range(4):
        values = with_column(values, flags)
    order = generator(0).permutation(1200)
    shuffled = {name: array[order] for name, array in values.items()}
    evidence = [f.evidence for f in examine(read_dataset(shuffled)) if f.code == "next-observation-break"]
    assert len(evidence) == 1
    assert "shuffled" in evidence[0]


def test_a_command_among_the_observations(tmp_path, capsys):
    values = plant()
    path = write_csv(tmp_path / "log.csv", named_table(values))
    finding = found(capsys, path, "--columns", as_map(observations=["T_room", "valve"]))["action-in-observations"]
    assert "`valve` (observation column 1) is `valve` (action column 0) in every row" in finding["evidence"]
    assert "`lag(NAME, 1)`" in finding["fix"]
    for observations in (["T_room"], ["T_room", "lag(valve, 1)"]):
        assert "action-in-observations" not in found(capsys, path, "--columns", as_map(observations=observations))


def test_every_run_looks_for_commands_among_the_observations():
    values = plant()
    data = load_dataset(with_column(values, values["actions"][:, 0]))
    finding = next(f for f in quick_findings(data) if f.code == "action-in-observations")
    assert "observation column 3 is action column 0" in finding.evidence
    assert "column map" not in finding.fix
    assert "lag" not in finding.fix


def test_a_command_that_differs_once_or_never_changes_is_no_copy():
    values = plant()
    copy = values["actions"][:, 0].copy()
    copy[777] += 0.1
    assert "action-in-observations" not in codes(with_column(values, copy))
    values["actions"][:, 0] = 0.5
    assert "action-in-observations" not in codes(with_column(values, values["actions"][:, 0]))


def meter(rows, seed=0):
    return 1000 + np.cumsum(generator(seed).uniform(0, 0.2, rows))


def test_a_meter_that_counts_on(tmp_path, capsys):
    values = plant()
    columns = named_table(values) | {"kWh": meter(len(values["rewards"]))}
    path = write_csv(tmp_path / "log.csv", columns)
    finding = found(capsys, path, "--columns", as_map(observations=["T_room", "trend", "kWh"]))["counter-column"]
    assert "`kWh` (observation column 2) only ever rises, from 1000" in finding["evidence"]
    assert "`diff(NAME)`" in finding["fix"]
    mapped = as_map(observations=["T_room", "trend", "diff(kWh)"])
    assert "counter-column" not in found(capsys, path, "--columns", mapped)
    unnamed = next(f for f in examine(read_dataset(with_column(values, columns["kWh"]))) if f.code == "counter-column")
    assert "diff" not in unnamed.fix
    assert "column map" not in unnamed.fix


def settles(rows):
    return 80 - 60 * np.exp(-np.arange(rows) / (rows / 20))


@pytest.mark.parametrize(
    ("rows", "column", "counts"),
    [
        (3000, meter, True),
        (400, meter, False),  # short, so that a state may well rise throughout
        (1500, meter, False),
        (3000, settles, False),  # a plant that heats up
        (3000, lambda rows: np.arange(rows) // 300, False),  # a batch number
        (3000, lambda rows: np.arange(rows) % 1499, False),  # a clock that starts again
    ],
)
def test_what_counts_as_a_counter_in_one_long_log(rows, column, counts):
    values = {name: array[:rows] for name, array in arrays(disturbances, 0).items()}
    values["observations"] = np.column_stack((values["observations"], column(rows))).astype(np.float32)
    assert ("counter-column" in codes(values)) == counts


def test_fixes_of_arrays_do_not_name_a_column_map():
    values = plant()
    values["actions"][[100, 900]] = 40.0
    values = with_column(values, np.full(len(values["rewards"]), 3.0))
    values = with_column(values, 2e8 + 50 * values["observations"][:, 0])
    bounds = {"action_low": np.array([-1.0]), "action_high": np.array([1.0])}
    bare = {name: values[name] for name in ("observations", "actions", "rewards")}
    stated = examine(read_dataset(values | bounds))
    findings = [*examine(read_dataset(values)), *stated, *examine(read_dataset(bare))]
    expected = {"constant-column", "huge-column", "actions-out-of-bounds", "missing-ends"}
    assert expected <= {finding.code for finding in findings}
    assert [str(finding) for finding in findings if "map" in finding.fix or "clip(" in finding.fix] == []
    assert any("--action-low and --action-high" in f.fix for f in findings if f.code == "actions-out-of-bounds")


def test_overlaps_beside_true_ends_of_arrays(tmp_path, capsys):
    values = plant()
    ends = np.flatnonzero(values["timeouts"])
    values["terminals"][ends[::2]] = True
    values["timeouts"][ends[::4]] = False
    finding = found(capsys, saved(tmp_path, values))["ends-overlap"]
    assert "`dones` instead of `terminals`" in finding["fix"]
    values["dones"] = values.pop("terminals")
    assert "ends-overlap" not in found(capsys, saved(tmp_path, values))


def test_a_time_column_that_is_named_is_not_asked_for(tmp_path, capsys):
    values = plant()
    columns = named_table(values)
    columns["minute"] = np.arange(len(values["rewards"]))
    path = write_csv(tmp_path / "log.csv", columns)
    unnamed = found(capsys, path, "--columns", as_map(episode=None))["missing-ends"]
    assert "name the `episode` or `time` column" in unnamed["fix"]
    named = found(capsys, path, "--columns", as_map(episode=None, time="minute"))["missing-ends"]
    assert "name the" not in named["fix"]
    assert "mapped as `timeout`" in named["fix"]


def test_one_column_jumps_and_two_jump():
    values = plant()
    bare = {name: values[name] for name in ("observations", "actions", "rewards")}
    for columns, words in (([0], "observation column 0 jumps after"), ([0, 1, 2], " jump after")):
        narrow = bare | {"observations": bare["observations"][:, columns]}
        assert any(words in finding.evidence for finding in examine(read_dataset(narrow)))
