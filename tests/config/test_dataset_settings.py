"""The dataset setting in all the ways it may be written, and keys that stand in the wrong place."""

import os
from pathlib import Path

import pytest

from rl_training.config.loading import load_config, make_config
from rl_training.errors import ConfigError


def dataset_of(value, **kwargs):
    return make_config({"algo": "iql", "algo_kwargs": {"dataset": value, **kwargs}}).algo_kwargs.dataset


@pytest.mark.parametrize(
    ("value", "paths"),
    [
        ("logs/", ["logs"]),
        (Path("logs"), ["logs"]),
        ({"path": "logs/*.csv"}, ["logs/*.csv"]),
        ({"path": ["a.csv", "b.csv"]}, [("a.csv", "b.csv")]),
        (["a.csv", Path("b.csv")], [("a.csv", "b.csv")]),
        (["a.csv"], [("a.csv",)]),
        (["a.csv", {"path": "b.csv"}], ["a.csv", "b.csv"]),
        ("minari:a/b-v0", ["minari:a/b-v0"]),
    ],
)
def test_a_dataset_may_be_written_in_short(value, paths):
    def absolute(path):
        return path if path.startswith("minari:") else os.path.abspath(path)

    expected = [absolute(path) if isinstance(path, str) else tuple(map(absolute, path)) for path in paths]
    assert [part.path for part in dataset_of(value)] == expected


@pytest.mark.parametrize(
    "value", ["", [""], {"path": ""}, {"path": []}, {"path": 3}, {"path": ["a", 3]}, {"path": {"a": "b"}}]
)
def test_paths_of_other_kinds_are_refused_in_one_line(value):
    with pytest.raises(ConfigError, match="must be a file, a folder, a glob") as caught:
        dataset_of(value)
    assert len(str(caught.value).splitlines()) == 1


def test_a_resolved_list_of_files_resolves_to_itself(tmp_path):
    texts = ["a", {"error": "a - b"}, "`Zone Temp: [C]` * 2 # 1", "- x", "1", {"on": "yes"}, "é, ü"]
    columns = {"observations": texts, "actions": {"valve": "u / 100"}, "reward": "-abs(a - b)"}
    config = make_config({"algo": "iql", "algo_kwargs": {"dataset": {"path": ["x.csv", "y.csv"], "columns": columns}}})
    (tmp_path / "config.yaml").write_text(config.to_yaml())
    assert load_config(str(tmp_path / "config.yaml")) == config
    assert config.algo_kwargs.dataset[0].columns.actions == ({"valve": "u / 100"},)


@pytest.mark.parametrize(
    ("values", "fault"),
    [
        ({"validation": {"fraction": 0.1}}, "unknown key `validation`; it belongs under `algo_kwargs.validation`"),
        ({"expectile": 0.7}, "unknown key `expectile`; it belongs under `algo_kwargs.expectile`"),
        ({"dataset": "logs"}, "unknown key `dataset`; it belongs under `algo_kwargs.dataset`"),
        ({"path": "logs"}, "unknown key `path`; it belongs under `algo_kwargs.dataset.path`"),
        ({"algo_kwargs": {"path": "x"}}, "unknown key `algo_kwargs.path`; it belongs under `algo_kwargs.dataset.path`"),
        ({"algo_kwargs": {"columns": {}}}, "it belongs under `algo_kwargs.dataset.columns`"),
        ({"algo_kwargs": {"env_id": "x"}}, "unknown key `algo_kwargs.env_id`; it belongs at the top level"),
        ({"algo_kwargs": {"dataset": {"path": "x", "gamma": 0.9}}}, "it belongs under `algo_kwargs.gamma`"),
        ({"algo_kwargs": {"dataset": {"path": "x", "reward": "r"}}}, "it belongs under `algo_kwargs.dataset.columns.reward`"),
        ({"algo_kwargs": {"dataset": {"path": "x", "columns": "map.yaml"}}}, "a file of them is what `--columns` takes"),
        ({"env_steps": 5}, "it belongs under `finetune.env_steps`"),
        ({"expectle": 0.7}, "unknown key `expectle`. Did you mean `algo_kwargs.expectile`?"),
        ({"algo_kwargs": {"expectle": 0.7}}, "unknown key `algo_kwargs.expectle`. Did you mean `expectile`?"),
        ({"algo_kwargs": {"seed": 3}}, "it belongs at the top level"),
        ({"algo_kwargs": {"nois": 3}}, "unknown key `algo_kwargs.nois`. Did you mean `algo_kwargs.dataset.noise`?"),
        ({"finetune": {"env_steps": 9, "prior_rato": 1}}, "unknown key `finetune.prior_rato`. Did you mean `prior_ratio`?"),
    ],
)
def test_a_misplaced_key_is_told_where_it_belongs(values, fault):
    with pytest.raises(ConfigError) as caught:
        make_config({"algo": "iql", **values})
    assert fault in str(caught.value)


def test_what_cannot_be_set_in_a_block_is_no_suggestion():
    with pytest.raises(ConfigError, match=r"unknown key `finetune.nope`\.$"):
        make_config({"algo": "iql", "env_id": "Pendulum-v1", "finetune": {"env_steps": 9, "nope": 1}})


def test_a_key_of_an_online_algorithm_belongs_to_its_settings():
    with pytest.raises(ConfigError, match="it belongs under `algo_kwargs.learning_starts`"):
        make_config({"algo": "sac", "env_id": "Pendulum-v1", "learning_starts": 5})


def test_misplaced_keys_have_their_line(tmp_path):
    (tmp_path / "run.yaml").write_text("algo: iql\nseed: 1\nvalidation: {fraction: 0.1}\n")
    with pytest.raises(ConfigError, match=r"run.yaml:3: unknown key `validation`; it belongs under"):
        load_config(str(tmp_path / "run.yaml"))


def test_an_algorithm_alone_is_a_config():
    config = load_config("td3_bc", ["seed=3"], {"total_timesteps": 7}, ["a.csv", "b.csv"], {"ends": "timeouts"})
    assert (config.algo, config.seed, config.total_timesteps, config.env_id) == ("td3_bc", 3, 7, None)
    (part,) = config.algo_kwargs.dataset
    assert part.path == (os.path.abspath("a.csv"), os.path.abspath("b.csv"))
    assert part.ends == "timeouts"


@pytest.mark.parametrize("block", ["algo_kwargs: 3", "algo_kwargs: {dataset: 3}", "algo_kwargs: {dataset: [3]}"])
def test_read_options_leave_faults_to_the_schema(tmp_path, block):
    (tmp_path / "run.yaml").write_text(f"algo: iql\n{block}\n")
    with pytest.raises(ConfigError, match=r"run.yaml:2: .*3"):
        load_config(str(tmp_path / "run.yaml"), reading={"ends": "timeouts"})
