"""Values of the critics beside returns, in one unit."""

import json

import numpy as np
import pytest
import torch
from safetensors.torch import save_file

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.report.bands import groups_of
from rl_training.report.charts import value_charts
from rl_training.report.page.document import render_page
from rl_training.report.values import reward_transform, value_curves
from tests.report.run_files import DATASET, population, rows_of, write_run


def curves(folder, rows=None, dataset=DATASET, **kwargs):
    own = rows_of(RETURN, [[-100.0, -50.0]]) + rows_of("eval/length_mean", [[10.0, 10.0]])
    own += rows_of("train/q_mean", [[-8.0, -6.0]])
    run = LoggedRun.load(
        write_run(folder, own if rows is None else rows, dataset=dataset, algo_kwargs={"gamma": 0.9, **kwargs})
    )
    return value_curves(groups_of([run])[0])


def test_scale_and_shift_are_undone_and_returns_discounted(tmp_path):
    """Rewards of -10 and -5 a step without end are worth -100 and -50 at gamma 0.9; q = (v + shift / 0.1) * scale."""
    found = curves(tmp_path / "run", reward={"scale": 0.5, "shift": 1.0, "normalize": False})
    assert found.expected.values.tolist() == [[pytest.approx(-36.0), pytest.approx(-32.0)]]
    assert found.achieved.values.tolist() == [[pytest.approx(-100.0), pytest.approx(-50.0)]]


def test_episodes_that_truly_end_earn_nothing_afterwards(tmp_path):
    found = curves(tmp_path / "run", dataset={**DATASET, "true_ends": 4}, reward={"scale": 2.0})
    assert found.achieved.values[0, 0] == pytest.approx(-10.0 * (1 - 0.9**10) / 0.1)


def test_evaluations_that_the_time_limit_cut_go_on_without_end_whatever_the_run_learned_from(tmp_path):
    """One rule for runs online and on data, so that their values can be compared: critics look beyond a cut."""
    for name, dataset in (("online", None), ("data", {**DATASET, "true_ends": 4})):
        found = limited(tmp_path / name, [[-100.0, -50.0], [-10.0, -20.0]], [[10.0, 10.0], [10.0, 10.0]], dataset)
        assert np.allclose(found, [[-100.0, -50.0], [-10.0, -20.0]])


def test_where_some_episodes_ended_all_values_end_so_that_curves_do_not_jump_by_one_episode(tmp_path):
    found = limited(tmp_path / "run", [[-100.0, -95.0], [-50.0, -100.0]], [[10.0, 9.5], [5.0, 10.0]], None)
    left = [[(1 - 0.9**steps) / 0.1 for steps in row] for row in ([10.0, 9.5], [5.0, 10.0])]
    assert np.allclose(found, -10.0 * np.array(left))


def test_how_settled_values_are_follows_from_their_horizon(tmp_path):
    """10 updates by tau 0.1: each of n leaves 1 - 0.1 / h of what is missing of a value of h steps."""
    raw = {"normalize": False}
    endless = curves(tmp_path / "endless", tau=0.1, reward=raw)
    assert endless.endless
    assert endless.settled.tolist() == [pytest.approx(1 - (1 - 0.1 * 0.1) ** 10)] * 2
    ends = curves(tmp_path / "ends", dataset={**DATASET, "true_ends": 4}, tau=0.1, reward={"scale": 2.0})
    steps = (1 - 0.9**10) / 0.1
    assert not ends.endless
    assert ends.settled.tolist() == [pytest.approx(1 - (1 - 0.1 / steps) ** 10)] * 2
    ahead = curves(tmp_path / "ahead", tau=0.1, n_step=3, reward=raw)
    assert ahead.settled.tolist() == [pytest.approx(1 - (1 - 0.1 * (1 - 0.9**3)) ** 10)] * 2


def test_values_that_are_not_settled_say_so_beside_returns(tmp_path):
    page = render_page([LoggedRun.load(population(tmp_path / "run"))])
    assert "Values begin at 0 and follow by tau: of even rewards, critics know at the end about 1% (run)." in page


def test_runs_of_unlike_horizons_are_named(tmp_path):
    """Episodes of one run all reach the limit, of the other one ended: their achieved values differ by the horizon too."""
    for name, lengths in (("whole", [[10.0, 10.0]] * 2), ("ended", [[10.0, 10.0], [10.0, 9.5]])):
        limited(tmp_path / name, [[-50.0, -50.0]] * 2, lengths, None)
    groups = groups_of([LoggedRun.load(tmp_path / name) for name in ("whole", "ended")])
    ((chart,), _) = value_charts(groups)
    assert chart.note.startswith(
        "Achieved goes on without end for whole, to the end of episodes for ended. Values begin at 0"
    )
    ((alone,), _) = value_charts(groups[:1])
    assert "without end" not in alone.note


def limited(folder, returns, lengths, dataset):
    """What evaluations with a time limit of 10 steps achieve."""
    rows = rows_of(RETURN, returns) + rows_of("eval/length_mean", lengths) + rows_of("train/q_mean", [[0.0, 0.0]] * 2)
    write_run(folder, rows, dataset=dataset, algo_kwargs={"gamma": 0.9, "reward": {"normalize": False}})
    record = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**record, "time_limit": 10}))
    return value_curves(groups_of([LoggedRun.load(folder)])[0]).achieved.values


def test_a_shift_is_not_undone_where_episodes_end(tmp_path):
    """A reward of 1 at the goal after 10 steps, shifted by -1: an exact critic expects 0.9**9 - (1 - 0.9**10) / 0.1."""
    rows = rows_of(RETURN, [[1.0]], (0,)) + rows_of("eval/length_mean", [[10.0]], (0,))
    rows += rows_of("train/q_mean", [[0.9**9 - (1 - 0.9**10) / 0.1]], (0,))
    shifted = {"shift": -1.0, "normalize": False}
    for name, dataset in (("ends", {**DATASET, "true_ends": 1}), ("unknown", None)):
        found = curves(tmp_path / name, rows, dataset, reward=shifted)
        assert found == (
            "rewards were shifted, which cannot be undone where episodes may end: values do not tell how many steps are left"
        )
    plain = curves(tmp_path / "plain", rows, {**DATASET, "true_ends": 1}, reward={"normalize": False})
    assert plain.expected.values == [[pytest.approx(0.9**9 - (1 - 0.9**10) / 0.1)]]  # nothing to undo


def test_what_cannot_be_compared_is_said(tmp_path):
    assert "no checkpoint tells it" in curves(tmp_path / "auto")
    assert "cannot be undone" in curves(tmp_path / "clip", reward={"clip": [-1.0, 1.0], "normalize": False})
    assert curves(tmp_path / "none", rows=rows_of("train/q_mean", [[1.0, 2.0]])) is None


def test_a_fitted_scale_is_read_from_the_checkpoint(tmp_path):
    folder = write_run(tmp_path / "run", [])
    saved = folder / "checkpoints" / "step-000000010"
    saved.mkdir(parents=True)
    (folder / "checkpoints" / "latest.json").write_text('{"checkpoint": "step-000000010"}')
    save_file(
        {"transforms/reward": torch.tensor([0.25, 0.5, -np.inf, np.inf], dtype=torch.float64)}, saved / "state.safetensors"
    )
    assert reward_transform(LoggedRun.load(folder)) == (0.25, 0.5, False)
    (saved / "state.safetensors").write_bytes(b"damaged")
    assert reward_transform(LoggedRun.load(folder)) == (None, 0.0, False)
