"""Runs in a store: they go on anywhere, bit for bit, and neither the store nor a machine ever holds half of one."""

import itertools
import json
import os
import shutil
import sys
from pathlib import Path

import pytest

from rl_training import faults
from rl_training.api.policy import Policy
from rl_training.data.dataset_loaders import load_dataset
from rl_training.errors import CheckpointError, ConfigError, RunBusyError, StorageError
from rl_training.experiment.manager import ExperimentManager
from rl_training.remote import mirror
from rl_training.remote.index import Index, index_name, newest_index
from rl_training.remote.runs import LocalCopy, address_of, local_run
from rl_training.remote.store import Store
from rl_training.runtime.callbacks import Callback
from tests.helpers import Cut, CutAt, assert_same_run, call_cli, checkpoints, contents, tiny_run
from tests.runtime.test_ranks import on_ranks

LONG = {"learning_rate_schedule": "constant"}


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The run that was never anywhere but on this disk."""
    path = tmp_path_factory.mktemp("whole") / "run"
    tiny_run(path)
    return path


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch):
    monkeypatch.setattr("rl_training.remote.store._PAUSES", (0.0,))


def resumed(address):
    manager, checkpoint = ExperimentManager.resuming(address)
    manager.train(resume=True, checkpoint=checkpoint)
    return manager


def test_a_run_goes_on_on_another_machine_bit_for_bit(any_store, machine, whole):
    address = f"{any_store}/runs/one"
    with pytest.raises(Cut):
        tiny_run(address, callbacks=[CutAt("log", 70)])
    machine("second")
    manager = resumed(address)
    assert manager.place == address
    assert_same_run(whole, manager.run_dir)
    machine("third")
    fetched = local_run(address)
    assert_same_run(whole, fetched)
    assert {Path(path).name for path in checkpoints(fetched)} == {path.name for path in checkpoints(whole)}
    assert not newest_index(Store(address)).writer["writing"]
    assert Policy.load(f"{address}/checkpoints/step-000000120").predict([1.0, 0.0, 0.0]) is not None
    assert len(Store(address).names("index")) == 2, "older ones are removed"


def test_every_command_takes_an_address(store, machine, capsys, tmp_path):
    address = f"{store}/run"
    tiny_run(address, total_timesteps=40)
    machine("second")
    for arguments in (
        ("evaluate", address, "--episodes", "2"),
        ("predict", address, "--obs", "[1, 0, 0]"),
        ("report", address, "--format", "csv"),
        ("export-member", address, "--member", "0", "--out", tmp_path / "out"),
        ("resume", address),
    ):
        done = call_cli(capsys, *arguments)
    assert f"run: {address}" in done.stdout
    assert "there is no run here" in call_cli(capsys, "evaluate", f"{store}/none", code=4).stderr
    assert "a run to watch must be on a file system" in call_cli(capsys, "watch", address, code=2).stderr
    done = call_cli(capsys, "train", "iql/pendulum", "--run-dir", address, code=2)
    assert "already holds a run" in done.stderr


def test_the_replay_of_a_run_in_a_store_is_a_dataset(store, machine, tmp_path):
    tiny_run(f"{store}/run", algo="sac", total_timesteps=60)
    tiny_run(tmp_path / "local", algo="sac", total_timesteps=60)
    machine("second")
    assert len(load_dataset(f"{store}/run")) == len(load_dataset(tmp_path / "local"))
    resumed(f"{store}/run")


@pytest.mark.parametrize("point", ["mirror:file@3", "mirror:file@12", "mirror:before-index@2", "mirror:after-index@3"])
def test_killed_while_it_copies_the_store_holds_a_whole_run_and_any_machine_goes_on(point, folder, machine, whole):
    address = f"{folder}/run"
    child = os.fork()
    if not child:
        os.environ[faults.VARIABLE] = point
        tiny_run(address)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -9
    machine("second")
    index = newest_index(Store(address))
    if index.files:
        manager = resumed(address)
        assert_same_run(whole, manager.run_dir)
    machine("first")
    if index.files:
        assert_same_run(whole, local_run(address))
    else:
        assert_same_run(whole, resumed(address).run_dir)


def break_store(monkeypatch, broken):
    """Have the store refuse some of the files that are written to it, by their number."""
    count, write = itertools.count(1), Store.write

    def maybe(store, name, data):
        if next(count) in broken:
            raise StorageError("the store is down")
        write(store, name, data)

    monkeypatch.setattr(Store, "write", maybe)


def test_a_store_that_is_down_for_a_while_costs_nothing_but_warnings(store, machine, monkeypatch, whole, capsys):
    break_store(monkeypatch, range(5, 8))
    tiny_run(f"{store}/run")
    assert capsys.readouterr().err.count("the store is down; the run goes on, and the next checkpoint") == 3
    machine("second")
    assert_same_run(whole, local_run(f"{store}/run"))


def test_a_store_that_is_down_at_the_end_is_exit_code_6_and_resume_copies_the_rest(store, machine, monkeypatch, whole):
    address = f"{store}/run"
    with monkeypatch.context() as broken:
        break_store(broken, range(5, 1000))
        with pytest.raises(StorageError, match=f"nothing is lost: `rl-training resume {address}` on this machine") as caught:
            tiny_run(address)
    assert caught.value.exit_code == 6
    assert_same_run(whole, local_run(address))
    resumed(address)
    machine("second")
    assert_same_run(whole, local_run(address))


class Takes(Callback):
    """Has another machine take over the run after a step."""

    def __init__(self, step, take):
        self.step, self.take = step, take

    def on_log(self, step, rows):
        if step == self.step:
            self.take()


def test_the_last_to_start_writes_and_the_other_notices_and_keeps_its_work(any_store, machine, whole, capsys):
    address = f"{any_store}/run"

    def take_over():
        machine("second")
        assert_same_run(whole, resumed(address).run_dir)
        machine("first")

    with pytest.raises(RunBusyError, match="has taken over the run; what this one had is kept in") as caught:
        tiny_run(address, callbacks=[Takes(50, take_over)])
    assert caught.value.exit_code == 7
    own = LocalCopy(address).path
    assert [path.name for path in checkpoints(own)][-1] == "step-000000060"
    assert_same_run(whole, local_run(address))
    assert "was continued elsewhere; what this machine had beside that is kept in" in capsys.readouterr().err
    assert [path.name for path in checkpoints(own.with_name("run.kept-1"))][-1] == "step-000000060"


def test_a_writer_that_did_not_say_that_it_ended_is_told(store, machine, monkeypatch, capsys):
    address = f"{store}/run"
    tiny_run(address, total_timesteps=30, **LONG)
    claimed = mirror.Mirror(address, print)
    claimed._writer |= {"host": "elsewhere"}
    claimed.claim()
    tiny_run(address, total_timesteps=60, resume=True, **LONG)
    assert "of elsewhere (since" in capsys.readouterr().err
    with pytest.raises(RunBusyError, match="has taken over"):
        claimed.save()


def test_two_that_claim_at_once_are_one(any_store, machine):
    address = f"{any_store}/run"
    one, other = (mirror.Mirror(address, print) for _ in range(2))
    one.claim()
    other._copy.remember(1, {})
    other.claim()
    with pytest.raises(RunBusyError):
        one.save()
    other.save()


def rewritten(address, change):
    """Replace the newest index by one with other files."""
    place = Store(address)
    index = newest_index(place)
    files = {name: dict(entry) for name, entry in index.files.items()}
    change(files)
    place.write(index_name(index.number), Index(index.number, files, index.writer).encoded())


def test_damage_in_the_store_is_named_and_nothing_comes_of_it(store, machine, tmp_path, capsys):
    address = f"{store}/run"
    tiny_run(address, total_timesteps=40)
    place = Store(address)
    newest = newest_index(place)
    name = next(name for name in newest.objects if name.endswith(".safetensors") and "step-000000040" in name)
    data = bytearray(place.read(name, 10**7))
    machine("second")
    place.write(name, bytes(data[:-1]) + bytes([data[-1] ^ 1]))
    assert "state.safetensors is damaged" in call_cli(capsys, "evaluate", address, code=4).stderr
    place.write(name, bytes(data[:-10]))
    assert "has not the" in call_cli(capsys, "evaluate", address, code=6).stderr
    place.remove([name])
    assert "a file of the run is missing" in call_cli(capsys, "evaluate", address, code=4).stderr
    assert not LocalCopy(address).path.exists()
    place.write(name, bytes(data))
    place.write(index_name(newest.number + 1), newest.encoded()[:200])  # half an index: the one before counts
    assert len(checkpoints(local_run(address))) == 2


@pytest.mark.parametrize("name", ["../../../outside", "/outside", "checkpoints/../../outside", "outside"])
def test_an_index_with_names_outside_the_run_is_refused(name, store, machine, tmp_path):
    address = f"{store}/run"
    tiny_run(address, total_timesteps=30)
    before = contents(tmp_path)
    rewritten(address, lambda files: files.update({name: files.pop("config.yaml")}))
    for index in Store(address).names("index")[:-1]:
        Store(address).remove([f"index/{index}"])
    machine("second")
    with pytest.raises(CheckpointError, match="which is no name for a file of a run"):
        local_run(address)
    assert not [path for path in contents(tmp_path) if path not in before and "outside" in path]


def test_other_runs_know_nothing_of_stores(machine, tmp_path, monkeypatch):
    tiny_run(tmp_path / "runs" / "one", total_timesteps=10)
    (tmp_path / "runs" / "state.json").write_text(json.dumps({"address": "s3://stranger/run", "number": 0, "files": {}}))
    assert address_of(tmp_path / "runs" / "one") is None
    assert not (tmp_path / "machines").exists()
    monkeypatch.setitem(sys.modules, "gcsfs", None)  # as if it were not installed
    with pytest.raises(ConfigError, match="needs gcsfs"):
        ExperimentManager.open("gs://bucket/run")


def test_a_copy_that_was_deleted_is_fetched_again(store, machine):
    tiny_run(f"{store}/run", total_timesteps=30)
    copy = local_run(f"{store}/run")
    before = contents(copy)
    shutil.rmtree(copy)
    assert contents(local_run(f"{store}/run")).keys() == before.keys() - {"run.lock"}


def test_ranks_share_a_run_in_a_store(folder, machine, tmp_path):
    address, several = f"{folder}/run", {"seeds": [0, 1, 2, 3], "total_timesteps": 60, **LONG}
    assert on_ranks(2, tmp_path, lambda _: tiny_run(address, **{**several, "total_timesteps": 30})) == [0, 0]
    machine("second")
    assert on_ranks(2, tmp_path, lambda _: tiny_run(address, resume=True, **several)) == [0, 0]
    tiny_run(tmp_path / "local", **{**several, "total_timesteps": 30})
    tiny_run(tmp_path / "local", resume=True, **several)
    machine("third")
    assert_same_run(tmp_path / "local", local_run(address))


def test_overwriting_starts_over_in_the_store_too(store, machine, whole):
    address = f"{store}/run"
    tiny_run(address, seed=5, total_timesteps=150, **LONG)
    machine("second")
    tiny_run(address, overwrite=True)
    machine("third")
    assert_same_run(whole, local_run(address))
