"""Checkpoints: whole or absent, verified to the last bit, never executed; chosen by name, and kept at every kill.

That every algorithm evaluates and predicts from one alone is in its contract (`algorithms/test_contract.py`).
"""

import errno
import json
import os
import pickle
import shutil
import signal
import struct
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from rl_training import faults, storage
from rl_training.api.policy import Policy
from rl_training.data.transforms import Transforms
from rl_training.errors import CheckpointError, ConfigError, StorageError
from rl_training.runtime import load_checkpoint
from rl_training.runtime.checkpoints.checkpoint import CheckpointStore, write_checkpoint
from rl_training.storage import canonical_json
from tests.helpers import call_cli, checkpoints, generator, tiny_run

MEMBER = {"seed": 0, "status": "training", "status_step": None, "last_return": None, "best_return": None, "best_step": None}
EXECUTION = {"device": "cpu", "mode": "eager", "precision": "float32", "deterministic": True, "threads": 1}
STATE = {
    **{"algo": "iql", "config": {"algo": "iql"}, "seeds": [0], "step": 5, "members": [MEMBER]},
    **{"hooks_pending": False, "best_mean": None, "callbacks": [], "metrics_bytes": 0, "dataset_fingerprint": None},
    "spaces": {"observation_dim": 1, "action_dim": 1, "action_low": [-1.0], "action_high": [1.0]},
    "environment": {**EXECUTION, "torch": "2.13.0", "machine": "x86_64"},  # the name in the first versions
}


@pytest.fixture
def checkpoint(finished, tmp_path):
    return shutil.copytree(finished().checkpoint, tmp_path / "step-000000120")


@pytest.mark.parametrize(
    ("observations", "message"),
    [
        ([1.0, 2.0], r"shape \(2,\); \(3,\) or \(batch, 3\)"),
        (np.zeros((0, 3)), r"shape \(0, 3\)"),
        (np.zeros((2, 2, 3)), r"shape \(2, 2, 3\)"),
        ([1.0, float("nan"), 0.0], "NaN"),
    ],
)
def test_bad_observations_are_refused(finished, observations, message):
    with pytest.raises(ConfigError, match=message):
        Policy.load(finished().run_dir).predict(observations)


def test_the_state_holds_no_time_host_or_pid(finished, tmp_path):
    again = tiny_run(tmp_path / "again").checkpoint
    for name in ("state.json", "state.safetensors", "manifest.json"):
        assert (finished().checkpoint / name).read_bytes() == (again / name).read_bytes()


