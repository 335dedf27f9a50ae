"""Reports as PNG."""

import io
import json
import sys
from itertools import pairwise

import pytest

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.errors import ConfigError
from rl_training.report.palette import LIGHT
from rl_training.report.pictures import SOFTWARE, png
from tests.report.run_files import DATASET, finetune, population, rows_of, without_environment, write_run


def test_a_picture_of_every_kind_of_run(tmp_path):
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    kinds = {"a": population, "b": finetune, "c": without_environment}
    runs = [LoggedRun.load(make(tmp_path / f"${name}_")) for name, make in kinds.items()]
    for chosen in (runs, runs[2:], [LoggedRun.load(write_run(tmp_path / "new", []))]):
        data = png(chosen, members=chosen is runs)
        assert SOFTWARE.encode() in data[:400]
        with image.open(io.BytesIO(data)) as picture:
            assert picture.width == 1430


def test_a_picture_says_what_its_lines_and_bands_are(tmp_path, monkeypatch):
    figure = pytest.importorskip("matplotlib.figure").Figure
    notes = []
    monkeypatch.setattr(figure, "supxlabel", lambda _, text, **__: notes.append(text.replace("\n", " ")))
    png([LoggedRun.load(population(tmp_path / "run"))])
    assert notes == ["Line: mean of 3 members, band from the lowest to the highest. Steps are gradient steps."]


def test_dollars_in_names_are_no_mathematics(tmp_path):
    pytest.importorskip("matplotlib")
    image = pytest.importorskip("PIL.Image")
    folders = [population(tmp_path / name) for name in ("$\\bad$", "$x")]
    with image.open(io.BytesIO(png([LoggedRun.load(folder) for folder in folders], title="$\\bad$"))) as picture:
        assert picture.width == 1430


@pytest.fixture
def drawn(monkeypatch):
    """Draw runs and return the figure."""
    figure = pytest.importorskip("matplotlib.figure").Figure
    save, seen = figure.savefig, []
    monkeypatch.setattr(figure, "savefig", lambda self, *args, **kwargs: (seen.append(self), save(self, *args, **kwargs)))

    def draw(*folders):
        png([LoggedRun.load(folder) for folder in folders])
        return seen[-1]

    return draw


def test_long_names_of_runs_leave_room_for_charts(tmp_path, drawn):
    rows = rows_of(RETURN, [[1.0], [2.0]], (0,)) + rows_of("train/critic_loss", [[1.0], [2.0]], (0,))
    rows += rows_of("validation/critic_loss", [[1.0], [2.0]], (0,))
    widths = []
    for names in (("a", "b"), ("x" * 90, "Anlage Nord, Belebung, Linie 2, td3_bc, Sommer 2026 und Winter")):
        figure = drawn(*(write_run(tmp_path / name, rows) for name in names))
        assert figure.axes[1].get_title(loc="left") == "Critic loss"
        assert len(figure.axes[1].get_legend().texts) == 4
        widths.append([axes.get_position().width for axes in figure.axes])
    assert min(widths[1]) > 0.8 * min(widths[0])
    (own,) = (axes for axes in drawn(tmp_path / "a").axes if axes.get_title(loc="left") == "Critic loss")
    assert [text.get_text() for text in own.get_legend().texts] == ["held out"], "of a single run the title has the name"


def test_each_environment_has_a_large_chart_with_its_runs_in_the_legend(tmp_path, drawn):
    rows = rows_of(RETURN, [[1.0], [2.0]], (0,))
    places = {"a": "Pendulum-v1", "b": "MountainCarContinuous-v0"}
    figure = drawn(*(write_run(tmp_path / name, rows, env_id=env, dataset=None) for name, env in places.items()))
    found = {axes.get_title(loc="left"): [text.get_text() for text in axes.get_legend().texts] for axes in figure.axes}
    assert found == {f"Return in evaluations, {env}": [name] for name, env in places.items()}
    told = "different environments cannot be compared: Pendulum-v1 (a); MountainCarContinuous-v0 (b)."
    assert told in figure.get_supxlabel().replace("\n", " ")


@pytest.mark.parametrize("last", [1, 1000, 20_000_000])
def test_steps_below_a_chart_are_whole_numbers_that_do_not_meet(tmp_path, drawn, last):
    rows = [{"step": last, "member": 0, "seed": 0, "train/critic_loss": 1.0, RETURN: 1.0}]
    figure = drawn(write_run(tmp_path / "run", rows))
    figure.draw_without_rendering()
    for axes in figure.axes:
        low, high = axes.get_xlim()
        shown = [tick for tick in axes.xaxis.get_major_ticks() if low <= tick.get_loc() <= high]
        assert all(float(tick.get_loc()).is_integer() for tick in shown)
        boxes = [tick.label1.get_window_extent() for tick in shown]
        assert all(left.x1 < right.x0 for left, right in pairwise(boxes))


