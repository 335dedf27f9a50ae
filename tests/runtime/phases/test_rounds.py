"""Rounds of updates: by default REDQ and RLPD update the policy once per round, with its last update, however long it is."""

import pytest
import torch

from rl_training.algorithms.learner import Rounds
from rl_training.config.loading import make_config
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from rl_training.runtime.execution import compiled
from rl_training.runtime.execution.compiled import CompiledSteps
from tests.contract import make_learner
from tests.helpers import Cut, CutAt, assert_same_run, checkpoints, metric_rows, mode_of, tiny_run

STARTS = 9  # the first round follows the ninth environment step
SHORT = {"total_timesteps": 20, "eval_interval": 100, "checkpoint_interval": 12, "log_interval": 5, "eval_episodes": 1}


@pytest.fixture(autouse=True)
def uncompiled(monkeypatch):
    """Traced steps without the compiler, which takes seconds for each."""
    monkeypatch.setattr(compiled, "compile_traced", lambda traced: traced.graph)


def run(path, algo, engine="eager", *, pretraining=0, resume=False, callbacks=(), **kwargs):
    own = {"offline_pretrain_updates": pretraining} if algo == "rlpd" else {}
    kwargs = {"learning_starts": STARTS, "hidden_sizes": [4], "batch_size": 8, **own, **kwargs}
    options = {"engine": engine, "resume": resume, "callbacks": callbacks}
    tiny_run(path, algo, **SHORT, **options, algo_kwargs=kwargs)
    assert mode_of(path) == engine


def updates(path, group="actor"):
    """How often a group has been trained."""
    return load_checkpoint(checkpoints(path)[-1]).tensors[f"adam/count/{group}"].item()


@pytest.mark.parametrize("engine", ["eager", "compile"])
@pytest.mark.parametrize("ratio", [1, 5, 20])
@pytest.mark.parametrize("algo", ["redq", "rlpd"])
def test_by_default_there_is_one_update_of_the_policy_per_environment_step(algo, ratio, engine, tmp_path):
    run(tmp_path, algo, engine, gradient_updates_per_step=ratio)
    rounds = SHORT["total_timesteps"] - STARTS + 1
    assert (updates(tmp_path, "critic"), updates(tmp_path)) == (ratio * rounds, rounds)


@pytest.mark.parametrize(("ratio", "engine"), [(5, "eager"), (20, "eager"), (20, "compile")])
def test_rounds_begin_where_the_pretraining_ends(ratio, engine, tmp_path):
    """Pretraining has no rounds, so each of its steps trains the policy."""
    run(tmp_path, "rlpd", engine, pretraining=13, gradient_updates_per_step=ratio)
    assert updates(tmp_path) == 13 + 12
    assert updates(tmp_path, "critic") == 13 + ratio * 12


def test_the_policy_is_trained_with_the_last_update_of_a_round(tmp_path):
    from rl_training.algorithms.rlpd import RLPD

    due = []
    original = RLPD.loss

    def spy(learner, batch, step):
        due.append("actor" in step.due)
        return original(learner, batch, step)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RLPD, "loss", spy)
        run(tmp_path, "rlpd", pretraining=3, gradient_updates_per_step=5)
    assert due == [True] * 3 + [False, False, False, False, True] * 12


@pytest.mark.parametrize(("algo", "ratio", "interval", "count"), [("redq", 5, 20, 3), ("rlpd", 5, 1, 60), ("rlpd", 1, 5, 2)])
def test_a_number_counts_gradient_steps(algo, ratio, interval, count, tmp_path):
    run(tmp_path, algo, gradient_updates_per_step=ratio, actor_interval=interval)
    assert updates(tmp_path) == count


def test_a_round_may_follow_several_environment_steps(tmp_path):
    run(tmp_path, "redq", gradient_updates_per_step=3, train_frequency=4)
    assert (updates(tmp_path, "critic"), updates(tmp_path)) == (9, 3)  # after steps 12, 16 and 20


@pytest.mark.parametrize("engine", ["eager", "compile"])
def test_cut_and_resumed_equals_uninterrupted(engine, tmp_path):
    run(tmp_path / "whole", "rlpd", engine, pretraining=13, gradient_updates_per_step=7)
    with pytest.raises(Cut):
        run(tmp_path / "cut", "rlpd", engine, pretraining=13, gradient_updates_per_step=7, callbacks=[CutAt("log", 15)])
    run(tmp_path / "cut", "rlpd", engine, pretraining=13, gradient_updates_per_step=7, resume=True)
    assert_same_run(tmp_path / "whole", tmp_path / "cut")


def test_null_is_every_step_offline_and_once_per_round_in_a_finetune(tmp_path):
    block = {"env_steps": 10, "gradient_updates_per_step": 4}
    kwargs = {"actor_interval": None, "hidden_sizes": [4], "batch_size": 8}
    tiny_run(tmp_path, "cql", **{**SHORT, "total_timesteps": 21}, algo_kwargs=kwargs, finetune=block)
    assert (updates(tmp_path, "critic"), updates(tmp_path)) == (21 + 40, 21 + 10)
    assert metric_rows(tmp_path)[-1]["step"] == 61


def test_a_delayed_policy_of_a_finetune_counts_gradient_steps(tmp_path):
    block = {"env_steps": 10, "gradient_updates_per_step": 3}
    tiny_run(tmp_path, "td3_bc", **{**SHORT, "total_timesteps": 21}, finetune=block)
    assert updates(tmp_path) == (21 + 30) // 2


def test_an_offline_learner_takes_null_or_a_number():
    learner = make_learner("cql", actor_interval=None)
    assert all("actor" in learner.due_groups(step) for step in range(5))
    learner.rounds = Rounds(first=3, length=4)
    assert [step for step in range(3, 15) if "actor" in learner.due_groups(step)] == [6, 10, 14]
    assert make_config({"algo": "sac", "env_id": "Pendulum-v1"}).algo_kwargs.actor_interval == 1


class _Steps(CompiledSteps):
    """What a GPU would run, without one."""

    def __init__(self, learner, longest):
        self.learner, self.longest, self.device, self._replays = learner, longest, torch.device("cuda"), {}


@pytest.mark.parametrize("first", [0, 4999])
def test_blocks_on_a_gpu_begin_with_a_round(first):
    """So that a round of twenty updates is one graph, wherever the rounds begin."""
    learner = make_learner("redq", gradient_updates_per_step=20)
    learner.rounds, learner.step = Rounds(first, 20), first + 40
    steps = _Steps(learner, 20)._next_steps(20, report=False)
    assert ["actor" in variant.due for variant in steps] == [False] * 19 + [True]
    learner.step += 1
    assert len(_Steps(learner, 20)._next_steps(20, report=False)) == 1
