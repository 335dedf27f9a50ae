"""Charts in a headless Chromium: they are drawn, and react to mouse and keyboard."""

import json

import pytest

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.report.page.document import render_page
from tests.report.browser import click, count, plot_box, ticks, tip
from tests.report.run_files import finetune, population, rows_of, write_run


@pytest.mark.parametrize("name", ["population", "finetune", "two", "data"])
@pytest.mark.parametrize("width", [1200, 360])
def test_every_chart_is_drawn_and_the_page_fits(browser, pages, name, width):
    browser.open(pages[name], width=width)
    charts = count(browser, ".plot")
    assert charts > 1
    assert (
        browser.evaluate("[...document.querySelectorAll('.plot')].filter(p => p.querySelector('path.curve')).length")
        == charts
    )
    assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth"), (
        "it scrolls sideways"
    )
    outside = browser.evaluate(
        "[...document.querySelectorAll('.plot text')].filter(t => { const b = t.getBoundingClientRect(),"
        " p = t.closest('.plot').getBoundingClientRect(); return b.left < p.left - 1 || b.right > p.right + 1; }).length"
    )
    assert outside == 0, "no label leaves its chart"


def test_hover_shows_the_values_of_every_curve(browser, pages):
    browser.open(pages["two"])
    left, top, width, height = plot_box(browser)
    assert tip(browser) is None
    browser.mouse("mouseMoved", left + width - 16, top + height / 2)
    said = tip(browser)
    assert said.startswith("step 120 ")
    assert "population -34.00 (-45.00 to -23.00)" in said
    assert "finetune -10.00 (-11.00 to -9.000)" in said
    browser.mouse("mouseMoved", left + width / 2, 5)
    assert tip(browser) is None


def test_the_keyboard_reads_a_chart_step_by_step(browser, pages):
    browser.open(pages["population"])
    browser.evaluate("document.querySelector('.plot').focus()")
    browser.press("ArrowRight")
    assert tip(browser).startswith("step 10 population -100.0")
    browser.press("ArrowRight")
    assert tip(browser).startswith("step 20 ")
    browser.press("End")
    assert tip(browser).startswith("step 120 ")
    assert "seed 2 -23.00" in tip(browser)
    before = ticks(browser)
    browser.press("+")
    assert ticks(browser) != before
    browser.press("0")
    assert ticks(browser) == before


def test_the_keyboard_leads_back_from_where_nothing_is(browser, tmp_path):
    losses = rows_of("train/critic_loss", [[1.0], [2.0]], (0,))  # at steps 10 and 20
    run = LoggedRun.load(write_run(tmp_path / "run", rows_of(RETURN, [[1.0], [3.0]], (0,), every=500) + losses))
    (tmp_path / "page.html").write_text(render_page([run]))
    browser.open(tmp_path / "page.html")
    empty = "[...document.querySelectorAll('.plot')].map(p => p.querySelector('.empty')?.textContent ?? '')"
    assert browser.evaluate(empty) == ["", ""]
    before = ticks(browser)
    for back in ("0", "Escape", "-", "ArrowLeft"):
        for _ in range(2):  # of the whole range, where the losses have ended
            click(browser, "[data-zoom='in']")
        browser.evaluate("document.querySelectorAll('.plot')[1].focus()")
        assert browser.evaluate(empty) == ["", "nothing in this range"], "while the other chart is drawn"
        zoomed = ticks(browser)
        browser.press(back)
        assert ticks(browser) != zoomed
        browser.press("0")
        assert ticks(browser) == before


def test_a_line_without_points_in_the_range_is_drawn(browser, tmp_path):
    rows = rows_of(RETURN, [[0.0], [1000.0]], (0,), every=500)  # a line from step 500 to 1000
    (tmp_path / "page.html").write_text(render_page([LoggedRun.load(write_run(tmp_path / "run", rows, dataset={}))]))
    browser.open(tmp_path / "page.html")
    browser.evaluate("document.querySelector('.plot').focus()")
    for _ in range(3):
        browser.press("+")
    assert count(browser, ".empty") == 0
    heights = browser.evaluate("[...document.querySelectorAll('.plot .tick.end')].map(t => +t.textContent)")
    assert 430 < min(heights) < max(heights) < 570, "the part of the line in the range fills the chart"
    zoomed = ticks(browser)
    browser.press("ArrowRight")
    assert tip(browser) is None
    assert ticks(browser) != zoomed, "the arrow goes to where points are"


