"""The top of a page: the answer first, beside the data, and how sure it is."""

import re

import pytest

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.report.bands import groups_of, title_of
from rl_training.report.charts import return_charts
from rl_training.report.facts import combinations
from rl_training.report.page.document import render_page
from rl_training.report.page.sweep import chance_text
from tests.report.run_files import DATASET, population, rows_of, write_run


def page_of(*folders):
    return render_page([LoggedRun.load(folder) for folder in folders])


def cards(page):
    """The names of the cards, in order."""
    return re.findall("<dt>(.*?)</dt>", page.partition("</dl>")[0])


@pytest.mark.parametrize(("reached", "kind"), [(-7.0, "below"), (-5.0, "equal to"), (-2.0, "above")])
def test_the_result_comes_first_beside_the_mean_of_the_data(tmp_path, reached, kind):
    page = page_of(write_run(tmp_path / "run", rows_of(RETURN, [[-9.0], [reached]], (0,))))
    assert cards(page)[:3] == ["final return", "best return", "status"]
    value = f'<span class="warn">{reached:.3f}</span>' if kind == "below" else f"{reached:.3f}"
    assert f"<dt>final return</dt><dd>{value}</dd><dd>{kind} the mean return in the data, -5.000; last evaluation" in page


@pytest.mark.parametrize("dataset", [{}, {**DATASET, "parts_of": 2}])
def test_returns_that_cannot_be_compared_with_the_data_are_not(tmp_path, dataset):
    page = page_of(write_run(tmp_path / "run", rows_of(RETURN, [[-9.0]], (0,)), dataset=dataset))
    assert "the mean return in the data" not in page
    assert "<dt>final return</dt><dd>-9.000</dd>" in page


@pytest.mark.parametrize(
    ("reached", "told"), [(0.3, "best constant action 40.0%"), (0.5, "worse than the best constant action, 40.0%")]
)
def test_a_policy_farther_from_the_data_than_a_constant_is_marked(tmp_path, reached, told):
    rows = rows_of("validation/action_distance", [[reached]], (0,), **{"validation/constant_distance": 0.4})
    page = page_of(write_run(tmp_path / "run", rows, env_id=None, algo_kwargs={"dataset": "plant.csv"}))
    value = f'<span class="warn">{reached:.1%}</span>' if reached > 0.4 else f"{reached:.1%}"
    assert f"<dt>from the logged actions</dt><dd>{value}</dd><dd>of the range; {told}</dd>" in page


def online(folder, *, last):
    """A run of SAC before which random episodes returned -6 on the mean."""
    play = {"return_mean": -6.0, "episodes": 5}
    return write_run(folder, rows_of(RETURN, [[last]], (0,)), algo="sac", dataset=None, play=play)


def test_a_policy_learned_online_stands_beside_random_actions(tmp_path):
    page = page_of(online(tmp_path / "run", last=-9.0))
    assert '<dd><span class="warn">-9.000</span></dd><dd>below random actions, -6.000; last evaluation' in page
    (chart,) = [one for one in return_charts(groups_of([LoggedRun.load(tmp_path / "run")])) if one.metric == RETURN]
    assert chart.references == {"random actions": -6.0}
    assert "above random actions, -6.000" in page_of(online(tmp_path / "good", last=-1.0))


def test_in_a_table_of_runs_returns_come_before_the_status_and_notes_below(tmp_path):
    page = page_of(population(tmp_path / "a"), population(tmp_path / "b"))
    headings = re.findall('<th scope="col"[^>]*><button type="button">(.*?)</button>', page)
    assert headings[:4] == ["run", "final return", "best return", "status"]
    assert page.index("A return is the mean over") > page.index("</table>")


def swept(folder, finals):
    """A sweep over beta: a list of returns of seeds for each value."""
    rows = [
        {"step": 10, "member": len(values) * i + seed, "seed": seed, "knob/beta": float(i + 1), RETURN: value}
        for i, values in enumerate(finals)
        for seed, value in enumerate(values)
    ]
    return LoggedRun.load(write_run(folder, rows, sweep={"beta": [float(i + 1) for i in range(len(finals))]}))


@pytest.mark.parametrize(
    ("finals", "told"),
    [
        ([[1.0, 3.0], [9.0, 11.0]], ""),
        ([[8.0, 10.0], [9.0, 11.0]], "that may be chance: the second differs by less than the seeds do"),
        ([[8.0], [9.0]], "that may be chance, with one seed each"),
    ],
)
def test_the_best_combination_may_be_chance(tmp_path, finals, told):
    run = swept(tmp_path / "run", finals)
    assert chance_text(combinations(groups_of([run]))) == told
    assert (f"of 2, by the final return; {told}" if told else "of 2, by the final return</dd>") in render_page([run])


def test_combinations_come_after_the_curves_sortable_and_with_code_as_code(tmp_path):
    page = render_page([swept(tmp_path / "run", [[1.0, 3.0], [9.0, 11.0]])])
    found = page[page.index("<h2>Combinations</h2>") : page.index("<h2>Members</h2>")]
    assert page.index("<h2>Learning curves</h2>") < page.index("<h2>Combinations</h2>")
    assert "<code>rl-training compare RUN --against all</code>" in found
    assert '<button type="button">final return</button>' in found
    assert '<td class="number" data-value="10.0">10.00 <span class="whole">(9.000 to 11.00)</span></td>' in found


def test_long_values_of_knobs_are_short_in_labels_unless_they_would_be_alike(tmp_path):
    values = [0.7525982157497013, 0.75, 1.00000001, 1.0]
    rows = [{"step": 10, "member": m, "seed": 0, "knob/beta": value, RETURN: 1.0} for m, value in enumerate(values)]
    run = LoggedRun.load(write_run(tmp_path / "run", rows, sweep={"beta": values}))
    assert [group.label for group in groups_of([run])] == ["beta=0.752598", "beta=0.75", "beta=1.00000001", "beta=1"]


def test_many_runs_are_called_by_their_folder(tmp_path):
    runs = [LoggedRun.load(population(tmp_path / "sweeps" / f"run_{i}", 1, 1)) for i in range(5)]
    assert title_of(runs[:4]) == "run_0, run_1, run_2, run_3"
    assert title_of(runs) == "sweeps: 5 runs"
    assert "<h1>sweeps: 5 runs</h1>" in render_page(runs)


def test_without_scripts_that_is_said_first(tmp_path):
    assert "<main><noscript>" in page_of(population(tmp_path / "run"))
