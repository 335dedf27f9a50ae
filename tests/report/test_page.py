"""The page as text: what it holds, how large it is, and that nothing in it can run or load anything."""

import hashlib
import json
import os
import re
from base64 import b64encode
from html import unescape
from html.parser import HTMLParser
from itertools import pairwise

import numpy as np
import pytest

from rl_training.analysis.history import History
from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.config.loading import make_config
from rl_training.report.facts import number
from rl_training.report.page.document import MARK, Picture, render_page
from rl_training.report.tables import markdown
from tests.helpers import contents
from tests.report.run_files import DATASET, finetune, population, rows_of, without_environment, write_run


class Outline(HTMLParser):
    """The tags of a page with their attributes, and the texts of its headings."""

    def __init__(self, page):
        super().__init__()
        self.tags, self.headings = [], []
        self._inside = None
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if re.fullmatch("h[1-6]", tag):
            self._inside = int(tag[1])
            self.headings.append([self._inside, ""])

    def handle_endtag(self, tag):
        if re.fullmatch("h[1-6]", tag):
            self._inside = None

    def handle_data(self, data):
        if self._inside:
            self.headings[-1][1] += data

    def all(self, tag):
        return [attributes for name, attributes in self.tags if name == tag]


def page_of(*folders, **options):
    return render_page([LoggedRun.load(folder) for folder in folders], **options)


def data_of(page):
    return json.loads(re.search(r'id="report-data">(.*?)</script>', page, re.DOTALL).group(1))


@pytest.mark.parametrize("make", [population, finetune, without_environment])
def test_headings_are_in_order_and_charts_say_what_they_show(tmp_path, make):
    page = page_of(make(tmp_path / "run"))
    outline = Outline(page)
    levels = [level for level, _ in outline.headings]
    assert levels[0] == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    assert outline.all("html")[0]["lang"] == "en"
    plots = [attributes for attributes in outline.all("div") if attributes.get("class") == "plot"]
    assert len(plots) == len(data_of(page)["charts"]) > 1
    assert [plot["data-chart"] for plot in plots] == [str(i) for i in range(len(plots))]
    assert all(plot["tabindex"] == "0" and plot["aria-label"] for plot in plots)
    images = [attributes for attributes in outline.all("svg") if attributes.get("role") == "img"]
    assert all(image["aria-label"] for image in images)


def test_a_chart_is_told_in_words(tmp_path):
    page = page_of(population(tmp_path / "run"))
    assert "run: from -100.0 at step 10 to -34.00 at step 120, lowest -100.0, highest -34.00." in page
    assert "mean in the data: -5.000." in page


def test_returns_of_parts_of_episodes_are_not_drawn_beside_those_of_whole_ones(tmp_path):
    rows = rows_of(RETURN, [[-100.0, -90.0], [-80.0, -70.0]])
    page = page_of(write_run(tmp_path / "run", rows, dataset={**DATASET, "episodes": 139, "parts_of": 40}))
    assert "in the data:" not in page
    assert "not drawn: its 139 episodes are parts of 40, cut by gaps or bad rows, and evaluations are of whole" in page
    assert "highest return of the parts" in page
    assert "not drawn" not in page_of(write_run(tmp_path / "whole", rows))


def test_nothing_is_loaded_and_only_the_script_of_the_page_may_run(tmp_path):
    page = page_of(population(tmp_path / "run"))
    outline = Outline(page)
    (policy,) = [one["content"] for one in outline.all("meta") if one.get("http-equiv") == "Content-Security-Policy"]
    assert policy.startswith("default-src 'none'; ")
    script = re.search(r"<script>(.*?)</script>", page, re.DOTALL).group(1)
    assert f"'sha256-{b64encode(hashlib.sha256(script.encode()).digest()).decode()}'" in policy
    assert not re.search(r"unsafe|https?:", policy)
    assert not [
        one
        for one in outline.tags
        if {"src", "style"} & set(one[1])
        or not one[1].get("href", "#").startswith("#")
        or any(k.startswith("on") for k in one[1])
    ]
    assert not re.search(r"url\(\s*['\"]?https?:|@import|fetch\(|XMLHttpRequest|import\(", page)


