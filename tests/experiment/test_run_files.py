"""What lies in a run directory may come from a stranger: links are not followed, pipes not waited for, litter is removed."""

import json
import os
import signal
from contextlib import contextmanager
from pathlib import Path

import pytest

from rl_training.config.loading import load_config
from rl_training.errors import CheckpointError, ConfigError, RLTrainingError, StorageError
from rl_training.experiment.manager import ExperimentManager
from rl_training.experiment.run_record import run_status
from rl_training.runtime.checkpoints.checkpoint import CheckpointStore
from rl_training.runtime.checkpoints.lock import is_in_use
from rl_training.storage import read_regular_file, replace_file

_SMALL = ["algo_kwargs.dataset.size=300", "algo_kwargs.hidden_sizes=[8]", "eval_episodes=1", "eval_interval=20"]


def manager(path, steps=20, settings=()):
    config = load_config("bc/pendulum", [*_SMALL, f"total_timesteps={steps}", *settings])
    return ExperimentManager(config, path)


@contextmanager
def within(seconds):
    """Turn waiting for ever into a failure."""

    def late(*_):
        raise TimeoutError("it waited")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


@pytest.mark.parametrize("name", ["run.lock", "metrics.jsonl", "timings.jsonl"])
def test_no_file_outside_the_run_is_written_through_a_link(tmp_path, name):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / name).symlink_to(victim)
    with pytest.raises((StorageError, ConfigError)):
        manager(tmp_path / "run").train()
    assert victim.read_text() == "precious"


@pytest.mark.parametrize("name", ["run.lock", "metrics.jsonl", "timings.jsonl", "config.yaml"])
def test_a_pipe_in_place_of_a_file_is_refused_not_waited_for(tmp_path, name):
    manager(tmp_path / "run").train()
    (tmp_path / "run" / name).unlink()
    os.mkfifo(tmp_path / "run" / name)
    with within(120), pytest.raises(RLTrainingError, match="not a plain file"):
        ExperimentManager.open(tmp_path / "run").train(resume=True)
    assert is_in_use(tmp_path / "run") in (False, None)


def test_a_pipe_in_place_of_the_record_is_no_run_and_is_replaced_by_the_next(tmp_path):
    manager(tmp_path / "run").train()
    (tmp_path / "run" / "run.json").unlink()
    os.mkfifo(tmp_path / "run" / "run.json")
    with within(60):
        assert run_status(tmp_path / "run") is None
        manager(tmp_path / "run").train(resume=True)
    assert run_status(tmp_path / "run") == "finished"


def test_a_file_that_is_replaced_is_not_written_through_a_link_of_its_stage(tmp_path):
    victim = tmp_path / "victim"
    victim.write_text("precious")
    (tmp_path / f".run.json.tmp-{os.getpid()}").symlink_to(victim)
    replace_file(tmp_path / "run.json", b"new")
    assert victim.read_text() == "precious"
    assert (tmp_path / "run.json").read_bytes() == b"new"


def test_a_file_that_is_too_large_is_refused_unread(tmp_path):
    with (tmp_path / "run.json").open("wb") as stream:
        stream.truncate(2**40)  # sparse
    assert run_status(tmp_path) is None
    with pytest.raises(CheckpointError, match="at most 1,000 are allowed"):
        read_regular_file(tmp_path / "run.json", 1000)


def test_litter_of_a_killed_process_is_removed_at_the_next_start(tmp_path):
    (tmp_path / "run").mkdir()
    for name in (".run.json.tmp-999999999", ".config.yaml.tmp-999999999"):
        (tmp_path / "run" / name).write_text("half")
    (tmp_path / "run" / "notes.tmp-7").write_text("of the user")
    manager(tmp_path / "run").train()
    assert [path.name for path in (tmp_path / "run").iterdir() if ".tmp-" in path.name] == ["notes.tmp-7"]


def saved(store, count, **options):
    state = {"step": count, "replay": []}
    return store.save({"step": count}, {}, state, **{"best": False, **options})


@pytest.mark.parametrize("kind", ["file", "link", "guarded"])
def test_an_old_checkpoint_that_cannot_be_removed_ends_no_run(tmp_path, monkeypatch, kind):
    told = []
    store = CheckpointStore(tmp_path, 2, told.append)
    store.prepare()
    stray = tmp_path / "step-000000001"
    if kind == "file":
        stray.write_text("stray")
    elif kind == "link":
        (tmp_path / "elsewhere").mkdir()
        stray.symlink_to(tmp_path / "elsewhere")
    else:
        saved(store, 1)

        rename = Path.rename

        def refused(path, target):
            if path == stray:
                raise PermissionError(1, "Operation not permitted")
            return rename(path, target)

        monkeypatch.setattr(Path, "rename", refused)
    for step in (10, 20, 30, 40):
        saved(store, step)
    assert store.names()[-2:] == ["step-000000030", "step-000000040"]
    assert len([text for text in told if "step-000000001" in text]) == 1  # once, though tried at every save
    if kind == "link":
        assert (tmp_path / "elsewhere").is_dir()


def test_a_kill_while_removing_leaves_no_half_checkpoint(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path, 2)
    store.prepare()
    for step in (10, 20):
        saved(store, step)

    def killed(point):
        if point == "save:remove":
            raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr("rl_training.runtime.checkpoints.checkpoint.fault_point", killed)
        with pytest.raises(KeyboardInterrupt):
            saved(store, 30)
    assert store.names() == ["step-000000020", "step-000000030"]
    store.prepare()
    assert not list(tmp_path.glob("*.tmp-*"))


@pytest.mark.parametrize("pointer", ["best", "latest"])
def test_nothing_is_removed_while_a_pointer_is_damaged(tmp_path, pointer):
    told = []
    store = CheckpointStore(tmp_path, 2, told.append)
    store.prepare()
    saved(store, 10, best=True)
    saved(store, 20)
    text = (tmp_path / f"{pointer}.json").read_bytes()
    for place in range(len(text)):
        for bit in range(8):
            damaged = bytes([*text[:place], text[place] ^ (1 << bit), *text[place + 1 :]])
            (tmp_path / f"{pointer}.json").write_bytes(damaged)
            named = store.pointed(pointer)
            assert named in (None, json.loads(text)["checkpoint"])
            if named is None and bit == 0:
                store._prune()
                assert "step-000000010" in store.names()
    assert told
