import subprocess
import sys

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from rl_training.config.base import flat
from rl_training.config.loading import load_config, make_config, packaged_configs
from rl_training.config.parts import without_effect
from rl_training.config.run import RunConfig
from rl_training.config.yaml_loader import parse_yaml
from rl_training.errors import ConfigError
from tests.helpers import ROOT, environment, generator, run_values


def write(tmp_path, text):
    path = tmp_path / "c.yaml"
    path.write_text(text)
    return str(path)


def test_configs_mirror_the_packaged_ones():
    folder = ROOT / "configs"
    files = {str(path.relative_to(folder)).removesuffix(".yaml"): path.read_text() for path in folder.rglob("*.yaml")}
    assert files == packaged_configs()


@pytest.mark.parametrize("name", [name for name in packaged_configs() if "pendulum" in name])
def test_configs_of_pendulum_are_valid_and_small(name):
    config = load_config(name)
    assert config.algo == name.split("/")[0]
    assert config.algo_kwargs.hidden_sizes == (64, 64)


def test_all_faults_come_at_once_with_file_and_line(tmp_path):
    path = write(
        tmp_path, "algo: iql\ntotal_timestep: 5\neval_interval: 0\nalgo_kwargs:\n  expectile: 1.5\n  expectle: 0.7\n"
    )
    with pytest.raises(ConfigError) as caught:
        load_config(path)
    lines = str(caught.value).splitlines()
    assert sorted(lines) == sorted(
        [
            f"{path}:2: unknown key `total_timestep`. Did you mean `total_timesteps`?",
            f"{path}:3: `eval_interval` = 0 is not legal: must be an integer >= 1",
            f"{path}:5: `algo_kwargs.expectile` = 1.5 is not legal: must be a number >= 0.5 and < 1.0",
            f"{path}:6: unknown key `algo_kwargs.expectle`. Did you mean `expectile`?",
        ]
    )


def test_unknown_algorithm_is_suggested(tmp_path):
    with pytest.raises(ConfigError, match=r"c.yaml:1: unknown algorithm `iqll`. Did you mean `iql`"):
        load_config(write(tmp_path, "algo: iqll"))


@pytest.mark.parametrize(
    ("text", "value"),
    [("3e-4", 3e-4), ("3E-4", 3e-4), ("1_000", 1000), ("1e3", 1000.0), ("-.5", -0.5), ("true", True), ("null", None)],
)
def test_scalars_mean_what_they_look_like(text, value):
    read = parse_yaml(f"a: {text}", "x")[0]["a"]
    assert read == value
    assert type(read) is type(value)


@pytest.mark.parametrize(
    "text", ["on", "off", "yes", "no", "010", "1_", "1__0", "1._5", "12:30", "0x10", "2020-01-01", "True"]
)
def test_ambiguous_scalars_stay_words(text):
    assert parse_yaml(f"a: {text}", "x")[0]["a"] == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("algo: iql\nalgo: cql\n", "x:2: duplicate key `algo`"),
        ("a: {b: 1, b: 2}", "duplicate key `b`"),
        ("a: &x 1\nb: *x\n", "anchors and aliases"),
        ("a: !!python/object/apply:os.system ['true']", "tags are not allowed"),
        ("a: !custom 1", "tags are not allowed"),
        ("a: &anchor 1", "anchors and aliases"),
        ("a: 1\0", "not valid YAML"),
        ("a:\n\t- 1", "not valid YAML"),
        ("[" * 5000, "nested too deeply|not valid YAML"),
        ("a: " + "[" * 40 + "]" * 40, "nested too deeply"),
        ("a: " + "x" * 2**21, "larger than"),
        ("{1: {2: [}", "not valid YAML"),
    ],
)
def test_hostile_yaml_is_refused(text, message):
    with pytest.raises(ConfigError, match=message):
        parse_yaml(text, "x")


