"""Going back to an older checkpoint and on from there: what came after is gone, once the new branch has a checkpoint."""

import shutil

import pytest
import torch

from rl_training.experiment import ExperimentManager
from rl_training.runtime import load_checkpoint
from rl_training.runtime.checkpoints import checkpoint
from rl_training.runtime.progress import LineReporter
from tests.helpers import Cut, CutAt, Notes, assert_same_run, call_cli, checkpoints, tiny_run

RUN = {"total_timesteps": 60, "checkpoint_interval": 40, "log_interval": 20, "eval_interval": 60}
SWITCH, OLD, NEW = "step-000000060", "env-000000040_step-000000100", "env-000000040_step-000000081"


@pytest.fixture(scope="module")
def finetuned(tmp_path_factory):
    """A finished finetune, and a function that copies it."""
    path = tmp_path_factory.mktemp("run")
    tiny_run(path, "td3_bc", **RUN)
    finetune(path, 40)

    def copy(target):
        shutil.copytree(path, target)
        return target

    return copy


def finetune(run, env_steps, reporter=None, callbacks=(), **block):
    manager, start = ExperimentManager.finetuning(run, {"env_steps": env_steps, **block})
    return manager.train(resume=True, checkpoint=start, reporter=reporter, callbacks=callbacks)


def again(run, **options):
    """Finetune again from the switch, with fewer gradient steps at the same environment step."""
    return finetune(run / "checkpoints" / SWITCH, 40, learning_starts=20, **options)


def names(run):
    return [path.name for path in checkpoints(run)]


def test_a_discarded_finetune_is_removed_and_not_mentioned_again(finetuned, tmp_path):
    run = finetuned(tmp_path / "run")
    assert names(run) == [SWITCH, OLD]
    said = Notes()
    again(run, reporter=said)
    assert f"going back from {OLD} to {SWITCH}; what came after is discarded" in said.warnings
    assert names(run) == [SWITCH, NEW]
    later = Notes()
    finetune(run, 50, reporter=later)
    assert not any("going back" in text for text in later.warnings)
    referenced = {segment["name"] for path in checkpoints(run) for segment in load_checkpoint(path).state.get("replay", ())}
    assert {path.name for path in (run / "replay").iterdir()} == referenced


def test_the_old_branch_is_there_until_the_new_one_has_a_checkpoint(finetuned, tmp_path):
    run = finetuned(tmp_path / "run")
    with pytest.raises(Cut):
        again(run, callbacks=[CutAt("log", 20)])
    assert names(run) == [SWITCH, OLD]
    ExperimentManager.open(run).train(resume=True)
    again(finetuned(tmp_path / "whole"))
    assert names(run) == [SWITCH, NEW]
    assert_same_run(tmp_path / "whole", run)


@pytest.mark.parametrize("point", ["save:discard", "save:before-latest", "save:after-latest"])
def test_dying_while_the_old_branch_is_removed(finetuned, tmp_path, monkeypatch, point):
    def die(name):
        if name == point:
            raise Cut

    run = finetuned(tmp_path / "run")
    with monkeypatch.context() as patched:
        patched.setattr(checkpoint, "fault_point", die)
        with pytest.raises(Cut):
            again(run)
    ExperimentManager.open(run).train(resume=True)
    again(finetuned(tmp_path / "whole"))
    assert names(run) == [SWITCH, NEW]
    assert_same_run(tmp_path / "whole", run)


@pytest.mark.parametrize("best", [2, 3], ids=["saved anew", "removed"])
def test_the_best_is_never_a_discarded_one(tmp_path, best):
    def save(store, step, best):
        store.save({"step": step}, {"x": torch.zeros(1)}, {"step": step}, best=best)

    store = checkpoint.CheckpointStore(tmp_path, keep=5)
    for step in (1, 2, 3):
        save(store, step, best=step == best)
    store.rewind(store.path({"step": 1}))
    save(store, 2, best=False)
    assert store.names() == ["step-000000001", "step-000000002"]
    assert "step-000000001" in (tmp_path / "best.json").read_text()
    save(store, 3, best=False)
    assert len(store.names()) == 3  # only what came before the first save was discarded


def test_what_to_do_is_said_and_works(finetuned, tmp_path, capsys):
    run = finetuned(tmp_path / "run")
    spent = call_cli(capsys, "resume", run)
    assert "has spent its budget; go on with `rl-training finetune RUN --env-steps N`, N above 40" in spent.stderr
    larger = call_cli(capsys, "resume", run, "--total-timesteps", "90", code=2)
    assert "total_timesteps was 60, is 90; go on with `rl-training finetune RUN --env-steps N`" in larger.stderr
    other = call_cli(capsys, "finetune", run, "--env-steps", "50", "--set", "learning_starts=20", code=2)
    assert f"`rl-training finetune {run / 'checkpoints' / SWITCH} --env-steps N --run-dir NEW`" in other.stderr
    options = ["--env-steps", "40", "--set", "learning_starts=20", "--run-dir", tmp_path / "new"]
    call_cli(capsys, "finetune", run / "checkpoints" / SWITCH, *options)
    assert NEW in names(tmp_path / "new")
    assert names(run) == [SWITCH, OLD]
    call_cli(capsys, "finetune", run, "--env-steps", "50")
    assert "env-000000050_step-000000110" in names(run)


def test_each_phase_counts_in_its_own_unit(finetuned, tmp_path, capsys):
    tiny_run(tmp_path / "both", "td3_bc", finetune={"env_steps": 30}, reporter=LineReporter(), **RUN)
    said = [line for line in capsys.readouterr().err.splitlines() if line.startswith("training from")]
    assert said == ["training from step 0 to 60", "training from env step 0 to 30"]
    finetune(finetuned(tmp_path / "run"), 50, reporter=LineReporter())
    assert "training from env step 40 to 50\n" in capsys.readouterr().err
