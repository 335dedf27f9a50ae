"""Callbacks: functions and objects, and stopping from every hook, exactly under resume."""

import os
import signal

import numpy as np
import pytest

import rl_training
from rl_training import Callback, EarlyStopping
from rl_training.errors import ConfigError, StoppedBySignal
from rl_training.runtime import load_checkpoint
from rl_training.runtime.checkpoints.member import member_of
from tests.helpers import Cut, CutAt, assert_same_run, metric_rows, small_dataset, tiny_run


class StopAt(Callback):
    """Answers a hook at a step, and says nothing otherwise."""

    def __init__(self, hook, step, answer=False):
        self.step, self.answer = step, answer
        setattr(self, hook, self._maybe)

    def _maybe(self, step, *_):
        return self.answer if not isinstance(step, int) or step == self.step else None


def evaluated_steps(run_dir, member=0):
    return [row["step"] for row in metric_rows(run_dir) if "eval/return_mean" in row and row["member"] == member]


def test_a_function_gets_every_metric_row(tmp_path):
    seen = []
    data = small_dataset(rows=300)
    tiny_run(tmp_path / "data", env_id=None, dataset=data, callbacks=[lambda step, rows: seen.append((step, rows))])
    assert [row for _, rows in seen for row in rows] == metric_rows(tmp_path / "data")
    assert all(row["step"] == step for step, rows in seen for row in rows)
    assert any("validation/critic_loss" in row for _, rows in seen for row in rows)
    seen.clear()
    tiny_run(tmp_path / "env", seeds=[0, 1], callbacks=[lambda step, rows: seen.append((step, rows))])
    assert [row for _, rows in seen for row in rows] == metric_rows(tmp_path / "env")
    assert any("eval/return_mean" in row for _, rows in seen for row in rows)
    assert all(len(rows) == 2 for _, rows in seen)


@pytest.mark.parametrize(
    ("hook", "step", "last"),
    [("on_log", 50, 50), ("on_metrics", 70, 70), ("on_evaluation", 40, 40), ("on_checkpoint", 30, 30), ("on_start", 0, 0)],
)
@pytest.mark.parametrize("seeds", [None, [0, 1]], ids=["solo", "population"])
def test_false_from_any_hook_ends_the_run_evaluated_and_saved(hook, step, last, seeds, tmp_path):
    """Evaluations are due every 40 steps, checkpoints every 30: the end has both, each once."""
    result = tiny_run(tmp_path, seeds=seeds, callbacks=[StopAt(hook, step)])
    assert result.step == last
    assert {(record.status, record.status_step) for record in result.members} == {("stopped", last)}
    assert evaluated_steps(tmp_path)[-1] == last
    assert evaluated_steps(tmp_path).count(last) == 1
    saved = load_checkpoint(result.checkpoint)
    assert saved.step == last
    assert {record["status"] for record in saved.state["members"]} == {"stopped"}
    assert saved.state["stopping"] == []
    events = [row for row in metric_rows(tmp_path) if row.get("event") == "stopped"]
    assert [row["member"] for row in events] == list(range(len(result.members)))


@pytest.mark.parametrize("hook", ["on_log", "on_metrics", "on_evaluation"])
def test_some_members_stop_and_the_others_go_on(hook, tmp_path):
    result = tiny_run(tmp_path, seeds=[0, 1, 2], callbacks=[StopAt(hook, 80, answer=np.array([1, 7]))])
    assert [record.status for record in result.members] == ["training", "stopped", "training"]
    assert evaluated_steps(tmp_path, member=0) == [40, 80, 120]
    assert evaluated_steps(tmp_path, member=1) == [40, 80]
    assert result.members[1].last_return is not None


def test_a_member_that_stops_between_two_evaluations_is_evaluated_as_it_stops(tmp_path):
    result = tiny_run(tmp_path, seeds=[0, 1], callbacks=[StopAt("on_log", 50, answer=(1,))])
    assert evaluated_steps(tmp_path, member=1) == [40, 50]
    assert result.members[1].status_step == 50


@pytest.mark.parametrize("answer", [None, True, (), [], set(), np.True_], ids=str)
def test_anything_else_goes_on(answer, tmp_path):
    result = tiny_run(tmp_path, total_timesteps=40, callbacks=[StopAt("on_metrics", 10, answer)])
    assert (result.step, result.members[0].status) == (40, "training")


