"""The inspect page: episodes over time, names in every caption, a bounded size."""

import re

import numpy as np

from rl_training.data import load_dataset
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
    assert f"The first {MOST_COLUMNS} columns" in page
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