def test_names_from_a_run_are_inert(tmp_path):
    bad = "<script>alert(1)</script>"
    rows = rows_of(f"train/{bad}", [[1.0, 2.0]]) + rows_of(RETURN, [[1.0, 2.0]])
    folder = write_run(tmp_path / "<img src=x onerror=alert(1)>", rows, message=f"&{bad}", status=bad)
    page = page_of(folder, title=f"{bad}</title>", pictures=[Picture(bad, bad)])
    tags = [tag for tag, _ in Outline(page).tags]
    assert tags.count("script") == 2
    assert "img" not in tags
    assert data_of(page)["groups"][0]["label"] == "<img src=x onerror=alert(1)>"


def test_a_run_under_way_and_one_before_its_first_row(tmp_path):
    page = page_of(write_run(tmp_path / "new", [], status="running"))
    assert "No evaluation yet" in page
    assert "running" in page
    losses = rows_of("train/critic_loss", [[1.0, 2.0]])
    assert "No evaluation yet" in page_of(write_run(tmp_path / "early", losses, status="running"))
    ended = page_of(write_run(tmp_path / "ended", losses))
    assert "No evaluation yet" not in ended
    assert "There was no evaluation" in ended


def test_the_return_of_a_run_under_way_is_not_final_and_its_progress_is_told(tmp_path):
    folder = population(tmp_path / "run", points=4, status="running")
    os.utime(folder / "metrics.jsonl", (2**32, 2**32))  # just now, whenever that is
    told = "offline: step 40 of 100 (40 %), 30.0 s left"
    page, both = page_of(folder), page_of(folder, population(tmp_path / "done"))
    assert f'<dt>status</dt><dd><span class="warn">running</span></dd><dd>{told}</dd>' in page
    assert "<dt>last return</dt>" in page
    assert f'<td class="long"><span class="warn">running</span>, {told}</td>' in both
    for text in (page, both, markdown([LoggedRun.load(folder)], MARK)):
        assert told in text
        assert "final return" not in text
    ended = page_of(tmp_path / "done")
    assert "<dt>final return</dt>" in ended
    assert " left" not in re.search(r"<dt>status</dt>.*?</div>", ended).group()


def test_a_run_without_an_environment_shows_what_is_known_of_its_policy(tmp_path):
    page = page_of(without_environment(tmp_path / "run"))
    assert "Trained without an environment" in page
    assert "plain cloning 5.0%" in page
    assert "best constant action 40.0%" in page
    assert "Values and returns" not in page
    titles = [text for level, text in Outline(page).headings if level == 3]
    assert "Critic losstrain/critic_loss" in [title.replace(" train", "train") for title in titles]


def test_a_table_of_runs_without_environments_has_no_column_of_dashes(tmp_path):
    page = page_of(without_environment(tmp_path / "a"), without_environment(tmp_path / "b"))
    assert '10.5% <span class="whole">(best constant 40.0%)</span>' in page
    assert "final return" not in page
    assert "none yet" not in page


def test_the_range_of_a_return_may_stand_on_a_line_of_its_own(tmp_path):
    page = page_of(population(tmp_path / "a"), population(tmp_path / "b"))
    assert '<td class="number" data-value="-34.0">-34.00 <span class="whole">(-45.00 to -23.00)</span></td>' in page


def test_steps_of_another_kind_and_another_environment_are_told(tmp_path):
    online = write_run(tmp_path / "online", rows_of(RETURN, [[1.0]], (0,), env_step=10))
    config = {"algo": "sac", "env_id": "MountainCarContinuous-v0", "algo_kwargs": {}}
    (online / "config.yaml").write_text(make_config(config, "x").to_yaml())
    page = page_of(online, population(tmp_path / "offline"))
    assert "Steps are environment steps (online); gradient steps (offline)." in page
    told = "of different environments cannot be compared: MountainCarContinuous-v0 (online); Pendulum-v1 (offline)."
    assert told in page
    assert told in markdown([LoggedRun.load(run) for run in (online, tmp_path / "offline")], MARK)
    alone = page_of(population(tmp_path / "alone"))
    assert "Steps are gradient steps." in alone
    assert "cannot be compared" not in alone