def test_empty_list_and_byte_order_mark(tmp_path):
    with pytest.raises(ConfigError, match="`algo` is required"):
        load_config(write(tmp_path, ""))
    with pytest.raises(ConfigError, match="must be a mapping"):
        load_config(write(tmp_path, "- 1"))
    assert load_config(write(tmp_path, "\ufeffalgo: iql")).algo == "iql"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("total_timesteps", True),
        ("total_timesteps", 0),
        ("total_timesteps", 1.5),
        ("total_timesteps", "10"),
        ("seed", -1),
        ("seed", 2**64),
        ("seeds", [1, 1]),
        ("seeds", []),
        ("seeds", [True]),
        ("device", "gpu"),
        ("engine", "fast"),
        ("keep_checkpoints", 1),
        ("run_name", "../x"),
        ("early_stopping", {}),
        ("learning_rate_schedule", "cosin"),
        ("learning_rate_schedule", {"actr": "cosine"}),
        ("algo_kwargs.batch_size", 0),
        ("algo_kwargs.batch_size", True),
        ("algo_kwargs.gamma", 1.0),
        ("algo_kwargs.tau", 2.0),
        ("algo_kwargs.critic_learning_rate", 0.0),
        ("algo_kwargs.critic_learning_rate", float("nan")),
        ("algo_kwargs.hidden_sizes", [64, True]),
        ("algo_kwargs.hidden_sizes", 64),
        ("algo_kwargs.dataset", {"kind": "random", "path": "x"}),
        ("algo_kwargs.dataset", {"size": 5}),
        ("algo_kwargs.dataset", [{"kind": "random", "weight": 1.0}, {"kind": "random"}]),
        ("seed", 10**40),
        ("algo_kwargs.dataset", {"kind": "rand"}),
        ("algo_kwargs.reward", {"clip": [1.0, -1.0]}),
    ],
)
def test_values_out_of_range_are_refused_by_name(key, value):
    values = run_values()
    place = values["algo_kwargs"] if key.startswith("algo_kwargs.") else values
    name = key.rsplit(".", maxsplit=1)[-1]
    place[name] = value
    with pytest.raises(ConfigError, match=name):
        make_config(values)


def test_overrides_reach_any_setting():
    config = load_config(
        "iql/pendulum",
        ["algo_kwargs.expectile=0.8", "algo_kwargs.actor_learning_rate=3e-4", "seeds=[1, 2]", "algo_kwargs.reward.shift=1"],
    )
    assert config.algo_kwargs.expectile == 0.8
    assert config.algo_kwargs.actor_learning_rate == 3e-4
    assert config.member_seeds == (1, 2)
    assert config.algo_kwargs.reward.shift == 1.0
    with pytest.raises(ConfigError, match="must look like key.path=value"):
        load_config("iql/pendulum", ["seed"])
    with pytest.raises(ConfigError, match="`seed` is 3, not a group"):
        load_config("iql/pendulum", ["seed=3", "seed.x=1"])


def test_a_resolved_config_resolves_to_itself(tmp_path):
    for name in packaged_configs():
        config = load_config(name)
        assert load_config(write(tmp_path, config.to_yaml())).record() == config.record()


def test_words_that_look_like_numbers_survive_the_file(tmp_path):
    config = make_config(run_values(run_name="123e4"))
    assert load_config(write(tmp_path, config.to_yaml())).record() == config.record()


@settings(max_examples=50, deadline=None)
@given(
    expectile=st.floats(0.5, 0.99),
    rate=st.floats(1e-6, 1e-1),
    batch=st.integers(1, 4096),
    seed=st.integers(0, 2**63 - 1),
)
def test_yaml_overrides_and_python_resolve_alike(expectile, rate, batch, seed):
    base = {"algo": "iql", "env_id": "Pendulum-v1"}
    knobs = {"expectile": expectile, "actor_learning_rate": rate, "batch_size": batch}
    python = make_config({**base, "seed": seed, "algo_kwargs": knobs})
    text, _ = parse_yaml(yaml.safe_dump({**base, "seed": seed, "algo_kwargs": knobs}), "x")
    overrides = [f"algo_kwargs.{key}={value!r}" for key, value in knobs.items()]
    extra = {"env_id": "Pendulum-v1"}
    command = load_config("iql/pendulum", [*overrides, f"seed={seed}"], extra)
    assert make_config(text).record() == python.record()
    assert {k: command.record()["algo_kwargs"][k] for k in knobs} == knobs


def test_typos_are_nearly_always_understood():
    """1-2 edits in the long keys of the schema: the right key is suggested."""
    draw = generator(5)
    keys = [key for key in RunConfig.model_fields if len(key) >= 8]
    right = 0
    for _ in range(50):
        key = keys[draw.integers(len(keys))]
        typo = list(key)
        for _ in range(int(draw.integers(1, 3))):
            position = int(draw.integers(len(typo)))
            typo[position] = "q" if draw.integers(2) else ""
        with pytest.raises(ConfigError) as caught:
            make_config({**run_values(), "".join(typo): 1})
        right += f"`{key}`?" in str(caught.value)
    assert right >= 48


