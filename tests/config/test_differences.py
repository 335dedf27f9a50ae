"""The settings in which configs differ, and settings as text."""

from rl_training.config.differences import differing, setting_text
from rl_training.config.loading import make_config

MIXED = [{"kind": "random", "size": 4000, "weight": 0.5}, {"kind": "scripted", "size": 2000, "weight": 0.5}]


def records(*datasets):
    settings = {"algo": "iql", "env_id": "Pendulum-v1"}
    return [make_config({**settings, "algo_kwargs": {"dataset": data}}, "x").record() for data in datasets]


def test_sources_of_data_are_told_by_what_differs_between_them():
    few, many = {"kind": "random", "size": 4000}, {"kind": "random", "size": 9000}
    (row,) = differing(records(few, many, MIXED)).values()
    assert [setting_text(value) for value in row] == [
        "kind: random, size: 4000",
        "kind: random, size: 9000",
        "kind: random, size: 4000, weight: 0.5; kind: scripted, size: 2000, weight: 0.5",
    ]
    assert differing(records(few, many)) == {"algo_kwargs.dataset": [[{"size": 4000}], [{"size": 9000}]]}
    assert differing(records(few, few)) == {}


def test_groups_that_are_alike_are_told_in_full():
    assert differing([{"parts": [{"a": 1, "b": None}]}, {"parts": [{"a": 1, "b": None}] * 2}, {}]) == {
        "parts": [[{"a": 1}], [{"a": 1}, {"a": 1}], None]
    }


def test_a_setting_is_written_as_in_a_config():
    assert [setting_text(value) for value in (True, [1, None], {"a": {"b": "c"}}, [], {}, 3e-4)] == [
        *("true", "[1, null]", "{a: {b: c}}", "[]", "{}", "0.0003")
    ]
    assert setting_text([{"kind": "random"}] * 2) == "kind: random; kind: random"
