"""The page in a headless Chromium: read by touch, without some colours, in a low window, and while it loads itself again."""

import pytest

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.api.reporting import write_report
from rl_training.report.page.document import render_page
from tests.report.browser import click, count, plot_box, ticks, tip
from tests.report.run_files import finetune, population, rows_of, write_run
from tests.tuning.fake import run_study


def many(folder, number, steps=3):
    return [LoggedRun.load(population(folder / f"run_{i}", members=1, points=steps)) for i in range(number)]


def written(folder, runs, **options):
    path = folder / "page.html"
    path.write_text(render_page(runs, **options))
    return path


@pytest.fixture(autouse=True)
def _nothing_is_kept(browser, pages):
    yield
    browser.evaluate("sessionStorage.clear()")


def test_a_finger_reads_what_it_touches_and_zooms_nothing(browser, pages):
    browser.open(pages["population"], width=390)
    left, top, width, height = plot_box(browser)
    before, middle = ticks(browser), top + height / 2
    browser.touch((left + width - 16, middle))
    assert tip(browser).startswith("step 120 population -34.00"), "and it stays when the finger is lifted"
    browser.touch((left + width * 0.5, middle), (left + width * 0.8, middle))
    assert tip(browser).startswith("step 100 ")
    assert ticks(browser) == before
    browser.evaluate("document.querySelector('h1').dispatchEvent(new PointerEvent('pointerdown', {bubbles: true}))")
    assert tip(browser) is None, "a touch elsewhere hides it"


def test_no_two_of_forty_curves_are_drawn_alike(browser, tmp_path):
    path = written(tmp_path, many(tmp_path, 40))
    browser.open(path)
    looks = "[...document.querySelectorAll(\"[data-chart='0'] .curve\")].map(one => {})"
    drawn = "getComputedStyle(one).color + one.getAttribute('stroke-dasharray')"
    assert len(set(browser.evaluate(looks.format(drawn)))) == 40
    legend = "[...document.querySelectorAll('.legend .sample line')].map(one => {})"
    assert browser.evaluate(legend.format(drawn)) == browser.evaluate(looks.format(drawn))


def test_the_bands_of_many_are_drawn_when_they_are_asked_for(browser, tmp_path):
    runs = [LoggedRun.load(population(tmp_path / str(i), members=2, points=3)) for i in range(7)]
    browser.open(written(tmp_path, runs))
    assert count(browser, ".band") == 0
    click(browser, "#bands")
    assert count(browser, "[data-chart='0'] .band") == 7
    browser.evaluate("sessionStorage.clear()")
    browser.open(written(tmp_path, runs[:6]))
    assert count(browser, "[data-chart='0'] .band") == 6


def test_the_curve_whose_name_has_the_focus_stands_out(browser, pages):
    faint = "[...new Set([...document.querySelectorAll('.faint')].map(one => one.dataset.of))]"
    browser.open(pages["two"])
    while browser.evaluate("document.activeElement.dataset.group") != "1":
        browser.press("Tab")
    assert browser.evaluate(faint) == ["0"]
    browser.press("Tab")
    assert browser.evaluate(faint) == []
    x, y = browser.evaluate(
        "(r => [r.x + r.width / 2, r.y + 5])(document.querySelector('.legend label').getBoundingClientRect())"
    )
    browser.mouse("mouseMoved", x, y)
    assert browser.evaluate(faint) == ["1"]
    browser.mouse("mouseMoved", 5, 5)
    assert browser.evaluate(faint) == []


def test_rows_beside_the_cursor_lie_as_the_curves_do(browser, tmp_path):
    rows = {"low": -3.0, "high": 7.0, "middle": 2.0}
    folders = [write_run(tmp_path / name, rows_of(RETURN, [[value]] * 2, (0,))) for name, value in rows.items()]
    browser.open(written(tmp_path, [LoggedRun.load(folder) for folder in folders]))
    left, top, width, height = plot_box(browser)
    browser.mouse("mouseMoved", left + width - 16, top + height - 40)
    names = "[...document.querySelectorAll('.tip dt')].map(one => one.textContent)"
    assert browser.evaluate(names) == ["high", "middle", "low"]
    assert browser.evaluate("document.querySelector('.tip .closest dt').textContent") == "low"