def test_the_schema_loads_no_torch():
    modules = "rl_training.config.run, rl_training.experiment.registry, rl_training.cli"
    code = f"import sys, {modules}; print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], env=environment(), capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"


def test_settings_of_a_dataset_join_the_files_that_the_shell_names(tmp_path):
    overrides = ["algo_kwargs.dataset.top=50%", "algo_kwargs.dataset.on_bad_rows=drop"]
    config = load_config("bc", overrides, None, [str(tmp_path / "logs")], {"ends": "timeouts"})
    (block,) = config.algo_kwargs.dataset
    assert (block.path, block.top, block.on_bad_rows, block.ends) == (str(tmp_path / "logs"), 0.5, "drop", "timeouts")
    named = load_config("bc", [f"algo_kwargs.dataset={tmp_path / 'log.csv'}"], None, (), {"ends": "timeouts"})
    assert [(part.path, part.ends) for part in named.algo_kwargs.dataset] == [(str(tmp_path / "log.csv"), "timeouts")]


@pytest.mark.parametrize(
    ("given", "automatic"),
    [({}, True), ({"scale": 1.0}, False), ({"clip": None}, False), ({"scale": 1.0, "normalize": "auto"}, True)],
)
def test_rewards_are_scaled_by_the_data_unless_a_scale_is_given_even_one(given, automatic):
    assert make_config(run_values(algo_kwargs={"reward": given})).algo_kwargs.reward.is_automatic == automatic


@pytest.mark.parametrize("key", ["normalize_observations", "reward.normalize"])
def test_a_flag_that_may_be_auto_names_its_three_values(key):
    with pytest.raises(ConfigError, match=r"must be true, false or `auto`") as caught:
        load_config("iql", [f"algo_kwargs.{key}=ture"])
    assert "literal" not in str(caught.value)


def test_a_fault_of_an_override_is_blamed_on_it_and_not_on_the_file():
    with pytest.raises(ConfigError) as caught:
        load_config("iql/pendulum", ["algo_kwargs.expectil=0.8", "eval_interval=0"])
    lines = str(caught.value).splitlines()
    assert "--set algo_kwargs.expectil=0.8: unknown key `algo_kwargs.expectil`. Did you mean `expectile`?" in lines
    assert any(line.startswith("--set eval_interval=0: `eval_interval` = 0 is not legal") for line in lines)


def test_a_knob_of_another_algorithm_is_told_whose_it_is():
    with pytest.raises(ConfigError, match="unknown key `algo_kwargs.eta`; it is a knob of edac"):
        make_config(run_values("sac_n", algo_kwargs={"eta": 1.0}))


def test_one_schedule_for_all_groups_is_checked_once():
    with pytest.raises(ConfigError) as caught:
        make_config(run_values("iql", learning_rate_schedule={"over": 2.0, "to": 0.1}))
    assert str(caught.value).count("`kind` is required") == str(caught.value).count("`over` = 2.0 is not legal") == 1


def test_widths_are_a_list():
    with pytest.raises(ConfigError, match=r"`algo_kwargs.actor_hidden_sizes` = 32 is not legal: must be a list of widths"):
        make_config(run_values("iql", algo_kwargs={"actor_hidden_sizes": 32}))


@pytest.mark.parametrize(
    ("algo", "kwargs", "idle"),
    [
        ("cql", {"lagrange_form": "authors", "max_backup_form": "min_of_max"}, {"lagrange_form", "max_backup_form"}),
        ("cql", {"lagrange_form": "authors", "lagrange_gap": 1.0}, set()),
        ("rlpd", {"target_entropy": -1.0}, {"target_entropy"}),
        ("sac", {"target_entropy": -1.0, "target_entropy_multiplier": 0.5}, {"target_entropy_multiplier"}),
        ("rlpd", {}, set()),
    ],
)
def test_settings_without_effect_are_known(algo, kwargs, idle):
    assert (
        set(without_effect(make_config({"algo": algo, "env_id": "Pendulum-v1", "algo_kwargs": kwargs}).algo_kwargs)) == idle
    )


def test_nested_settings_by_their_dotted_names():
    nested = {"a": 1, "b": {"c": None, "d": {"e": [{"f": 2}]}}, "g": {}}
    assert flat(nested) == {"a": 1, "b.c": None, "b.d.e": [{"f": 2}], "g": {}}
