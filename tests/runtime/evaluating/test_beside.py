"""Evaluation beside training: results come at the next evaluation, the same bits whatever the workers and after cuts."""

import json
import os
import signal

import pytest
import torch

import tests.envs.own_environments  # noqa: F401 - registers them
from rl_training.config.loading import make_config
from rl_training.errors import ConfigError, DivergedError, StoppedBySignal
from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime.callbacks import Callback
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.runtime.checkpoints.member import member_of
from rl_training.runtime.evaluating.beside import evaluating_workers
from tests.helpers import (
    Cut,
    CutAt,
    Notes,
    assert_same_run,
    checkpoints,
    die_at_each,
    metric_rows,
    run_values,
    small_dataset,
    tiny_run,
)

RUN = {"eval_mode": "beside", "eval_episodes": 7, "seeds": [0, 1], "max_episode_steps": 60}
DRIFT = {**RUN, "env_id": "Tests/Drift-v0", "env_timeout": 30.0, "max_episode_steps": 30}


def evaluated(run_dir):
    return [(row["step"], row["member"]) for row in metric_rows(run_dir) if "eval/return_mean" in row]


def last_row(run_dir):
    return metric_rows(run_dir)[-1]


class Seen(Callback):
    """Notes how far training was when an evaluation was reported."""

    def __init__(self):
        self.learner, self.reports = None, []

    def on_start(self, learner):
        self.learner = learner

    def on_evaluation(self, step, evaluation, active):
        self.reports.append((step, self.learner.step))
        return ()


def test_a_result_comes_when_the_next_evaluation_is_due(tmp_path):
    seen = Seen()
    tiny_run(tmp_path, callbacks=[seen], **RUN)
    assert seen.reports == [(40, 80), (80, 120), (120, 120)]
    assert evaluated(tmp_path) == [(step, member) for step in (40, 80, 120) for member in (0, 1)]


@pytest.mark.parametrize("algo", ["iql", "sac", "fql"])
def test_the_bits_do_not_depend_on_workers_or_cuts(algo, tmp_path):
    """Cut between evaluations, after checkpoints that refer to one under way, and while results are taken."""
    tiny_run(tmp_path / "here", algo, workers=0, **RUN)
    tiny_run(tmp_path / "workers", algo, workers=3, **RUN)
    assert_same_run(tmp_path / "here", tmp_path / "workers")
    cuts = [("log", 50), ("checkpoint", 60), ("log", 70), ("evaluation", 40), ("checkpoint", 90), ("evaluation", 80)]
    die_at_each(lambda **kwargs: tiny_run(tmp_path / "cut", algo, workers=2, **RUN, **kwargs), cuts)
    assert_same_run(tmp_path / "here", tmp_path / "cut")


@pytest.mark.parametrize("interval", [1000, 40, 25])
def test_a_finetune_is_cut_and_resumed_in_either_phase(interval, tmp_path):
    own = {**RUN, "checkpoint_interval": interval, "finetune": {"env_steps": 100, "learning_starts": 10}}
    tiny_run(tmp_path / "whole", **own)
    for cut in (("log", 50), ("log", 90)):
        folder = tmp_path / f"cut-{cut[1]}"
        with pytest.raises(Cut):
            tiny_run(folder, callbacks=[CutAt(*cut)], **own)
        if (folder / "checkpoints" / "latest.json").exists():
            tiny_run(folder, resume=True, **own)
        else:
            tiny_run(folder, overwrite=True, **own)
        assert_same_run(tmp_path / "whole", folder)


def test_an_evaluation_is_the_same_as_one_that_is_waited_for(tmp_path):
    """Where both act in batches of the same rows, on the CPU."""
    tiny_run(tmp_path / "wait", eval_episodes=5)
    tiny_run(tmp_path / "beside", eval_episodes=5, eval_mode="beside")
    waited, beside = (
        [row for row in metric_rows(tmp_path / mode) if "eval/return_mean" in row] for mode in ("wait", "beside")
    )
    assert waited == beside


@pytest.mark.parametrize("interval", [1000, 40])
def test_the_best_checkpoint_is_that_of_the_best_evaluation(interval, tmp_path):
    """Whether or not a checkpoint of its step was due; the constant policies of IQL with a rate of 0 are all alike."""
    fixed = {"actor_learning_rate": 1e-9}
    tiny_run(tmp_path, checkpoint_interval=interval, algo_kwargs=fixed, **RUN)
    best = json.loads((tmp_path / "checkpoints" / "best.json").read_text())["checkpoint"]
    rows = [row for row in metric_rows(tmp_path) if "eval/return_mean" in row]
    means = {step: sum(row["eval/return_mean"] for row in rows if row["step"] == step) for step in (40, 80, 120)}
    assert best == f"step-{max(means, key=means.get):09d}"
    assert load_checkpoint(tmp_path / "checkpoints" / best).step == max(means, key=means.get)