def test_toggles_hide_runs_bands_and_members(browser, pages):
    browser.open(pages["two"])
    first = "[data-chart='0'] "
    assert [count(browser, f"{first}.{kind}") for kind in ("curve", "band", "member")] == [2, 2, 5]
    click(browser, "#bands")
    assert count(browser, f"{first}.band") == 0
    click(browser, "[data-member='0:1']")
    assert count(browser, f"{first}.member") == 4
    click(browser, "#members")
    assert count(browser, f"{first}.member") == 0
    click(browser, "[data-group='0']")
    assert count(browser, f"{first}.curve") == 1
    assert count(browser, f"{first}.curve.c1") == 1
    click(browser, "[data-group='1']")
    assert browser.evaluate("document.querySelector('.empty').textContent") == "no run is chosen"


def test_dragging_zooms_all_charts_and_a_double_click_resets(browser, pages):
    browser.open(pages["population"])
    left, top, width, height = plot_box(browser)
    before = ticks(browser)
    browser.drag((left + width * 0.4, top + height / 2), (left + width * 0.7, top + height / 2))
    zoomed = ticks(browser)
    assert zoomed != before
    assert 40 <= int(zoomed[0]) < int(zoomed[-1]) <= 90
    assert not browser.evaluate("document.getElementById('zoom-reset').disabled")
    click(browser, "#zoom-reset")
    assert ticks(browser) == before
    click(browser, "[data-zoom='in']")
    assert ticks(browser) != before
    browser.evaluate("document.querySelector('.plot').dispatchEvent(new MouseEvent('dblclick'))")
    browser.settle()
    assert ticks(browser) == before


def loss_plot():
    """The code that finds the chart of the critic's loss."""
    return "[...document.querySelectorAll('.plot')].find(p => p.closest('figure').innerText.includes('critic_loss'))"


def test_log_scale_time_and_smoothing(browser, pages):
    browser.open(pages["population"])
    curve = f"{loss_plot()}.querySelector('.curve').getAttribute('d')"
    linear = browser.evaluate(curve)
    click(browser, "#log")
    assert browser.evaluate(curve) != linear
    click(browser, "#log")
    assert browser.evaluate(curve) == linear
    browser.evaluate("(s => { s.value = '0.8'; s.dispatchEvent(new Event('input')); })(document.getElementById('smooth'))")
    browser.settle()
    assert browser.evaluate(curve) != linear
    browser.evaluate("(s => { s.value = 'true'; s.dispatchEvent(new Event('input')); })(document.getElementById('axis'))")
    browser.settle()
    assert ticks(browser)[-1] == "20 s"


def test_a_log_scale_that_cannot_be_is_told(browser, pages, tmp_path):
    box = "document.getElementById('log')"
    linear = "[...document.querySelectorAll('.linear')].map(t => t.closest('.plot').dataset.chart)"
    browser.open(pages["population"])
    assert not browser.evaluate(f"{box}.disabled")
    assert browser.evaluate(linear) == []
    click(browser, "#log")
    assert "0" in browser.evaluate(linear), "returns are negative"
    assert browser.evaluate(f"{loss_plot()}.querySelector('.linear')") is None
    click(browser, "#log")
    rows = rows_of(RETURN, [[-3.0, -2.0], [-2.0, -1.0]])
    (tmp_path / "page.html").write_text(render_page([LoggedRun.load(write_run(tmp_path / "run", rows))]))
    browser.open(tmp_path / "page.html")
    assert browser.evaluate(f"{box}.disabled")
    told = "No chart has positive values alone, which a log scale needs"
    assert browser.evaluate(f"[{box}.parentElement.title, {box}.getAttribute('aria-description')]") == [told, told]


def test_a_chart_that_stays_linear_is_drawn_whole_and_the_log_scale_can_be_switched_off(browser, tmp_path):
    losses = rows_of("train/critic_loss", [[1.0], [2.0]], (0,))  # at steps 10 and 20, for which a log scale is offered
    rising = rows_of(RETURN, [[1.0], [100.0]], (0,), every=500) + losses
    below = rows_of(RETURN, [[-1.0], [-1.0]], (0,), every=500)
    runs = [LoggedRun.load(write_run(tmp_path / name, rows)) for name, rows in (("a", rising), ("b", below))]
    (tmp_path / "page.html").write_text(render_page(runs))
    browser.open(tmp_path / "page.html")
    click(browser, "#log")
    browser.evaluate("document.querySelector('.plot').focus()")
    for _ in range(3):
        browser.press("+")
    heights = browser.evaluate("[...document.querySelectorAll('.plot .tick.end')].map(t => +t.textContent)")
    assert max(heights) == 50, "the line is at 57 where it leaves; a geometric one would be at 13"
    box = "document.getElementById('log')"
    assert browser.evaluate(f"[{box}.checked, {box}.disabled]") == [True, False]
    click(browser, "#log")
    assert browser.evaluate(f"[{box}.checked, {box}.disabled]") == [False, True]


