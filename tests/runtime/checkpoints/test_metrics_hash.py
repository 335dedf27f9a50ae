"""The part of the metrics that a checkpoint vouches for: a change of it is noticed when the run goes on."""

import pytest

from rl_training.errors import CheckpointError
from rl_training.runtime.checkpoints.checkpoint import load_checkpoint, write_checkpoint
from rl_training.storage import sha256
from tests.helpers import Cut, CutAt, Notes, assert_same_run, checkpoints, tiny_run


def flip(run_dir, place):
    path = run_dir / "metrics.jsonl"
    data = bytearray(path.read_bytes())
    data[place] ^= 1
    path.write_bytes(data)


@pytest.fixture
def cut(tmp_path):
    """A run that died after its third checkpoint."""
    with pytest.raises(Cut):
        tiny_run(tmp_path / "run", callbacks=[CutAt("checkpoint", 90)])
    return tmp_path / "run"


def test_a_checkpoint_holds_the_hash_of_the_metrics_before_it(cut):
    for path in checkpoints(cut):
        length, recorded = load_checkpoint(path).metrics
        assert recorded == sha256((cut / "metrics.jsonl").read_bytes()[:length])


def test_a_change_after_an_older_checkpoint_goes_back_to_it(cut, finished):
    notes = Notes()
    flip(cut, load_checkpoint(checkpoints(cut)[-1]).metrics[0] - 5)
    tiny_run(cut, resume=True, reporter=notes)
    assert any("metrics.jsonl: its first" in text and "falling back" in text for text in notes.warnings)
    assert_same_run(finished().run_dir, cut)


def test_a_change_before_every_checkpoint_is_refused(cut):
    flip(cut, 20)
    with pytest.raises(CheckpointError, match=r"metrics.jsonl: its first .* go on from the checkpoint in a new --run-dir"):
        tiny_run(cut, resume=True)


def test_a_checkpoint_without_the_hash_is_continued(cut, finished):
    """As the first versions wrote it."""
    for path in checkpoints(cut):
        old = load_checkpoint(path)
        state = {name: value for name, value in old.state.items() if name != "metrics_sha256"}
        write_checkpoint(path, old.tensors, state)
    tiny_run(cut, resume=True)
    assert_same_run(finished().run_dir, cut)