@pytest.mark.parametrize("width", [390, 1200])
def test_rows_with_long_names_beside_the_cursor_end_near_the_chart(browser, tmp_path, width):
    folders = [population(tmp_path / f"{'a_long_name_' * 5}{number}") for number in range(12)]
    browser.open(written(tmp_path, [LoggedRun.load(folder) for folder in folders]), width=width)
    left, top, wide, high = plot_box(browser)
    browser.mouse("mouseMoved", left + wide / 2, top + high / 2)
    browser.settle()
    lowest = "document.querySelector('.tip').getBoundingClientRect().bottom"
    assert browser.evaluate(lowest) < top + high + 40
    rows = count(browser, ".tip dl > div")
    assert 1 < rows < 12
    assert f"and {12 - rows} more" in tip(browser)


def test_a_chart_of_short_curves_is_filled_by_them(browser, tmp_path):
    losses = rows_of("train/critic_loss", [[1.0], [2.0]], (0,))  # at steps 10 and 20
    run = LoggedRun.load(write_run(tmp_path / "run", rows_of(RETURN, [[1.0], [3.0]], (0,), every=500) + losses))
    browser.open(written(tmp_path, [run]))
    assert ticks(browser)[-1] == "1,000"
    assert 10 <= int(ticks(browser, 1)[0]) < int(ticks(browser, 1)[-1]) <= 20
    click(browser, "[data-zoom='in']")
    assert count(browser, "[data-chart='1'] .empty") == 1, "the part that is zoomed into is the same for all"


def test_where_a_member_ends_is_a_cross_and_the_rest_are_counted(browser, tmp_path):
    values = [[1.0, 2.0, 3.0, 4.0, 5.0], [1.0, 2.0, 3.0, 4.0, None], [1.0, 2.0, 3.0, 4.0, None]]
    browser.open(written(tmp_path, [LoggedRun.load(write_run(tmp_path / "run", rows_of(RETURN, values, range(5))))]))
    assert count(browser, ".ended") == 1
    browser.evaluate("document.querySelector('.plot').focus()")
    browser.press("Home")
    assert "members" not in tip(browser)
    browser.press("End")
    assert "run 2.500 (1.750 to 3.250), 4 of 5 members" in tip(browser)


def test_choices_for_one_report_do_not_change_another_in_its_place(browser, tmp_path):
    checked = "[...document.querySelectorAll('[data-group]')].map(one => one.checked)"
    browser.open(written(tmp_path, [LoggedRun.load(population(tmp_path / name)) for name in ("a", "b")]))
    click(browser, "[data-group='0']")
    browser.open(written(tmp_path, [LoggedRun.load(finetune(tmp_path / name)) for name in ("c", "d")]))
    assert browser.evaluate(checked) == [True, True]
    click(browser, "[data-group='0']")
    click(browser, "[data-zoom='in']")
    others = [write_run(tmp_path / "other" / name, rows_of(RETURN, [[1.0], [2.0]], (0,))) for name in "dc"]
    browser.open(written(tmp_path, [LoggedRun.load(folder) for folder in others]))
    assert browser.evaluate(checked) == [True, False], "they are kept by name"
    assert browser.evaluate("document.getElementById('zoom-reset').disabled"), "nothing is in that range here"


def live_page(folder, points=12):
    """A page that loads itself again when it was paused and goes on, and otherwise long after the test."""
    run = LoggedRun.load(population(folder / "run", points=points, status="running"))
    return written(folder, [run], live=3600.0)