def test_a_curve_of_a_single_point_is_seen(tmp_path, drawn):
    rows = rows_of("validation/action_distance", [[0.2, 0.3]])
    (axes,) = drawn(write_run(tmp_path / "one", rows, env_id=None)).axes
    (line,) = [line for line in axes.get_lines() if len(line.get_xdata()) == 1]
    assert line.get_marker() == "o"
    (band,) = axes.collections
    assert band.get_linewidth() > 0
    rows = rows_of("validation/action_distance", [[0.2, 0.3]] * 60)
    (axes,) = drawn(write_run(tmp_path / "many", rows, env_id=None)).axes
    assert [line.get_marker() for line in axes.get_lines()] == ["None"]


def test_no_legend_covers_a_curve(tmp_path, drawn):
    figure = drawn(population(tmp_path / "a"), without_environment(tmp_path / "b"))
    found = [(axes, axes.get_legend()) for axes in figure.axes if axes.get_legend()]
    assert len(found) > 3
    for axes, legend in found:
        assert legend.get_window_extent().y1 < axes.get_window_extent().y0
        assert not any(legend.get_window_extent().overlaps(other.get_window_extent()) for other in figure.axes)


def test_the_switch_to_online_is_in_the_legend(tmp_path, drawn):
    def entries(*folders):
        figure = drawn(*folders)
        return [[text.get_text() for text in axes.get_legend().texts] for axes in figure.axes if axes.get_legend()]

    alone = finetune(tmp_path / "fine")
    first, *small = entries(alone)
    assert first[-1] == "goes online"
    assert not any("goes online" in one for one in small), "small charts have the line alone"
    later = finetune(tmp_path / "later")
    rows = [json.loads(line) for line in (later / "metrics.jsonl").read_text().splitlines()]
    rows.append({"step": 70, "member": 0, "seed": 0, "train/critic_loss": 1.0})
    (later / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    assert entries(alone, population(tmp_path / "pop"), later)[0][-2:] == ["fine goes online", "later goes online"]


def test_an_axis_of_shares_does_not_go_below_zero(tmp_path, drawn):
    rows = rows_of("validation/at_bound", [[0.0], [0.0]], (0,)) + rows_of("validation/at_bound_data", [[0.01], [0.01]], (0,))
    (axes,) = drawn(write_run(tmp_path / "run", rows, env_id=None)).axes
    assert axes.get_title(loc="left") == "Actions at a bound"
    assert axes.get_ylim()[0] == 0.0


def test_what_a_picture_leaves_out_is_said(tmp_path, drawn):
    rows = [row for i in range(20) for row in rows_of(f"train/metric_{i}", [[1.0], [2.0]], (0,))]
    figure = drawn(write_run(tmp_path / "run", rows))
    assert len(figure.axes) == 15
    assert figure.get_supxlabel().endswith("The first 15 of 20 charts: a report as HTML has more.")
    figure = drawn(*(write_run(tmp_path / f"run{i}", rows[:2]) for i in range(17)))
    assert "The first 16 of 17 curves: a report as HTML has more." in figure.get_supxlabel().replace("\n", " ")
    assert "HTML" not in drawn(tmp_path / "run0").get_supxlabel()


def test_different_data_are_named_below_the_charts(tmp_path, drawn):
    sets = {"a": {**DATASET, "fingerprint": "1" * 64}, "b": DATASET}
    runs = [write_run(tmp_path / name, rows_of("train/loss", [[1.0]]), dataset=data) for name, data in sets.items()]
    assert "learned from different data: " in drawn(*runs).get_supxlabel().replace("\n", " ")
    assert "different data" not in drawn(runs[0]).get_supxlabel()


def test_without_matplotlib_it_says_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ConfigError, match=r'a PNG needs matplotlib: pip install "rl-training\[plot\]"'):
        png([LoggedRun.load(population(tmp_path / "run"))])


def test_each_chart_has_the_range_of_its_curves_and_a_cross_where_a_member_ends(tmp_path, drawn):
    rows = rows_of(RETURN, [[1.0, 2.0], [3.0, None]], every=500) + rows_of("train/critic_loss", [[1.0], [2.0]], (0,))
    returns, losses = drawn(write_run(tmp_path / "run", rows)).axes
    (cross,) = [line for line in returns.get_lines() if line.get_marker() == "x"]
    assert cross.get_xydata().tolist() == [[500.0, 1.5]]
    assert returns.get_xlim() == pytest.approx((495.0, 1005.0))
    assert losses.get_xlim() == pytest.approx((9.9, 20.1))


def test_curves_in_pictures_have_the_dashes_of_the_page(tmp_path, drawn):
    rows = rows_of(RETURN, [[1.0], [2.0]], (0,))
    (axes,) = drawn(*(write_run(tmp_path / str(i), rows) for i in range(9))).axes
    first, ninth = (axes.get_lines()[i] for i in (0, 8))
    assert first.get_color() == ninth.get_color() == LIGHT[0]
    assert (first.is_dashed(), ninth.is_dashed()) == (False, True)
