"""Checkpoints that somebody has edited, with every hash made right: one line and exit 4, or no harm; never a traceback."""

import re

import pytest

from rl_training.data import load_dataset
from rl_training.errors import CheckpointError
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint
from tests.helpers import call_cli, checkpoints
from tests.runtime.checkpoints.sealed_edits import (
    KINDS,
    VALUES,
    Edit,
    apply,
    copied,
    drawn,
    interrupted_run,
    resume_in_place,
    try_edits,
)


@pytest.fixture(scope="module")
def runs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    return {kind: interrupted_run(folder / kind, kind) for kind in KINDS}


@pytest.mark.parametrize(
    ("kind", "path", "value", "words"),
    [
        ("solo", ("callbacks", 0, "state", "best"), [], "the callback EarlyStopping cannot take its state"),
        ("solo", ("metrics_bytes",), -1, r"`metrics_bytes` = -1 is not legal: must be an integer >= 0"),
        ("solo", ("execution", "mode"), 3, r"`execution.mode` = 3 is not legal"),
        ("population", ("members", 1), None, r"`members.1` = None is not legal"),
        ("population", ("callbacks", 0, "state", "going_on"), [None], "the callback Pruning cannot take its state"),
        ("online", ("replay_ready", 0), 2**31, "`replay_from` or `replay_ready` is beyond `env_step`"),
        ("online", ("episodes", 0, "length"), 3, "6 actions, and the episode of member 0 has 3"),
        ("finetune", ("config", "algo_kwargs", "hidden_sizes"), {}, "in its config: in `algo_kwargs.hidden_sizes`"),
        ("beside", ("evaluating", "counters", "step"), "../../x", r"`evaluating.counters.step` = '../../x'"),
        ("held_out", ("held_out", "training"), "x", r"`held_out.training` = 'x'"),
    ],
)
def test_a_value_that_no_run_writes_is_refused_by_name(runs, tmp_path, capsys, kind, path, value, words):
    run = tmp_path / "run"
    apply(Edit(kind, "state.json", path, VALUES.index(value)), copied(runs[kind], run))
    done = call_cli(capsys, "resume", run, code=4)
    *_, line = done.stderr.splitlines()
    assert re.match(f"error: .*{words}", line)


def test_a_manifest_without_files_or_with_impossible_sizes_is_refused(runs, tmp_path):
    for path, value in ((("files",), None), (("files", "state.json", "bytes"), 10**30)):
        checkpoint = copied(runs["solo"], tmp_path / "run")
        apply(Edit("solo", "manifest.json", path, VALUES.index(value)), checkpoint)
        with pytest.raises(CheckpointError):
            load_checkpoint(checkpoint)


def test_a_checkpoint_under_another_name_is_refused(runs, tmp_path):
    run = tmp_path / "run"
    path = copied(runs["solo"], run)
    path.rename(path.with_name("step-000000030"))
    with pytest.raises(CheckpointError, match="holds step-000000020, so it is not what its name says"):
        load_checkpoint(checkpoints(run)[-1])


def test_a_replay_without_its_rows_is_no_data(runs, tmp_path):
    run = tmp_path / "run"
    apply(Edit("finetune", "state.json", ("replay",), VALUES.index([])), copied(runs["finetune"], run))
    with pytest.raises(CheckpointError, match="its replay holds .* transitions, which are not those of 10 steps"):
        load_dataset(run)


def test_a_few_edits_are_refused_or_harmless(runs, tmp_path):
    assert try_edits(drawn(runs, 36, seed=2), runs, tmp_path / "run", [resume_in_place]) == (36, [])


@pytest.mark.faults
def test_a_thousand_edits_are_refused_or_harmless(runs, tmp_path, fault_count):
    good, bad = try_edits(drawn(runs, 1000), runs, tmp_path / "run")
    print(*bad, sep="\n")  # shown if any is left
    fault_count("sealed edits", good, 1000)
