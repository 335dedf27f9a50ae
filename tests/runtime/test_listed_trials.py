"""Populations of listed combinations: their members, what is refused, exact resume, and one member alone."""

import json

import numpy as np
import pytest
import yaml

from rl_training.analysis.logged_run import LoggedRun
from rl_training.errors import ConfigError
from rl_training.experiment import make_config
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.runtime.checkpoints.member import member_of
from tests.helpers import Cut, CutAt, assert_same_run, call_cli, checkpoints, metric_rows, run_values, tiny_run

TRIALS = [{"beta": 3.2, "expectile": 0.71}, {"expectile": 0.9, "beta": 1}, {"expectile": 0.71, "beta": 1}]


def test_members_are_the_listed_combinations_with_every_seed():
    config = make_config(run_values(trials=TRIALS, seeds=[3, 8]))
    assert config.member_seeds == (3, 8) * 3
    assert config.member_knobs[::2] == config.member_knobs[1::2] == tuple(TRIALS)
    assert [list(own) for own in config.combinations] == [["expectile", "beta"]] * 3
    assert make_config(json.loads(json.dumps(config.record(), sort_keys=True))) == config
    assert make_config(yaml.safe_load(config.to_yaml())) == config
    assert make_config(run_values(trials=[{"tau": np.float64(0.1)}])).member_knobs == ({"tau": 0.1},)


@pytest.mark.parametrize(
    ("trials", "words"),
    [
        ([], "must be a list of combinations of knobs"),
        ({"expectile": 0.7}, "must be a list of combinations of knobs"),
        ([{}], "must be a list of combinations of knobs"),
        ([{"expectile": 0.7}, {"beta": 3.0}], "number 1 has the knobs beta, and number 0 expectile"),
        ([{"expectle": 0.7}], "`expectle` cannot be swept: there is no such knob. Did you mean `expectile`?"),
        ([{"hidden_sizes": [8]}], "`hidden_sizes` cannot be swept: it sets a shape"),
        ([{"expectile": 0.7}, {"expectile": 1.5}], "`expectile` = 1.5 is not legal: must be a number >= 0.5 and < 1.0"),
        ([{"expectile": 0.7}, {"expectile": True}], "`trials.1.expectile` = True is not legal"),
        ([{"beta": 3.0}, {"beta": 1.0}, {"beta": 3}], "number 2 is the same as number 0: beta=3"),
        ([{"tau": value} for value in np.linspace(0.1, 0.9, 3000)], "3,000 combinations x 2 seeds are too many members"),
    ],
)
def test_refusals_are_one_line(trials, words):
    with pytest.raises(ConfigError) as caught:
        make_config(run_values(trials=trials, seeds=[0, 1]))
    assert words in str(caught.value)
    assert "\n" not in str(caught.value)


def test_what_trials_exclude():
    with pytest.raises(ConfigError, match="`trials` and `sweep` exclude each other"):
        make_config(run_values(trials=TRIALS, sweep={"tau": [0.1]}))
    with pytest.raises(ConfigError, match="`expectile` would do nothing"):
        make_config(run_values("xql", trials=[{"expectile": 0.7}]))
    changed = {"env_steps": 10, "learning_starts": 1, "algo_kwargs": {"beta": 2.0}}
    with pytest.raises(ConfigError, match="`algo_kwargs.beta` cannot change online"):
        make_config(run_values(trials=TRIALS, finetune=changed))


def test_trials_resume_exactly_and_a_member_goes_on_alone(tmp_path, capsys):
    tiny_run(tmp_path / "whole", trials=TRIALS, seeds=[3, 8])
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", trials=TRIALS, seeds=[3, 8], callbacks=[CutAt("checkpoint", 60)])
    tiny_run(tmp_path / "cut", trials=TRIALS, seeds=[3, 8], resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")
    tiny_run(tmp_path / "solo", seed=8, algo_kwargs=TRIALS[1])
    mine = [row for row in metric_rows(tmp_path / "whole") if row["member"] == 3]
    for left, right in zip(mine, metric_rows(tmp_path / "solo"), strict=True):
        assert left["knob/expectile"] == 0.9
        if "eval/return_mean" in right:
            assert left["eval/return_mean"] == pytest.approx(right["eval/return_mean"], rel=1e-3)
    alone = member_of(load_checkpoint(checkpoints(tmp_path / "whole")[-1]), 3).state["config"]
    assert (alone["trials"], alone["algo_kwargs"]["beta"]) == (None, 1.0)
    assert LoggedRun.load(tmp_path / "whole").config.combinations[0] == {"expectile": 0.71, "beta": 3.2}
    compared = call_cli(capsys, "compare", tmp_path / "whole", "--against", "all").stdout
    assert "expectile=0.71 beta=3.2" in compared