def test_every_flipped_bit_is_refused(checkpoint):
    draw = generator(1)
    for name in ("manifest.json", "state.json", "state.safetensors"):
        path = checkpoint / name
        data = path.read_bytes()
        for position in draw.integers(0, len(data) * 8, 100):
            flipped = bytearray(data)
            flipped[position // 8] ^= 1 << (position % 8)
            path.write_bytes(flipped)
            with pytest.raises(CheckpointError, match=name.split(".")[0]):
                load_checkpoint(checkpoint)
        path.write_bytes(data)
    assert load_checkpoint(checkpoint).step == 120


def test_truncated_missing_and_added_files_are_refused(checkpoint):
    for name in ("manifest.json", "state.json", "state.safetensors"):
        path = checkpoint / name
        data = path.read_bytes()
        for cut in [0, *range(1, len(data), max(len(data) // 20, 1))]:
            path.write_bytes(data[:cut])
            with pytest.raises(CheckpointError, match=name):
                load_checkpoint(checkpoint)
        path.unlink()
        with pytest.raises(CheckpointError):
            load_checkpoint(checkpoint)
        path.write_bytes(data)
    (checkpoint / "more").write_text("x")
    with pytest.raises(CheckpointError, match="more"):
        load_checkpoint(checkpoint)


def test_links_and_pipes_are_refused(checkpoint, tmp_path):
    original = checkpoint / "state.json"
    moved = original.rename(tmp_path / "state.json")
    original.symlink_to(moved)
    with pytest.raises(CheckpointError, match="is not a plain file"):
        load_checkpoint(checkpoint)
    original.unlink()
    os.mkfifo(original)
    with pytest.raises(CheckpointError, match="is not a plain file"):
        load_checkpoint(checkpoint)


def test_pickles_under_our_names_run_nothing(tmp_path):
    canary = tmp_path / "canary"

    class Bomb:
        def __reduce__(self):
            return (os.system, (f"touch {canary}",))

    for name in ("manifest.json", "state.json", "state.safetensors"):
        folder = tmp_path / f"bomb-{name}"
        folder.mkdir()
        (folder / "manifest.json").write_bytes(b"{}")
        (folder / name).write_bytes(pickle.dumps(Bomb()))
        with pytest.raises(CheckpointError):
            load_checkpoint(folder)
    path = tmp_path / "whole"
    path.mkdir()
    storage.write_files(path, {"state.safetensors": pickle.dumps(Bomb()), "state.json": canonical_json(STATE)}, 1)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(path)
    assert not canary.exists()


def rewrite(checkpoint, change, tensors=None):
    """The checkpoint again, with valid hashes, after a change of its state."""
    loaded = load_checkpoint(checkpoint)
    state = json.loads(json.dumps(loaded.state))
    change(state)
    shutil.rmtree(checkpoint)
    return write_checkpoint(checkpoint, tensors or loaded.tensors, state)


@pytest.mark.parametrize(
    "change",
    [
        lambda s: s.update(algo="os.system"),
        lambda s: s.update(algo="../x"),
        lambda s: s.update(algo="__class__"),
        lambda s: s["config"].update(algo="os.system"),
        lambda s: s["config"].update(unknown=1),
        lambda s: s["spaces"].update(observation_dim=-1),
        lambda s: s["spaces"].update(action_dim=2**63),
        lambda s: s.update(seeds=["x"]),
        lambda s: s.update(members="none"),
        lambda s: s.pop("spaces"),
        lambda s: s["config"]["algo_kwargs"].update(hidden_sizes=[17, 16]),
    ],
)
def test_hostile_metadata_is_refused(checkpoint, change):
    rewrite(checkpoint, change)
    with pytest.raises(CheckpointError):
        Policy.load(checkpoint).predict([1.0, 0.0, 0.0])


def test_a_wrong_shape_is_named(checkpoint):
    tensors = load_checkpoint(checkpoint).tensors
    tensors["actor/0/weight"] = torch.zeros(1, 4, 16)
    rewrite(checkpoint, lambda s: None, tensors)
    with pytest.raises(CheckpointError, match=r"`actor/0/weight` is torch.float32 \(1, 4, 16\) in the checkpoint"):
        Policy.load(checkpoint)


@pytest.mark.parametrize("text", ['{"a": 1, "a": 2}', '{"a": NaN}', "[" * 20000, "[]", "\xff"])
def test_strange_json_is_refused(text):
    with pytest.raises(CheckpointError):
        storage.parse_json(text.encode("latin-1"), "x")


def test_a_header_bomb_is_refused(tmp_path):
    path = tmp_path / "bomb"
    path.mkdir()
    header = b'{"x":{"dtype":"F32","shape":[1000000000000],"data_offsets":[0,4]}}'
    data = struct.pack("<Q", len(header)) + header + b"\0" * 4
    storage.write_files(path, {"state.safetensors": data, "state.json": canonical_json(STATE)}, 1)
    with pytest.raises(CheckpointError, match="cannot be read"):
        load_checkpoint(path)


def test_a_newer_format_says_so(checkpoint):
    loaded = storage.read_files(checkpoint, 1)
    shutil.rmtree(checkpoint)
    checkpoint.mkdir()
    storage.write_files(checkpoint, loaded, 2)
    with pytest.raises(CheckpointError, match="format 2, not .*format 1"):
        load_checkpoint(checkpoint)


def fill(store, steps, value=0.0):
    for step in steps:
        tensors = {"x": torch.full((50,), float(step) + value), **Transforms.identity(1).tensors()}
        store.save({"step": step}, tensors, {**STATE, "step": step}, best=step == 1)


def test_old_checkpoints_are_forgotten_but_never_the_best(tmp_path):
    store = CheckpointStore(tmp_path, keep=2)
    store.prepare()
    fill(store, range(1, 6))
    assert store.names() == ["step-000000001", "step-000000004", "step-000000005"]
    assert store.load().step == 5
    assert store.load("best").step == 1


def test_a_run_that_goes_on_passes_over_a_damaged_checkpoint_with_a_warning(tmp_path):
    said = []
    store = CheckpointStore(tmp_path, keep=3, warn=said.append)
    store.prepare()
    fill(store, (1, 2, 3))
    (tmp_path / "step-000000003" / "state.safetensors").write_bytes(b"")  # as after a power loss without fsync
    assert store.load(fall_back=True).step == 2
    assert len(said) == 1
    assert "state.safetensors: is damaged" in said[0]
    assert "falling back to step-000000002" in said[0]
    (tmp_path / "latest.json").write_text("{")
    said.clear()
    assert store.load(fall_back=True).step == 2


def test_whoever_only_reads_refuses_a_damaged_checkpoint_and_names_the_others(tmp_path):
    store = CheckpointStore(tmp_path, keep=3)
    store.prepare()
    fill(store, (1, 2, 3))
    (tmp_path / "step-000000003" / "state.safetensors").write_bytes(b"")
    refusal = "is damaged .*; name another with --checkpoint: step-000000002, step-000000001"
    with pytest.raises(CheckpointError, match=refusal):
        store.load()
    assert [store.load(which).step for which in ("best", "1", "2", "step-000000002")] == [1, 1, 2, 2]
    with pytest.raises(ConfigError, match="there is no checkpoint '7'; there are latest, best, step-000000001"):
        store.load("7")
    shutil.rmtree(tmp_path / "step-000000003")
    with pytest.raises(CheckpointError, match="latest.json: names no checkpoint that exists; name one with --checkpoint"):
        store.load()


@pytest.mark.parametrize(
    "command",
    [("evaluate", "--episodes", "1"), ("predict", "--obs", "[1, 0, 0]"), ("export-member", "--member", "0", "--out")],
)
def test_only_resume_falls_back_to_an_older_checkpoint(command, finished, tmp_path, capsys):
    finished.copy(tmp_path / "run")
    command = [*command, tmp_path / "solo"] if command[-1] == "--out" else list(command)
    newest = checkpoints(tmp_path / "run")[-1]
    (newest / "state.safetensors").write_bytes(b"")
    done = call_cli(capsys, command[0], tmp_path / "run", *command[1:], code=4)
    assert f"{newest / 'state.safetensors'}: is damaged" in done.stderr
    assert "name another with --checkpoint: " in done.stderr
    assert not (tmp_path / "solo").exists()
    target = [tmp_path / "older" if part == tmp_path / "solo" else part for part in command[1:]]
    call_cli(capsys, command[0], tmp_path / "run", *target, "--checkpoint", "90")
    assert "falling back to" in call_cli(capsys, "resume", tmp_path / "run").stderr
    call_cli(capsys, command[0], tmp_path / "run", *command[1:])  # it wrote the damaged one anew


def test_one_checkpoint_leaves_nothing_to_choose(finished, capsys):
    run = finished().run_dir
    one = checkpoints(run)[0]
    for options, name in ((("--best",), "--best"), (("--checkpoint", "best"), "--checkpoint")):
        done = call_cli(capsys, "predict", one, "--obs", "[1, 0, 0]", *options, code=2)
        assert f"{name} chooses a checkpoint of a run, but {one} is one checkpoint" in done.stderr
    with pytest.raises(ConfigError, match="is one checkpoint, so 'best' cannot be chosen"):
        Policy.load(one, which="best")
    done = call_cli(capsys, "predict", run, "--obs", "[1, 0, 0]", "--best", "--checkpoint", "90", code=2)
    assert "--best and --checkpoint exclude each other" in done.stderr


POINTS = [
    "save:after-mkdir",
    *(
        f"save:{name}:{place}"
        for name in ("state.safetensors", "state.json", "manifest.json")
        for place in ("start", "half", "end")
    ),
    "save:before-manifest",
    "save:before-rename",
    "save:after-rename",
    "save:before-latest",
    "save:after-latest",
    "save:prune",
]


def save_and_die(store, point, value=0.0):
    """Save step 4 in a child process that is killed at the named place."""
    child = os.fork()
    if child == 0:
        os.environ[faults.VARIABLE] = point
        try:
            fill(store, (4,), value)
        finally:
            os._exit(1)
    _, status = os.waitpid(child, 0)
    assert os.WTERMSIG(status) == signal.SIGKILL


@pytest.mark.parametrize("first", [True, False], ids=["first", "later"])
@pytest.mark.parametrize("point", POINTS)
def test_killed_inside_a_save_there_is_always_a_whole_checkpoint(tmp_path, monkeypatch, point, first):
    if first and point == "save:prune":
        pytest.skip("the first save prunes nothing")
    store = CheckpointStore(tmp_path, keep=2)
    store.prepare()
    if not first:
        fill(store, (1, 2, 3))
    save_and_die(store, point)
    again = CheckpointStore(tmp_path, keep=2, warn=pytest.fail)
    again.prepare()
    assert not list(tmp_path.glob("*.tmp-*"))
    if first and not again.names():
        with pytest.raises(CheckpointError, match="there is no checkpoint"):
            again.load()
    else:
        assert again.load().step in (3, 4)
    fill(again, (4, 5))
    assert again.load().step == 5


@pytest.mark.parametrize("point", ["save:between-renames", "save:before-rename", "save:after-rename"])
def test_killed_while_saving_the_only_step_again(tmp_path, point):
    """As after a signal at the first checkpoint: the resumed run saves that very step once more."""
    store = CheckpointStore(tmp_path, keep=2)
    store.prepare()
    fill(store, (4,))
    save_and_die(store, point, value=0.5)
    again = CheckpointStore(tmp_path, keep=2, warn=pytest.fail)
    again.prepare()
    assert again.load().tensors["x"][0] in (4.0, 4.5)
    assert {path.name for path in tmp_path.iterdir()} == {"step-000000004", "latest.json"}


def test_a_full_disk_keeps_the_old_checkpoints(tmp_path, monkeypatch):
    store = CheckpointStore(tmp_path, keep=2)
    store.prepare()
    fill(store, (1, 2))
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}

    def full(_handle):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(StorageError, match=r"No space left on device \([\d,]+ bytes needed, [\d,]+ free"):
        fill(store, (3,))
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_a_run_directory_that_disappears_is_an_error(tmp_path):
    from rl_training.runtime.callbacks import Callback

    class Remove(Callback):
        def on_log(self, step, rows):
            if step == 50:
                shutil.rmtree(tmp_path / "run")

    with pytest.raises(StorageError, match="has disappeared"):
        tiny_run(tmp_path / "run", callbacks=[Remove()])


def test_a_full_disk_says_what_the_whole_checkpoint_needs(tmp_path, monkeypatch):
    """Not what was written of it before the disk was full, which is as much as there was free."""

    def full(path, data):
        path.write_bytes(data[:100])
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(storage, "write_file", full)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=8192))
    with pytest.raises(StorageError, match=r"\(409,600 bytes needed, 8,192 free\)"):  # whole blocks of each file
        write_checkpoint(tmp_path / "step-000000005", {"x": torch.zeros(100_000)}, STATE)
    assert not list(tmp_path.iterdir())
    with pytest.raises(StorageError, match=r"\(4,096 bytes needed, 8,192 free; a quota may be used up, or all inodes\)"):
        raise storage.storage_error(tmp_path / "x", 4096, OSError(errno.ENOSPC, "No space left on device"))
