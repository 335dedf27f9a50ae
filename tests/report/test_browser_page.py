"""What is around the charts in a headless Chromium: tables, controls, colours, paper, and a page that is loaded again."""

import io

import pytest

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.api.reporting import write_report
from rl_training.report.facts import NOTHING
from rl_training.report.page.document import Picture, render_page
from tests.report.browser import click, count, ticks
from tests.report.run_files import finetune, population, rows_of, timing_rows, without_environment, write_run
from tests.report.test_off_policy import policy, report, run_with
from tests.tuning.fake import FakeBackend, run_study


@pytest.mark.parametrize("width", [1200, 390])
def test_a_page_of_runs_with_very_long_names_fits(browser, tmp_path, width):
    runs = [LoggedRun.load(population(tmp_path / (letter * 240))) for letter in "LM"]
    path = tmp_path / "page.html"
    path.write_text(render_page(runs, pictures=[Picture(run.name, "an episode", b"GIF", b"PNG") for run in runs]))
    browser.open(path, width=width)
    assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("width", [900, 1200, 1600])
def test_the_table_of_runs_is_seen_whole(browser, tmp_path, width):
    rows = rows_of(RETURN, [[-1251.2, -1428.3], [-1565.0, -1697.9]], every=1000)
    folders = [write_run(tmp_path / name, rows, timings=timing_rows()) for name in ("iql", "td3_bc")]
    folders += [finetune(tmp_path / "finetune"), without_environment(tmp_path / "plant")]
    runs = [LoggedRun.load(folder) for folder in folders]
    (tmp_path / "page.html").write_text(render_page(runs))
    browser.open(tmp_path / "page.html", width=width)
    assert browser.evaluate("(box => box.scrollWidth <= box.clientWidth)(document.querySelector('.scroll'))")


def test_on_paper_colours_have_a_legend_and_no_table_is_cut(browser, tmp_path):
    rows = rows_of(RETURN, [[-1251.2, -1428.3], [-1565.0, -1697.9]], every=1000)
    runs = [LoggedRun.load(write_run(tmp_path / f"{i}_with_a_name_of_some_length", rows)) for i in range(6)]
    (tmp_path / "page.html").write_text(render_page(runs))
    browser.open(tmp_path / "page.html", width=700, media="print")
    click(browser, "[data-group='1']")
    seen = "[...document.querySelectorAll({!r})].filter(one => one.checkVisibility()).length"
    assert browser.evaluate(seen.format(".legend .sample")) == 5, "of the runs that are drawn"
    assert browser.evaluate(seen.format("input, select, [data-zoom]")) == len(runs) * 2, "the boxes of the members alone"
    right = "Math.max(...[...document.querySelectorAll('td, th')].map(cell => cell.getBoundingClientRect().right))"
    assert browser.evaluate(right) <= 700
    assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")
    browser.evaluate("sessionStorage.clear()")


def test_on_paper_no_word_of_a_heading_is_broken(browser, tmp_path):
    makers = [population, finetune, without_environment]
    runs = [LoggedRun.load(make(tmp_path / make.__name__)) for make in makers]
    (tmp_path / "page.html").write_text(render_page(runs))
    browser.open(tmp_path / "page.html", width=700, media="print")
    broken = """[...document.querySelector("table").querySelectorAll("thead button")].flatMap(one => {
        const text = one.firstChild, range = document.createRange();
        return [...text.data.matchAll(/\\S+/g)].filter(({index, 0: word}) => {
            range.setStart(text, index); range.setEnd(text, index + word.length);
            return new Set([...range.getClientRects()].map(box => box.top)).size > 1; }).map(found => found[0]); })"""
    assert browser.evaluate(broken) == []
    assert browser.evaluate("document.querySelectorAll('table:first-of-type thead')[0].rows[0].cells.length") == 10


