"""What a run says at its end."""

import re
from types import SimpleNamespace

import numpy as np
import pytest

from rl_training.cli.options import mean_text
from rl_training.cli.training import _print_combinations
from rl_training.output import return_text
from rl_training.runtime.population import MemberRecord, combinations
from rl_training.runtime.progress import mean_and_range
from tests.analysis.runs import write_run
from tests.helpers import call_cli, small_arrays, tiny_run


def test_the_summary_names_the_unit_of_every_step(finished, tmp_path, capsys):
    offline = call_cli(capsys, "resume", finished.copy(tmp_path / "evaluated")).stdout
    assert re.search(r"best -\d+\.\d at gradient step (40|80|120)\nafter 120 gradient steps\n", offline)
    np.savez(tmp_path / "log.npz", **small_arrays(observation_dim=3, action_dim=1))
    tiny_run(tmp_path / "run", env_id=None, algo_kwargs={"dataset": {"path": str(tmp_path / "log.npz")}})
    online = call_cli(capsys, "finetune", tmp_path / "run", "--env", "Pendulum-v1", "--env-steps", "80").stdout
    assert re.search(r"best -\d+\.\d at environment step (40|80)\b", online)
    assert "\nafter 200 gradient steps and 80 environment steps\n" in online


@pytest.mark.parametrize(
    ("value", "text"),
    [
        *[(-1234.56, "-1234.6"), (-1.04, "-1.04"), (0.0, "0.0"), (-0.0, "0.0"), (-0.004, "-0.004"), (0.256, "0.256")],
        *[(-3.2e-7, "-3.2e-07"), (float("nan"), "nan"), (float("-inf"), "-inf")],
    ],
)
def test_small_returns_are_readable_and_no_zero_has_a_sign(value, text):
    assert return_text(value) == text


def test_small_returns_of_training_and_evaluation():
    assert mean_and_range([-0.004, -0.002], [0, 1]) == "mean return -0.003 (members -0.004 to -0.002)"
    assert mean_text({"return_mean": -0.004, "return_std": 0.0}, 2) == "-0.004 +- 0.0"
    assert mean_text({"return_mean": -0.004, "return_std": 0.0}, 1) == "-0.004"  # which has no deviation


def test_the_best_of_trials_is_that_of_the_report(tmp_path, capsys):
    """Both look at the last evaluation: one lucky seed of five gives the higher mean, not the higher interquartile mean."""
    returns, trials = [0.0, 0.0, 0.0, 0.0, 100.0, 1.0, 1.0, 1.0, 1.0, 1.0], [{"expectile": 0.6}, {"expectile": 0.9}]
    folder = write_run(tmp_path / "run", [returns], trials=trials, seeds=range(5))
    records = [MemberRecord(k % 5, last_return=one, knobs=trials[k // 5]) for k, one in enumerate(returns)]
    result = SimpleNamespace(combinations=combinations(records), final_evaluation=None)
    _print_combinations(SimpleNamespace(run_dir=folder, place=str(folder)), result)
    lines = capsys.readouterr().out.splitlines()
    assert lines[0] == "combinations over their seeds, by the last evaluation"
    assert lines[-2] == "best: expectile=0.9 with return 1.000 (5 seeds, as the report ranks them)"
