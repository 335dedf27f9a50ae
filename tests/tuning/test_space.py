"""The space file: what it may hold, what is refused with its line, and trials as populations."""

import pytest

from rl_training.config.loading import make_config
from rl_training.errors import ConfigError
from rl_training.tuning.plan import plan
from rl_training.tuning.space import Choices, Range, changed, make_space, read_space, setting
from tests.helpers import run_values


def space_of(tmp_path, text, **changes):
    (tmp_path / "space.yaml").write_text(text)
    return read_space(tmp_path / "space.yaml", make_config(run_values(**changes)))


def test_ranges_choices_and_their_kinds(tmp_path):
    space = space_of(
        tmp_path,
        "expectile: {low: 0.6, high: 0.95}\nbeta: {low: 1, high: 20, log: true}\n"
        "batch_size: {low: 8, high: 64, log: true}\nhidden_sizes: {choices: [[8, 8], [16]]}\n"
        "reward.scale: {low: 0.1, high: 1}\nlearning_rate_schedule: {choices: [constant, cosine]}\n",
    )
    assert space.knobs["expectile"] == Range(0.6, 0.95)
    assert space.knobs["beta"] == Range(1.0, 20.0, log=True)
    assert space.knobs["batch_size"] == Range(8, 64, log=True, whole=True)
    assert space.knobs["hidden_sizes"] == Choices(([8, 8], [16]))
    assert space.value("hidden_sizes", "[16]") == [16]
    assert space.value("beta", 3.0) == 3.0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("beta: {low: 1, high: 2}\nexpectle: {low: 0.6, high: 0.9}", "space.yaml:2: unknown key `algo_kwargs.expectle`"),
        ("expectle: {low: 0.6, high: 0.9}", "Did you mean `expectile`?"),
        ("expectile: {low: 0.6, high: 1.2}", "space.yaml:1: `algo_kwargs.expectile` = 1.2 is not legal"),
        ("expectile: {low: 0.4, high: 0.9}", "`algo_kwargs.expectile` = 0.4 is not legal"),
        ("hidden_sizes: {choices: [[8], []]}", "space.yaml:1: `algo_kwargs.hidden_sizes` = [] is not legal"),
        ("expectile: 0.7", "`expectile` must look like {low: 0.6, high: 0.95}"),
        ("expectile: {low: 0.6}", "`expectile` must look like"),
        ("expectile: {low: 0.6, hgih: 0.9}", "unknown key `expectile.hgih`. Did you mean `high`?"),
        ("expectile: {low: 0.9, high: 0.6}", "must be numbers, low below high"),
        ("beta: {low: 0, high: 1, log: true}", "`beta`: low = 0 must be above zero where log is true"),
        ("beta: {low: 1, high: 2, log: 1}", "`beta.log` = 1 is not legal: must be true or false"),
        ("seed: {low: 1, high: 3}", "`seed` is no knob, and a space holds knobs alone: give it to all trials, with --seeds"),
        ("total_timesteps: {low: 9, high: 99}", "with --set total_timesteps=..."),
        ("batch_size: {low: 8.5, high: 16}", "`batch_size` takes whole numbers"),
        ("beta: {choices: [1]}", "must be a list of at least two values"),
        ("beta: {choices: [1, 1]}", "has the same value twice"),
        ("dataset.seed: {choices: [1, 2]}", "`dataset.seed` is no knob: trials on other data cannot be compared"),
        ("beta: {low: 1, high: 2}\nalgo_kwargs.beta: {low: 1, high: 2}", "`beta` and `algo_kwargs.beta` are the same knob"),
        ("[]", "must be a mapping from knobs to ranges"),
        ("beta: {low: 1, high: 2}\nbeta: {low: 1, high: 2}", "space.yaml:2: duplicate key `beta`"),
    ],
)
def test_a_fault_has_its_line(tmp_path, text, words):
    with pytest.raises(ConfigError) as caught:
        space_of(tmp_path, text)
    assert words in str(caught.value)


def test_every_fault_is_told(tmp_path):
    with pytest.raises(ConfigError) as caught:
        space_of(tmp_path, "expectile: 1\ntau: {low: 2, high: 3}\n")
    assert [line.split(": ")[0][-12:] for line in str(caught.value).splitlines()] == ["space.yaml:1", "space.yaml:2"]


