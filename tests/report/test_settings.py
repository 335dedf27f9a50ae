"""The settings in which runs differ, for people."""

from rl_training.analysis.logged_run import LoggedRun
from rl_training.report.settings import differences, setting_text
from rl_training.report.tables import markdown
from tests.report.run_files import population, write_run

MIXED = [{"kind": "random", "size": 4000, "weight": 0.5}, {"kind": "scripted", "size": 2000, "weight": 0.5}]


def test_settings_that_differ(tmp_path):
    other = write_run(tmp_path / "b", [], total_timesteps=7, algo_kwargs={"beta": 5.0})
    found = differences([LoggedRun.load(folder) for folder in (population(tmp_path / "a"), other)])
    assert found["total_timesteps"] == [100, 7]
    assert found["algo_kwargs.beta"][1] == 5.0
    assert found["algo_kwargs.reward.scale"] == [0.1, 1.0]
    assert "algo" not in found


def test_sources_of_data_are_told_by_what_differs_between_them(tmp_path):
    data = {"a": {"kind": "random", "size": 4000}, "b": {"kind": "random", "size": 9000}, "c": MIXED}
    runs = [LoggedRun.load(write_run(tmp_path / name, [], algo_kwargs={"dataset": own})) for name, own in data.items()]
    (row,) = differences(runs).values()
    assert [setting_text(value) for value in row] == [
        "kind: random, size: 4000",
        "kind: random, size: 9000",
        "kind: random, size: 4000, weight: 0.5; kind: scripted, size: 2000, weight: 0.5",
    ]
    assert differences(runs[:2]) == {"algo_kwargs.dataset": [[{"size": 4000}], [{"size": 9000}]]}
    assert "| `algo_kwargs.dataset` | size: 4000 | size: 9000 |" in markdown(runs[:2], "").splitlines()


def test_a_setting_is_written_as_in_a_config():
    assert [setting_text(value) for value in (None, True, [1, None], {"a": {"b": "c"}}, [], {}, 3e-4)] == [
        *("\N{EN DASH}", "true", "[1, null]", "{a: {b: c}}", "[]", "{}", "0.0003")
    ]
    same = {"kind": "random"}
    assert setting_text([same, same]) == "kind: random; kind: random"