def test_colours_follow_the_system_and_the_button(browser, pages):
    background = "getComputedStyle(document.body).backgroundColor"
    browser.open(pages["data"], scheme="light")
    light = browser.evaluate(background)
    click(browser, "#theme")
    dark = browser.evaluate(background)
    assert dark != light
    browser.evaluate("sessionStorage.clear()")
    browser.open(pages["data"], scheme="dark")
    assert browser.evaluate(background) == dark
    assert browser.evaluate("document.getElementById('theme').textContent") == "Light colours"


def test_what_the_reader_chose_outlives_a_reload(browser, pages):
    browser.open(pages["two"])
    browser.evaluate("sessionStorage.clear()")
    browser.open(pages["two"])
    click(browser, "[data-group='0']")
    click(browser, "[data-zoom='in']")
    zoomed = ticks(browser)
    browser.open(pages["two"])
    assert ticks(browser) == zoomed
    assert not browser.evaluate("document.querySelector(\"[data-group='0']\").checked")
    browser.evaluate("sessionStorage.clear()")


def test_a_live_page_loads_itself_again(browser, pages, tmp_path):
    path = tmp_path / "page.html"
    path.write_text(render_page([LoggedRun.load(population(tmp_path / "run", status="running"))], live=1.0))
    browser.open(path)
    path.write_text(pages["population"].read_text())  # which is not live
    browser.wait_for_load()
    assert browser.evaluate("document.querySelector('h1').textContent") == "population"


def test_tables_are_sorted_by_their_headings(browser, pages):
    browser.open(pages["population"])
    column = "[...document.querySelectorAll('[aria-label=\"Members\"] tbody tr')].map(r => r.children[0].textContent)"
    heading = (
        "[...document.querySelectorAll('[aria-label=\"Members\"] th button')].find(b => b.textContent === 'final return')"
    )
    assert browser.evaluate(column) == ["0", "1", "2"]
    browser.evaluate(f"{heading}.click()")
    assert browser.evaluate(column) == ["2", "1", "0"]
    assert browser.evaluate(f"{heading}.parentElement.getAttribute('aria-sort')") == "descending"


def test_runs_are_sorted_by_the_number_of_their_steps(browser, tmp_path):
    every = {"short": 900, "long": 60_000, "middle": 7_000}
    folders = [write_run(tmp_path / name, rows_of(RETURN, [[1.0]], (0,), every=step)) for name, step in every.items()]
    folders.append(finetune(tmp_path / "both"))  # 60 and 60
    (tmp_path / "page.html").write_text(render_page([LoggedRun.load(folder) for folder in folders]))
    browser.open(tmp_path / "page.html")
    browser.evaluate(
        "[...document.querySelectorAll('[aria-label=\"Runs\"] th button')].find(b => b.textContent === 'steps').click()"
    )
    column = "[...document.querySelectorAll('[aria-label=\"Runs\"] tbody tr')].map(r => r.children[0].textContent)"
    assert browser.evaluate(column) == ["long", "middle", "short", "both"]


def test_trials_without_a_score_stand_last_in_either_order(browser, tmp_path):
    run_study(tmp_path / "study", backend=FakeBackend(diverged=[0]), trials=8)  # 0 and 4 have none
    browser.open(write_report([tmp_path / "study"], tmp_path / "page.html"))
    table = "document.querySelector('[aria-label=\"Trials\"]')"
    scores = f"[...{table}.querySelectorAll('tbody tr')].map(r => r.children[3].textContent)"
    falling = browser.evaluate(scores)
    assert falling[-2:] == [NOTHING, NOTHING]
    orders = []
    for _ in range(2):
        browser.evaluate(f"[...{table}.querySelectorAll('th button')].find(b => b.textContent === 'return iqm').click()")
        orders.append(browser.evaluate(scores))
    assert orders == [falling, [*reversed(falling[:-2]), NOTHING, NOTHING]]