def test_each_environment_has_a_chart_of_its_returns_and_values(tmp_path):
    other = population(tmp_path / "car", 1, status="finished")
    config = (other / "config.yaml").read_text()
    (other / "config.yaml").write_text(config.replace("env_id: Pendulum-v1", "env_id: MountainCarContinuous-v0"))
    folders = population(tmp_path / "a"), other, population(tmp_path / "b")
    page = page_of(*folders)
    titles = [text.partition(" eval/")[0] for level, text in Outline(page).headings if level == 3]
    kinds = ("Return in evaluations", "Value expected and achieved")
    shared, alone = [0, 2], [1]
    envs = {"Pendulum-v1": shared, "MountainCarContinuous-v0": alone}
    wanted = {f"{kind}, {env}": groups for kind in kinds for env, groups in envs.items()}
    assert titles[: len(wanted)] == list(wanted)
    drawn = [sorted({line["group"] for line in chart["lines"]}) for chart in data_of(page)["charts"]]
    assert drawn[: len(wanted)] == list(wanted.values())
    together = [text for level, text in Outline(page_of(folders[0], folders[2])).headings if level == 3]
    assert together[0] == "Return in evaluations eval/return_mean"


def test_values_in_scaled_rewards_say_so_and_have_their_held_out_curve(tmp_path):
    folder = population(tmp_path / "run")
    with (folder / "metrics.jsonl").open("a") as stream:
        stream.writelines(json.dumps(row) + "\n" for row in rows_of("validation/q_mean", [[-7.0] * 3], (0, 1, 2)))
    page = page_of(folder)
    assert "In the rewards of learning, not real ones: times 0.1." in page
    assert "run, held out: -7.000 at step 10." in page


def test_the_units_of_values_are_told_of_runs_that_have_values(tmp_path):
    scaled = {"algo_kwargs": {"reward": {"scale": 0.1, "normalize": False}}}
    values = write_run(tmp_path / "iql", rows_of("train/q_mean", [[-1.0], [-2.0]], (0,)), **scaled)
    cloned = write_run(tmp_path / "bc", rows_of("train/bc_loss", [[1.0], [0.5]], (0,)), algo="bc")
    assert "In the rewards of learning, not real ones: times 0.1." in page_of(values, cloned)


def test_members_that_diverged_are_marked(tmp_path):
    rows = [*rows_of(RETURN, [[1.0, 5.0], [4.0, None]]), {"step": 20, "member": 1, "seed": 1, "event": "diverged"}]
    page = page_of(write_run(tmp_path / "run", rows))
    assert '<span class="bad">diverged at step 20</span>' in page
    assert "<dt>members</dt><dd>2 (1 diverged)</dd><dd>seeds 0, 1</dd>" in page
    assert (
        "<dt>final return</dt><dd>4.500</dd><dd>above the mean return in the data, -5.000; mean, lowest 4.000, "
        "highest 5.000; each member's last evaluation, 10 episodes; 1 of 2 diverged</dd>"
    ) in unescape(page)
    told = "A member that diverged or stopped counts up to there, which a cross marks, and in a final return with its last"
    assert told in page


def test_a_population_that_lost_members_is_not_plainly_finished(tmp_path):
    rows = rows_of(RETURN, [[None, 2.0, None, 4.0, 6.0], [None, 3.0, None, None, None]], range(5))
    rows += [{"step": 20, "member": member, "seed": member, "event": "diverged"} for member in (0, 2, 3, 4)]
    page = unescape(page_of(write_run(tmp_path / "run", rows)))
    assert '<span class="warn">finished, 4 of 5 members diverged</span>' in page
    assert "Line: interquartile mean of 3 to 1 of 5 members, band over the middle half." in page
    assert (
        "<dt>final return</dt><dd>4.333</dd><dd>above the mean return in the data, -5.000; mean of 3 members, "
        "lowest 3.000, highest 6.000; each member's last evaluation, 10 episodes; 4 of 5 diverged, 2 of them before any "
        "evaluation</dd>"
    ) in page
    told = markdown([LoggedRun.load(tmp_path / "run")], MARK)
    assert "| finished, 4 of 5 members diverged |" in told
    assert "A member that diverged counts with its last evaluation, if it had any." in told