@pytest.mark.parametrize("answer", [1, 0.5, "stop", ["0"], [0.0], object()], ids=lambda answer: type(answer).__name__)
def test_an_answer_that_means_nothing_is_refused(answer, tmp_path):
    with pytest.raises(ConfigError, match="on_log of StopAt returned .*: return False to stop, the members to stop, or None"):
        tiny_run(tmp_path, callbacks=[StopAt("on_log", 10, answer)])


STOPS = [("on_log", 50, [0]), ("on_metrics", 70, False)]


def stopping_run(path, callbacks=(), *, resume=False):
    stops = [StopAt(*stop) for stop in STOPS]
    return tiny_run(path, seeds=[0, 1], callbacks=[*stops, *callbacks], resume=resume)


def test_stops_are_exact_under_resume(tmp_path):
    """Cut before the stop, between the row that stopped a member and its evaluation, and after it."""
    stopping_run(tmp_path / "whole")
    for number, place in enumerate([("checkpoint", 30), ("log", 50), ("evaluation", 50), ("checkpoint", 60)]):
        with pytest.raises(Cut):
            stopping_run(tmp_path / "cut", [CutAt(*place)], resume=number > 0)
    stopping_run(tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


@pytest.mark.parametrize("step", [50, 70])
def test_a_signal_after_the_row_that_stops_keeps_the_stop(step, tmp_path):
    """The checkpoint is written between the row and the evaluation, so the stop is in it; the callback is not asked again."""
    stopping_run(tmp_path / "whole")

    def interrupt(now, rows):
        if now == step and "train/actor_loss" in rows[0]:
            os.kill(os.getpid(), signal.SIGTERM)

    with pytest.raises(StoppedBySignal):
        stopping_run(tmp_path / "cut", [interrupt])
    saved = load_checkpoint(sorted((tmp_path / "cut" / "checkpoints").glob("step-*"))[-1])
    assert saved.state["stopping"] == ([0] if step == 50 else [1])
    assert member_of(saved, 1).state["stopping"] == ([] if step == 50 else [0])
    stopping_run(tmp_path / "cut", resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_stopping_online_and_in_a_finetune(tmp_path):
    result = tiny_run(tmp_path / "sac", "sac", callbacks=[lambda step, rows: step < 50])
    assert result.env_step == 50
    later = {"finetune": {"env_steps": 60}, "total_timesteps": 40}
    online = StopAt("on_checkpoint", 30)
    result = tiny_run(tmp_path / "iql", callbacks=[lambda step, rows: "env_step" not in rows[0] or step < 20], **later)
    assert result.env_step == 20
    result = tiny_run(tmp_path / "two", callbacks=[StopAt("on_log", 50), online], **later)
    assert result.step == 30  # of the offline phase: that hook does not ask which phase it is


def test_functions_and_objects_mix_in_python():
    seen = []
    options = {"dataset": {"kind": "random", "size": 400}, "hidden_sizes": [16, 16], "batch_size": 32}
    model = rl_training.IQL("Pendulum-v1", log_interval=10, eval_interval=20, eval_episodes=1, **options)
    callbacks = [EarlyStopping(threshold=1e9), lambda step, rows: seen.append(step), lambda step, rows: step < 30]
    assert model.learn(100, callback=callbacks) is model
    assert (model.num_timesteps, seen) == (30, [10, 20, 20, 30, 30])
    assert model.policy.members[0].status == "stopped"


@pytest.mark.parametrize(
    ("callback", "words"),
    [
        (EarlyStopping, "must be a Callback or a list of them; functions f\\(step, rows\\) count as such"),
        ("stop", "must be a Callback or a list of them"),
        ([3], "callback = 3 is not legal"),
        (lambda: False, "a function is called as f\\(step, rows\\)"),
        (lambda step, rows, extra: False, "a function is called as f\\(step, rows\\)"),
    ],
    ids=["class", "text", "number", "no arguments", "three arguments"],
)
def test_what_is_no_callback_is_refused_before_training(callback, words, tmp_path):
    model = rl_training.IQL("Pendulum-v1", dataset={"kind": "random", "size": 400}, run_dir=tmp_path / "run")
    with pytest.raises(ConfigError, match=words):
        model.learn(10, callback=callback)
    assert not (tmp_path / "run").exists()