def test_members_stop_at_the_next_boundary(tmp_path):
    tiny_run(tmp_path, early_stopping={"threshold": -1e9}, **RUN)
    assert evaluated(tmp_path) == [(step, member) for step in (40, 80) for member in (0, 1)]
    assert last_row(tmp_path)["event"] == "stopped"
    assert last_row(tmp_path)["step"] == 80


def test_a_checkpoint_keeps_the_one_it_refers_to(tmp_path):
    """A run has two checkpoints after the evaluated step, of which it keeps two."""
    with pytest.raises(Cut):
        tiny_run(tmp_path, checkpoint_interval=10, callbacks=[CutAt("log", 70)], **RUN)
    assert [path.name for path in checkpoints(tmp_path)] == ["step-000000040", "step-000000050", "step-000000060"]


class StopAt(Callback):
    """Sends this process the signal that stops a run."""

    def __init__(self, step):
        self.step = step

    def on_log(self, step, rows):
        if step == self.step:
            os.kill(os.getpid(), signal.SIGTERM)


@pytest.mark.parametrize("step", [70, 80])
def test_a_stop_while_an_evaluation_is_under_way_is_exact(step, tmp_path):
    tiny_run(tmp_path / "whole", **RUN)
    with pytest.raises(StoppedBySignal):
        tiny_run(tmp_path / "cut", checkpoint_interval=1000, callbacks=[StopAt(step)], workers=2, **RUN)
    tiny_run(tmp_path / "cut", checkpoint_interval=1000, resume=True, **RUN)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize(("failure", "workers"), [("raise", 0), ("raise", 2), ("die", 2)])
def test_a_failing_environment_loses_nothing(failure, workers, tmp_path):
    flag = tmp_path / "flag"
    own = {
        **DRIFT,
        "env_kwargs": {"failure": failure, "flag": str(flag), "at": 5},
        "max_episode_steps": 30,
        "workers": workers,
    }
    data = {"algo_kwargs": {"dataset": {"kind": "random", "size": 600, "seed": 3}}}
    tiny_run(tmp_path / "whole", **own, **data)
    flag.touch()
    with pytest.raises(ConfigError, match=r"the run is saved at step 80"):
        tiny_run(tmp_path / "cut", callbacks=[Touch(flag)], **own, **data)
    flag.unlink()
    tiny_run(tmp_path / "cut", resume=True, **own, **data)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


class Touch(Callback):
    """Makes a file, once the data has been collected."""

    def __init__(self, path):
        self.path = path
        path.unlink()

    def on_log(self, step, rows):
        self.path.touch()


def test_a_hanging_environment_is_given_up(tmp_path):
    flag = tmp_path / "flag"
    flag.touch()
    own = {**DRIFT, "env_kwargs": {"failure": "hang", "flag": str(flag), "at": 5}, "workers": 2}
    with pytest.raises(
        ConfigError, match=r"took over env_timeout = 0.2 s to step; mend it, or raise env_timeout; the run is saved"
    ):
        tiny_run(tmp_path / "run", callbacks=[Touch(flag)], **{**own, "env_timeout": 0.2})


def test_evaluations_leave_alone_the_cores_that_steps_wait_for():
    assert evaluating_workers("auto", 0, cores=16) == 16
    assert evaluating_workers("auto", 1, cores=16) == 15
    assert evaluating_workers("auto", 9, cores=16) == 7
    assert evaluating_workers("auto", 3, cores=2) == 1
    assert evaluating_workers(8, 1, cores=4) == 8
    assert evaluating_workers(8, 9, cores=16) == 7
    assert evaluating_workers(0, 9, cores=16) == 0


class StopInEvaluation(Callback):
    """Asks for a stop when the result of an evaluation is taken."""

    def on_evaluation(self, step, evaluation, active):
        if step == 80:
            os.kill(os.getpid(), signal.SIGTERM)
        return ()


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stop_while_the_last_evaluation_is_waited_for_is_exact(workers, tmp_path):
    tiny_run(tmp_path / "whole", **RUN)
    with pytest.raises(StoppedBySignal):
        tiny_run(tmp_path / "cut", callbacks=[StopInEvaluation()], workers=workers, **RUN)
    tiny_run(tmp_path / "cut", resume=True, **RUN)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