def test_a_combination_that_diverged_before_its_first_evaluation_has_no_line(tmp_path):
    rows = []
    for metric, value in ((RETURN, -9.0), ("eval/length_mean", 10.0), ("train/q_mean", -1.0)):
        rows.append({"step": 20, "member": 0, "seed": 0, "knob/beta": 1.0, metric: value})
    rows.append({"step": 10, "member": 1, "seed": 0, "knob/beta": 3.0, "event": "diverged"})
    kwargs = {"reward": {"normalize": False}}
    page = page_of(write_run(tmp_path / "run", rows, sweep={"beta": [1.0, 3.0]}, algo_kwargs=kwargs))
    assert "Value expected and achieved" in page
    assert {line["group"] for chart in data_of(page)["charts"] for line in chart["lines"]} == {0}
    assert '<span class="bad">diverged at step 10</span>' in page


def test_what_is_achieved_is_called_rough(tmp_path):
    page = page_of(population(tmp_path / "run"))
    assert "run, achieved, roughly: from " in page
    assert "large early or late in an episode, as when a plant settles or a goal ends it, it is off by several times." in page
    assert "overestimates" not in page


def test_members_of_a_sweep_are_labelled_by_their_knobs(tmp_path):
    rows = [{"step": 10, "member": m, "seed": 0, "knob/beta": b, RETURN: b} for m, b in enumerate((1.0, 3.0))]
    page = page_of(write_run(tmp_path / "run", rows, sweep={"beta": [1.0, 3.0]}))
    assert [group["label"] for group in data_of(page)["groups"]] == ["beta=1", "beta=3"]
    assert "<td>beta=3</td>" in page
    assert re.search(r"best combination</dt><dd>beta=3</dd>.*its final return</dt><dd>3\.000</dd>", page)


def test_settings_of_several_runs_are_compared(tmp_path):
    page = page_of(population(tmp_path / "a"), finetune(tmp_path / "b"))
    assert "<code>finetune.<wbr>env_steps</code>" in page
    assert "All settings of b" in page
    assert "All settings are the same" in page_of(finetune(tmp_path / "c"), finetune(tmp_path / "d"))


def test_a_live_page_loads_itself_again(tmp_path):
    folder = population(tmp_path / "run", status="running")
    live = page_of(folder, live=20.0)
    assert data_of(live)["live"] == 20
    assert "loads itself again every 20 seconds" in live
    assert data_of(page_of(folder))["live"] == 0


@pytest.mark.parametrize(("algo", "switch", "compared"), [("sac", None, True), ("rlpd", 30, True), ("bc", None, False)])
def test_pages_of_real_runs(finished, algo, switch, compared):
    """Online from the beginning, after pretraining, and without critics."""
    run = LoggedRun.load(finished(algo).run_dir)
    page = render_page([run])
    assert [group["switch"] for group in data_of(page)["groups"]] == [switch]
    assert ("Value expected and achieved" in page) == compared
    assert "Return in evaluations" in page


def test_a_page_never_touches_its_runs(tmp_path):
    folder = finetune(tmp_path / "run")
    before = contents(folder)
    assert MARK in page_of(folder)[:100]
    assert contents(folder) == before


@pytest.mark.parametrize(
    "returns",
    [
        [[-1498.7, -1328.5, -1457.3], [-1400.0, -1300.0, -1200.0]],
        [[123473.0, 123497.0, 123514.0], [123470.0, 123500.0, 123510.0]],
        [[12.3449, 12.3449, 12.3449], [12.3551, 12.3551, 12.3551]],  # halves, if they are rounded twice
        [[0.0, 1e-9, 123456.0], [0.01234, 1.0, 9999.9]],
    ],
)
def test_numbers_of_a_chart_are_printed_as_in_the_tables(tmp_path, returns):
    run = LoggedRun.load(write_run(tmp_path / "run", rows_of(RETURN, returns, (0, 1, 2))))
    (line,) = data_of(render_page([run]))["charts"][0]["lines"]
    drawn = [*zip(*line["each"], strict=True), line["mid"], line["low"], line["high"]]
    known = [*returns, *([of(row) for row in returns] for of in (np.mean, min, max))]
    assert [[number(value) for value in row] for row in drawn] == [[number(value) for value in row] for row in known]