def test_the_picture_of_a_policy_moves_and_stops(browser, tmp_path):
    image = pytest.importorskip("PIL.Image")
    files = {}
    for kind in ("GIF", "PNG"):
        data = io.BytesIO()
        image.new("RGB", (8, 4), "red").save(data, kind)
        files[kind] = data.getvalue()
    picture = Picture("run", "an episode", files["GIF"], files["PNG"])
    path = tmp_path / "page.html"
    path.write_text(render_page([LoggedRun.load(population(tmp_path / "run"))], pictures=[picture]))
    browser.open(path)
    kind = "document.querySelector('.pictures img').src.slice(0, 14)"
    assert browser.evaluate(kind) == "data:image/gif"
    click(browser, "button.play")
    assert browser.evaluate(kind) == "data:image/png"
    assert browser.evaluate("document.querySelector('.pictures img').naturalWidth") == 8


def test_every_control_is_reached_by_tab_and_has_a_name(browser, pages):
    browser.open(pages["two"])
    nameless = browser.evaluate(
        "[...document.querySelectorAll('button, input, select')].filter(e => e.tabIndex < 0 ||"
        " !(e.getAttribute('aria-label') || e.textContent.trim() || (e.labels && e.labels.length))).length"
    )
    assert nameless == 0
    browser.press("Tab")
    assert browser.evaluate("document.activeElement.id") == "theme"
    assert browser.evaluate("getComputedStyle(document.activeElement).outlineStyle") == "solid"


def test_controls_of_several_runs_have_names_of_their_own(browser, tmp_path):
    runs = [LoggedRun.load(population(tmp_path / name, members=2)) for name in ("one", "other")]
    path = tmp_path / "page.html"
    path.write_text(render_page(runs, pictures=[Picture(run.name, "an episode", b"GIF", b"PNG") for run in runs]))
    browser.open(path)
    names = "[...document.querySelectorAll('[data-member], .play')].map(e => e.getAttribute('aria-label') ?? e.textContent)"
    members = [f"draw member {member} of {run}" for run in ("one", "other") for member in (0, 1)]
    assert browser.evaluate(names) == ["Stop one", "Stop other", *members]
    regions = browser.evaluate("[...document.querySelectorAll('[role=region]')].map(e => e.getAttribute('aria-label'))")
    assert "Time by activity of other" in regions
    assert len(set(regions)) == len(regions)
    click(browser, "button.play")
    assert browser.evaluate(names)[:2] == ["Play one", "Stop other"]


@pytest.mark.parametrize("width", [1200, 400])
def test_the_value_by_the_log_is_drawn_and_fits(browser, tmp_path, width):
    long = "a column with a name of many words, and_one_word_of_it_is_far_too_long_for_a_telephone"
    one = policy(1)
    one["support"] |= {"actions": {long: 1.0}, "observations": {long: 1.0}}
    path = tmp_path / "page.html"
    path.write_text(render_page([run_with(tmp_path / "run", report(policy(), one))]))
    browser.open(path, width=width)
    assert count(browser, ".whisker .point") == 3
    sizes = browser.evaluate("[...document.querySelectorAll('.whisker')].map(s => s.getBoundingClientRect().width)")
    assert min(sizes) >= 120
    assert browser.evaluate("document.documentElement.scrollWidth <= document.documentElement.clientWidth")


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_texts_and_curves_stand_out_from_their_background(browser, pages, scheme):
    """WCAG AA: 4.5 for text, 3 for lines."""
    browser.open(pages["two"], scheme=scheme)
    found = browser.evaluate(
        """(() => {
          const probe = document.createElement("p"); document.body.append(probe);
          const light = name => { probe.style.color = `var(--${name})`;
            const [r, g, b] = getComputedStyle(probe).color.match(/[\\d.]+/g).map(v => { v /= 255;
              return v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4; });
            return 0.2126 * r + 0.7152 * g + 0.0722 * b; };
          const ratio = (a, b) => { const [x, y] = [light(a), light(b)].sort((p, q) => q - p);
            return (x + 0.05) / (y + 0.05); };
          const names = ["ink", "soft", "accent", "good", "bad", "warn", "c0", "c1", "c2", "c3", "c4", "c5", "c6", "c7"];
          return Object.fromEntries(names.map(n => [n, Math.min(ratio(n, "card"), ratio(n, "paper"))])); })()"""
    )
    assert {name: value for name, value in found.items() if value < (3.0 if name.startswith("c") else 4.5)} == {}