def test_a_live_page_goes_on_with_what_was_being_read(browser, tmp_path):
    path = live_page(tmp_path)
    browser.open(path)
    browser.evaluate("document.querySelector('.large summary').click()")
    heading = "[...document.querySelectorAll('[aria-label=\"Members\"] th')].find(h => h.textContent === 'last return')"
    browser.evaluate(f"{heading}.firstChild.click()")
    browser.evaluate("document.querySelector('.plot').focus()")
    browser.press("End")
    live_page(tmp_path, points=13)
    for _ in range(2):
        browser.evaluate("document.getElementById('pause').click()")
    browser.wait_for_load()
    browser.settle()
    assert browser.evaluate("document.activeElement.className") == "plot"
    assert tip(browser).startswith("step 120 ")
    assert browser.evaluate("document.querySelector('.large details').open")
    assert browser.evaluate(f"{heading}.getAttribute('aria-sort')") == "descending"


def test_a_live_page_can_be_paused(browser, tmp_path):
    browser.open(live_page(tmp_path))
    browser.evaluate("(own => { window.clearTimeout = number => { window.cleared = number; own(number); }; })(clearTimeout)")
    browser.evaluate("window.setTimeout = () => { window.asked = true; }")
    click(browser, "#pause")
    assert browser.evaluate("window.cleared > 0 && !window.asked"), "nothing is waited for any more"
    assert browser.evaluate("document.getElementById('pause').textContent") == "Resume"
    browser.open(tmp_path / "page.html")
    assert browser.evaluate("document.getElementById('pause').textContent") == "Resume", "it stays so"
    browser.evaluate("document.getElementById('pause').click()")
    browser.wait_for_load()
    assert browser.evaluate("document.getElementById('pause').textContent") == "Pause"


@pytest.mark.parametrize(("height", "position"), [(900, "sticky"), (500, "static")])
def test_the_bar_at_the_top_never_covers_the_focus(browser, tmp_path, height, position):
    browser.open(written(tmp_path, many(tmp_path, 20)), height=height)
    assert browser.evaluate("getComputedStyle(document.querySelector('.toolbar')).position") == position
    browser.evaluate("scrollTo(0, document.documentElement.scrollHeight)")
    browser.evaluate("document.querySelectorAll('.plot')[1].focus()")
    browser.settle()
    bar = browser.evaluate("document.querySelector('.toolbar').getBoundingClientRect().bottom")
    top = browser.evaluate("document.activeElement.getBoundingClientRect().top")
    assert top >= bar - 1


def test_samples_of_curves_keep_their_colours_where_the_system_has_its_own(browser, pages):
    browser.open(pages["two"], forced=True)
    colours = "[...document.querySelectorAll('.legend .sample line')].map(one => getComputedStyle(one).stroke)"
    assert len(set(browser.evaluate(colours))) == 2


def test_trials_are_one_stop_and_arrows_read_them(browser, tmp_path):
    run_study(tmp_path / "study", trials=8)
    browser.open(write_report([tmp_path / "study"], tmp_path / "page.html"), width=390)
    assert count(browser, ".trial[tabindex='0']") == 1
    browser.evaluate("document.querySelector(\".trial[tabindex='0']\").focus()")
    told = "document.querySelector('.told').textContent"
    first = browser.evaluate(told)
    assert first == browser.evaluate("document.activeElement.getAttribute('aria-label')")
    browser.press("ArrowDown")
    assert browser.evaluate(told) != first
    browser.press("End")
    assert browser.evaluate(told) == first
    assert (
        browser.evaluate(
            "Math.min(...[...document.querySelectorAll('.parallel .tick')].map(t => t.getBoundingClientRect().height))"
        )
        > 10
    )
    assert browser.evaluate("(one => one.scrollWidth <= one.clientWidth)(document.querySelector('.command'))")
    assert browser.evaluate("[...document.querySelectorAll('th')].every(one => one.textContent)")


def test_a_long_page_begins_with_links_to_its_parts(browser, pages):
    browser.open(pages["two"])
    titles = browser.evaluate("[...document.querySelectorAll('main h2')].map(one => one.textContent)")
    assert browser.evaluate("[...document.querySelectorAll('nav a')].map(one => one.textContent)") == titles
    ends = "[...document.querySelectorAll('nav a')].map(one => document.querySelector(`${one.hash} h2`).textContent)"
    assert browser.evaluate(ends) == titles