def test_small_differences_of_large_numbers_are_drawn(tmp_path):
    returns = [[123456.0 + 0.01 * i] for i in range(20)]
    page = page_of(write_run(tmp_path / "run", rows_of(RETURN, returns, (0,))))
    assert data_of(page)["charts"][0]["lines"][0]["mid"] == [round(row[0], 2) for row in returns]


def test_what_never_changes_is_one_line_with_its_band_and_members(tmp_path):
    rows = rows_of("train/learning_rate_factor/actor", [[1.5414823e-5] * 3] * 2, (0, 1, 2))
    (line,) = data_of(page_of(write_run(tmp_path / "run", rows)))["charts"][0]["lines"]
    drawn = [line["mid"], line["low"], line["high"], *line["each"]]
    assert {value for values in drawn for value in values} == {line["mid"][0]}


def large_run(folder, members, points, metrics, least=0.0, **config):
    """A run in memory: random numbers take more room than those of real runs, and `least` makes them large."""
    template = LoggedRun.load(write_run(folder, rows_of(RETURN, [[1.0] * members], tuple(range(members))), **config))
    count, draw = members * points, np.random.Generator(np.random.Philox(0))
    columns = {"step": np.repeat(np.arange(points) * 1000 + 1000, members)}
    columns |= {name: np.tile(np.arange(members), points) for name in ("member", "seed")}
    columns |= {name: least + draw.normal(size=count) for name in (RETURN, "eval/length_mean", "data/episode_return")}
    columns |= {f"train/metric_{i}": 1e-3 * draw.normal(size=count) for i in range(metrics - 3)}
    return LoggedRun(template.path, template.config, template.record, History(columns), template.timings)


def test_a_collapse_of_a_long_run_of_one_member_is_in_its_band(tmp_path):
    returns = [[-9999.5 if 2001 <= i < 2004 else float(i)] for i in range(4000)]
    page = page_of(write_run(tmp_path / "long", rows_of(RETURN, returns, (0,))))
    line = data_of(page)["charts"][0]["lines"][0]
    assert len(line["mid"]) == len(line["low"]) == 400
    assert min(line["mid"]) == 0
    assert (min(line["low"]), max(line["high"])) == (-9999.5, 3999)
    assert "their band covers the points left out" in page
    assert 'id="bands"' in page
    short = page_of(write_run(tmp_path / "short", rows_of(RETURN, returns[:100], (0,))))
    assert "low" not in data_of(short)["charts"][0]["lines"][0]
    assert 'id="bands"' not in short


def test_the_page_of_a_large_population_stays_small(tmp_path):
    page = render_page([large_run(tmp_path / "run", 64, 1000, 30)])
    assert len(page.encode()) < 1_400_000, "there is room for half a megabyte of pictures"
    lines = [line for chart in data_of(page)["charts"] for line in chart["lines"]]
    assert len(lines) == 30
    assert all(len(line["each"]) == 64 for line in lines)


@pytest.mark.parametrize("least", [0.0, 123_456.0])
def test_the_page_of_many_large_runs_stays_small(tmp_path, least):
    runs = [large_run(tmp_path / str(i), 64, 400, 12, least) for i in range(12)]
    page = render_page(runs)
    assert len(page.encode()) < 1_400_000, "there is room for half a megabyte of pictures"
    assert "The best 500 of 768" in page


def test_of_very_many_groups_the_best_are_drawn(tmp_path):
    rows = [{"step": 10, "member": m, "seed": 0, "knob/beta": m + 1.0, RETURN: -m} for m in range(50)]
    page = page_of(write_run(tmp_path / "run", rows, sweep={"beta": [m + 1.0 for m in range(50)]}))
    groups = [group["label"] for group in data_of(page)["groups"]]
    assert (len(groups), groups[0], groups[-1]) == (40, "beta=1", "beta=40")
    assert "The best 40 of 50 are drawn: the fewest diverged members, then the highest final return." in page
