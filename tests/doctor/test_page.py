"""The inspect page: episodes over time, names in every caption, a bounded size."""

import re

import numpy as np

from rl_training.data import load_dataset
from rl_training.doctor.findings import Finding
from rl_training.doctor.inspection import summarize_dataset
from rl_training.doctor.page import report_page
from rl_training.doctor.traces import MOST_COLUMNS, episode_traces
from tests.helpers import call_cli, generator
from tests.logs import linear_log, plant, table, write_csv


def page_of(data):
    return report_page("log", data.origin, summarize_dataset(data), [], episode_traces(data))


def wide(columns, rows):
    draw = generator(0)
    return {
        "observations": draw.normal(size=(rows, columns)).astype(np.float32),
        "actions": draw.uniform(-1, 1, (rows, 2)).astype(np.float32),
        "rewards": draw.normal(size=rows).astype(np.float32),
    }


def test_the_episodes_that_are_shown():
    data = load_dataset(linear_log("dense", varied=True, terminal=True))
    returns = data.episode_returns()
    traces = {role: trace for trace in episode_traces(data) for role in trace.role.split(" and ")}
    assert traces["first"].number == 0
    assert traces["best"].total_reward == returns.max()
    assert traces["worst"].total_reward == returns.min()
    assert sorted(returns)[len(returns) // 2] == traces["median"].total_reward
    start, length = (int(values[traces["best"].number]) for values in data.episode_spans)
    assert traces["best"].length == length
    assert traces["best"].reward == [(float(i), float(r)) for i, r in enumerate(data.rewards[start : start + length])]
    assert len(traces["best"].observations) == data.observation_dim


def test_returns_of_shown_episodes_have_the_rewards_of_steps_that_are_left_out():
    values = {**wide(2, 40), "rewards": np.zeros(40, dtype=np.float32), "timeouts": np.arange(40) % 10 == 9}
    values["rewards"][9::10] = (3.0, 9.0, 1.0, 5.0)
    page = page_of(load_dataset(values))
    assert "best: episode 1, 9 steps, return 9 (0 a step)" in page
    assert "worst: episode 2, 9 steps, return 1 (0 a step)" in page


def test_a_long_episode_is_thinned_out_without_losing_a_peak():
    values = wide(3, 50_000)
    values["observations"][31_234, 1] = 99.0
    (trace,) = episode_traces(load_dataset(values))
    assert len(trace.observations[1]) <= 200
    assert (31_234.0, 99.0) in trace.observations[1]
    assert trace.observations[1][-1][0] == trace.length - 1


def test_the_page_stays_small_and_shows_the_names(tmp_path, capsys):
    page = page_of(load_dataset(wide(300, 5000)))
    assert len(page) < 600_000
    assert "<script" not in page
    assert f"At most {MOST_COLUMNS} columns of each: those with findings, then the first." in page
    columns = table(plant(), next_observations=False)
    path = write_csv(tmp_path / "log.csv", {**columns, "T <room>": columns.pop("obs_0")})
    mapped = "{observations: ['T <room>', obs_1], actions: [action_0], reward: reward, episode: episode}"
    shown = call_cli(capsys, "data", "inspect", path, "--columns", mapped, "--html", tmp_path / "page.html").stdout
    assert "action_0 (action 0)" in shown
    page = (tmp_path / "page.html").read_text()
    assert "T &lt;room&gt; (observation 0)" in page
    assert "T <room>" not in page
    over_time = page.split("Episodes over time")[1].split("<h2>")[0]
    assert len(re.findall("<polyline", over_time)) == 4 * 4  # reward, action and two observations of four episodes
    assert "return" in over_time


def test_columns_that_never_change():
    values = wide(2, 300)
    values["actions"][:, 1] = 0.35
    values["observations"][:, 1] = 7.0
    page = page_of(load_dataset(values))
    assert "always 0.35" in page
    assert "nan" not in page


def test_columns_with_findings_are_shown_before_others():
    data = load_dataset(wide(40, 300))
    found = Finding(
        "huge-column", "warning", "`b` (observation column 33), observation columns 20, 39 and action column 1", ""
    )
    (trace,) = episode_traces(data, [found])
    assert list(trace.observations) == [*range(MOST_COLUMNS - 3), 20, 33, 39]
    assert list(trace.actions) == [0, 1]
    page = report_page("log", data.origin, summarize_dataset(data), [found], [trace])
    over_time = page.split("Episodes over time")[1].split("<h2>")[0]
    assert "<strong>observation 39</strong>" in over_time
    assert "<code>b</code> (observation column 33)" in page


def test_a_column_that_never_changes_has_no_invented_axis():
    values = wide(2, 300)
    values["observations"][:, 1] = 7.0
    values["terminals"] = np.arange(1, 301) % 50 == 0
    page = page_of(load_dataset(values))
    assert "always 7" in page
    assert ">49.5<" not in page
    assert '<text class="axis" x="120" y="81" text-anchor="middle">50</text>' in page


def test_charts_over_time_say_their_range_to_eyes_and_ears():
    values = wide(2, 300)
    values["rewards"][:] = 0.0
    values["rewards"][[10, 20]] = (5.0, -3.0)
    page = page_of(load_dataset(values))
    assert 'aria-label="Reward: lowest -3, highest 5, mean of what is drawn ' in page
    assert re.search('aria-label="Reward of a transition: lowest -3, highest 5, mean 0', page)
    assert re.search('aria-label="observation 1: lowest -[0-9.]+, highest [0-9.]+, mean ', page)
    reward = page.split("<strong>Reward</strong>")[1].split("</svg>")[0]
    assert re.findall(r'end-of-axis"[^>]*>([^<]*)<', reward) == ["5", "-3"]


def test_on_paper_cards_are_whole_and_colours_have_a_legend():
    page = page_of(load_dataset(wide(2, 300)))
    assert re.search(r"@media print\{.*\.card,li\{break-inside:avoid\}", page, re.S)
    assert "print-color-adjust:exact" in page
    assert "forced-color-adjust:none" in page