def test_the_configs_own_values_and_those_outside(tmp_path):
    space = space_of(tmp_path, "expectile: {low: 0.6, high: 0.95}\nhidden_sizes: {choices: [[8], [16, 16]]}\n")
    config = make_config(run_values(algo_kwargs={"expectile": 0.8}))
    assert space.own_values(config) == ({"expectile": 0.8, "hidden_sizes": "[16, 16]"}, [])
    config = make_config(run_values(algo_kwargs={"expectile": 0.5, "hidden_sizes": [4]}))
    assert space.own_values(config)[1] == ["expectile", "hidden_sizes"]


def test_settings_by_path():
    record = make_config(run_values()).record()
    other = changed(record, {"beta": 7.0, "reward.scale": 0.5})
    assert (setting(other, "beta"), setting(other, "reward.scale"), setting(record, "beta")) == (7.0, 0.5, 3.0)


def test_a_scale_of_rewards_that_follows_the_data_is_no_number():
    config = make_config(run_values())
    space = make_space({"reward.scale": {"low": 0.05, "high": 1}}, config, "space")
    assert space.own_values(config)[1] == ["reward.scale"]
    assert make_config(changed(config.record(), {"reward.scale": 1.0})).algo_kwargs.reward.normalize is False
    fixed = make_config(run_values(algo_kwargs={"reward": {"scale": 0.5}}))
    assert space.own_values(fixed) == ({"reward.scale": 0.5}, [])


def test_all_trials_are_scored_with_the_discount_of_the_config(tmp_path):
    kwargs = {"n_step": 3, "dataset": {"path": "x.npz"}}
    found = planned([{"gamma": 0.5}, {"gamma": 0.9}], tmp_path, env_id=None, select_by="fqe", algo_kwargs=kwargs)
    assert [one.job.config["algo_kwargs"]["gamma"] for one in found.populations] == [0.5, 0.9]
    assert [one.job.config["select_gamma"] for one in found.populations] == [0.99, 0.99]


def planned(trials, tmp_path, pruning=None, **changes):
    return plan("t", dict(enumerate(trials)), make_config(run_values(seeds=[3, 8], **changes)).record(), tmp_path, pruning)


def test_trials_that_differ_in_numbers_are_one_population(tmp_path):
    found = planned([{"beta": 1.0, "tau": 0.1}, {"beta": 2.0, "tau": 0.2}, {"beta": 1.0, "tau": 0.1}], tmp_path)
    (one,) = found.populations
    assert (one.job.name, one.job.run_dir) == ("t", str(tmp_path / "t"))
    assert one.job.config["trials"] == [{"tau": 0.1, "beta": 1.0}, {"tau": 0.2, "beta": 2.0}]
    assert {number: list(members) for number, members in one.members.items()} == {0: [0, 1], 1: [2, 3], 2: [0, 1]}
    assert make_config(one.job.config).member_seeds == (3, 8, 3, 8)


def test_trials_that_change_a_shape_are_populations_of_their_own(tmp_path):
    trials = [{"hidden_sizes": size, "beta": beta} for size in ([8], [4, 4]) for beta in (1.0, 2.0)]
    found = planned([trials[0], trials[2], trials[1], trials[3]], tmp_path, {"kind": "median"})
    assert [(one.job.name, list(one.members)) for one in found.populations] == [("t-0", [0, 2]), ("t-1", [1, 3])]
    assert found.populations[1].job.config["algo_kwargs"]["hidden_sizes"] == [4, 4]
    assert found.populations[0].job.config["pruning"]["kind"] == "median"
    (alone,) = planned([{"hidden_sizes": [4]}], tmp_path, {"kind": "median"}).populations
    assert (alone.job.config["trials"], alone.job.config["pruning"]) == (None, None)


def test_gamma_over_several_steps_is_a_shape(tmp_path):
    trials = [{"gamma": gamma, "n_step": steps} for steps in (1, 3) for gamma in (0.9, 0.99)]
    assert [list(one.members) for one in planned(trials, tmp_path).populations] == [[0, 1], [2], [3]]


def test_a_combination_that_is_refused_leaves_the_others(tmp_path):
    trials = [{"cql_clip_diff_min": -1.0, "cql_clip_diff_max": 1.0}, {"cql_clip_diff_min": 2.0, "cql_clip_diff_max": 1.0}]
    found = planned(trials, tmp_path, algo="cql")
    assert [list(one.members) for one in found.populations] == [[0]]
    assert "must be below" in found.refused[1]