def test_smoothed_values_are_called_so(browser, pages):
    browser.open(pages["population"])
    browser.evaluate("sessionStorage.clear()")
    browser.open(pages["population"])
    smooth = "(s => {{ s.value = '{}'; s.dispatchEvent(new Event('input')); }})(document.getElementById('smooth'))"
    browser.evaluate(smooth.format(0.8))
    browser.settle()
    browser.evaluate("document.querySelector('.plot').focus()")
    browser.press("End")
    assert tip(browser).startswith("step 120, smoothed by 0.80 population -")
    assert not tip(browser).startswith("step 120, smoothed by 0.80 population -34.00")
    browser.evaluate(smooth.format(0))
    browser.settle()
    browser.press("End")
    assert tip(browser).startswith("step 120 population -34.00")


def test_the_switch_is_marked_and_its_dip_told(browser, pages):
    browser.open(pages["finetune"])
    assert count(browser, "[data-chart='0'] .switch") == 1
    assert "30.00" in browser.evaluate("document.querySelector('[aria-label=\"The switch to online\"]').innerText")


def test_of_several_runs_the_switch_says_whose_it_is(browser, pages, tmp_path):
    label = "document.querySelector(\"[data-chart='0'] .switch-label\").textContent"
    browser.open(pages["finetune"])
    assert browser.evaluate(label) == "online"
    runs = [LoggedRun.load(population(tmp_path / "offline")), LoggedRun.load(finetune(tmp_path / "fine"))]
    (tmp_path / "page.html").write_text(render_page(runs))
    browser.open(tmp_path / "page.html")
    assert browser.evaluate(label) == "online: fine"


def test_names_of_switches_do_not_meet(browser, tmp_path):
    folders = [finetune(tmp_path / f"finetune_{number}") for number in range(4)]
    for number, folder in enumerate(folders):  # 60, 65, 70 and 75
        with (folder / "metrics.jsonl").open("a") as stream:
            stream.write(json.dumps({"step": 60 + 5 * number, "member": 0, "seed": 0, "train/critic_loss": 1.0}) + "\n")
    (tmp_path / "page.html").write_text(render_page([LoggedRun.load(folder) for folder in folders]))
    for width in (1200, 390):
        browser.open(tmp_path / "page.html", width=width)
        for chart in range(browser.evaluate("document.querySelectorAll('.plot').length")):
            shown = f"[...document.querySelectorAll('.plot')[{chart}].querySelectorAll('.switch-label')]"
            boxes = browser.evaluate(
                f"{shown}.map(one => one.getBoundingClientRect()).map(r => [r.x, r.y, r.right, r.bottom])"
            )
            assert len(boxes) == 4 or chart > 0, "a chart of the online phase begins after some of them"
            left = browser.evaluate(
                f"Math.min(...[...document.querySelectorAll('.plot')[{chart}].querySelectorAll('.axis')]"
                ".map(one => one.getBoundingClientRect().x))"
            )
            assert all(box[0] >= left - 1 for box in boxes), "and none covers the numbers of an axis"
            for place, (x, y, right, bottom) in enumerate(boxes):
                meeting = [
                    one
                    for one in boxes[place + 1 :]
                    if one[0] < right and one[2] > x and one[1] < bottom - 2 and one[3] > y + 2
                ]
                assert meeting == []


def test_a_reference_outside_the_axis_is_named_at_its_end(browser, tmp_path):
    figures = {"q_policy": [[-30.0], [-31.0]], "reached_lowest": [[-2092.0]] * 2, "reached_highest": [[-30.5]] * 2}
    rows = [row for name, values in figures.items() for row in rows_of(f"validation/{name}", values, (0,))]
    run = write_run(tmp_path / "run", rows, env_id=None, algo_kwargs={"dataset": "plant.csv"})
    (tmp_path / "page.html").write_text(render_page([LoggedRun.load(run)]))
    browser.open(tmp_path / "page.html")
    named = "[...document.querySelectorAll(\"[data-chart='0'] .beyond\")].map(t => t.textContent).join()"
    assert browser.evaluate(named) == "↓ lowest logged episode -2,092.0"
    assert count(browser, "[data-chart='0'] .reference") == 2
    edges = "[...document.querySelectorAll(\"[data-chart='0'] {}\")].map(one => one.getBoundingClientRect().{})"
    (name_top,), (curve_bottom,) = (
        browser.evaluate(edges.format(*one)) for one in ((".beyond", "top"), (".curve", "bottom"))
    )
    assert curve_bottom <= name_top, "the name covers no curve"