class StopAtCheckpoint(Callback):
    def on_checkpoint(self, step, path):
        return step < 40


def test_a_result_is_taken_where_the_run_ends_at_a_checkpoint(tmp_path):
    result = tiny_run(tmp_path, checkpoint_interval=40, callbacks=[StopAtCheckpoint()], **RUN)
    assert evaluated(tmp_path) == [(40, 0), (40, 1)]
    assert result.evaluation is not None
    assert json.loads((tmp_path / "checkpoints" / "best.json").read_text())["checkpoint"] == "step-000000040"


class Poison(Seen):
    """Makes the parameters NaN at a step."""

    def on_log(self, step, rows):
        if step == 60:
            self.learner.model.trained.flat.fill_(torch.nan)


def test_a_run_that_diverges_reports_the_evaluation_under_way(tmp_path):
    with pytest.raises(DivergedError, match="step-000000040"):
        tiny_run(tmp_path, callbacks=[Poison()], checkpoint_interval=1000, **RUN)
    assert evaluated(tmp_path) == [(40, 0), (40, 1)]


@pytest.mark.parametrize("interval", [1000, 40])
def test_the_best_checkpoint_knows_what_its_evaluation_found(interval, tmp_path):
    """Also if it was written before that was known; a run that resumes from it is exact all the same."""
    tiny_run(tmp_path / "whole", checkpoint_interval=interval, **RUN)
    with pytest.raises(Cut):
        tiny_run(tmp_path / "cut", checkpoint_interval=interval, callbacks=[CutAt("log", 90)], **RUN)
    best = load_checkpoint(tmp_path / "cut" / "checkpoints" / "step-000000040")
    rows = [row for row in metric_rows(tmp_path / "cut") if row["step"] == 40 and "eval/return_mean" in row]
    assert [member["last_return"] for member in best.state["members"]] == [row["eval/return_mean"] for row in rows]
    tiny_run(tmp_path / "cut", checkpoint_interval=interval, resume=True, **RUN)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


class Counting(Callback):
    """Returns its own state, which it goes on to change."""

    def __init__(self):
        self.state = {"rows": 0}

    def on_log(self, step, rows):
        self.state["rows"] += 1

    def state_dict(self):
        return self.state

    def load_state_dict(self, state):
        self.state = state


def test_a_checkpoint_that_is_written_later_holds_what_was_then(tmp_path):
    with pytest.raises(Cut):
        tiny_run(tmp_path, checkpoint_interval=1000, callbacks=[Counting(), CutAt("log", 90)], **RUN)
    (entry,) = load_checkpoint(tmp_path / "checkpoints" / "step-000000040").state["callbacks"]
    assert entry["state"] == {"rows": 4}


def test_one_member_of_a_checkpoint_takes_its_own_evaluation_along(tmp_path):
    with pytest.raises(Cut):
        tiny_run(tmp_path, checkpoint_interval=10, callbacks=[CutAt("log", 60)], **RUN)
    first, second = (load_checkpoint(tmp_path / "checkpoints" / f"step-{step:09d}") for step in (40, 50))
    assert member_of(first, 1).state["evaluating"]["members"] == [0]
    assert "evaluating" not in member_of(second, 1).state
    assert first.state["evaluating"]["members"] == [0, 1]


def test_another_run_continues_from_a_checkpoint_with_an_evaluation_under_way(tmp_path):
    """And has a checkpoint of the evaluated step of its own, for the next that continues."""
    tiny_run(tmp_path / "whole", **RUN)
    with pytest.raises(Cut):
        tiny_run(tmp_path / "first", checkpoint_interval=10, callbacks=[CutAt("log", 60)], **RUN)
    start = load_checkpoint(tmp_path / "first" / "checkpoints" / "step-000000050")
    manager = ExperimentManager(make_config(run_values("iql", checkpoint_interval=10, **RUN)), tmp_path / "other")
    with pytest.raises(Cut):
        manager.train(checkpoint=start, callbacks=[CutAt("log", 70)])
    manager.train(resume=True)
    assert evaluated(tmp_path / "other") == evaluated(tmp_path / "whole")
    last = [load_checkpoint(checkpoints(tmp_path / run)[-1]).tensors for run in ("whole", "other")]
    assert all(torch.equal(last[0][name], last[1][name]) for name in last[0])


def test_without_an_environment_there_is_nothing_to_evaluate_in(tmp_path):
    reporter = Notes()
    tiny_run(tmp_path, env_id=None, dataset=small_dataset(), reporter=reporter, **RUN)
    assert any("`eval_mode` does nothing" in text for text in reporter.warnings)
