"""Several ranks for one run: the files of one process, on any number of ranks, through every stop and resume."""

import os
import re
import signal
import socket
import subprocess
import sys
import traceback
from functools import partial

import pytest
import yaml

from rl_training import faults
from rl_training.errors import ConfigError, RLTrainingError
from rl_training.runtime.sharing.ranks import Ranks
from tests.helpers import Cut, CutAt, assert_same_run, call_cli, contents, environment, run_values, small_dataset, tiny_run
from tests.runtime.test_population import Poison
from tests.runtime.test_resume import SignalAt, wait_for_line

TWELVE = list(range(12))
FREELY = {"learning_rate_schedule": "constant"}  # so that the budget may grow
LOOPBACK = {"MASTER_ADDR": "127.0.0.1", "GLOO_SOCKET_IFNAME": "lo" if sys.platform == "linux" else "lo0"}
OWN_FILES = ("run.json", "run.lock", "timings.jsonl")  # with times and process numbers
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="ranks are forks of the test")


def free_port():
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return str(found.getsockname()[1])


def become_rank(rank, count, port, folder, work):
    """Do the work as one rank of a run; never returns."""
    code = 70
    try:
        os.environ.update({"RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(count), "MASTER_PORT": port})
        os.environ.update(LOOPBACK)
        (folder / f"pid-{rank}").write_text(str(os.getpid()))
        work(rank)
        code = 0
    except RLTrainingError as error:
        (folder / f"error-{rank}").write_text("" if error.told else str(error))
        code = error.exit_code
    except Cut:
        code = 71
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def on_ranks(count, folder, work):
    """Do the work on ranks that are forks of this process; return their exit codes, negative for a signal."""
    port = free_port()
    children = []
    for rank in range(count):
        child = os.fork()
        if not child:
            become_rank(rank, count, port, folder, work)
        children.append(child)
    return [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]


def assert_same_files(first, second):
    one, other = (
        {name: value for name, value in contents(run).items() if not name.endswith(OWN_FILES)} for run in (first, second)
    )
    assert one == other


def train(run_dir, rank=0, **arguments):
    del rank
    return tiny_run(run_dir, **{"seeds": TWELVE, **arguments})


@pytest.mark.parametrize(("members", "count"), [(12, 1), (12, 2), (12, 5), (3, 2), (2, 2)])
def test_ranks_share_out_the_members_and_none_computes_one_alone(members, count):
    ranks = [Ranks(members, rank, count) for rank in range(count)]
    assert [member for one in ranks for member in one._share] == list(range(members))
    assert all(set(one._share) <= set(one.own) <= set(range(members)) and len(one.own) > 1 for one in ranks)


def test_torchrun_writes_the_very_files_of_one_process(tmp_path):
    train(tmp_path / "one")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(run_values(seeds=TWELVE)))
    arguments = ("train", tmp_path / "config.yaml", "--run-dir", tmp_path / "two")
    options = {"env": environment(**LOOPBACK), "timeout": 200, "capture_output": True, "text": True}
    ended = subprocess.run(torchrun(2, *arguments), check=False, **options)
    assert ended.returncode == 0, ended.stderr
    assert_same_files(tmp_path / "one", tmp_path / "two")


def torchrun(count, *arguments):
    launch = (sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(count))
    return [*launch, "-m", "rl_training", *map(str, arguments)]


VARIANTS = {
    "one member too few": {"seeds": [0, 1, 2]},
    "sweep and early stopping": {
        "algo": "td3_bc",
        "seeds": [0, 1],
        "sweep": {"alpha": [0.5, 2.5]},
        "early_stopping": {"patience": 1},
    },
    "no environment": {"env_id": None, "select_by": "action_distance", "dataset": small_dataset(rows=300, action_dim=1)},
    "evaluated beside": {"seeds": [0, 1, 2, 3], "eval_mode": "beside", "eval_interval": 20},
    "one member diverges": {"seeds": [0, 1, 2, 3], "callbacks": [Poison(50, [1])]},
}


def test_whatever_the_loop_decides_is_decided_as_in_one_process(tmp_path):
    def train_all(run_dir, rank=0):
        for name, changes in VARIANTS.items():
            train(run_dir / name, rank, **changes)

    train_all(tmp_path / "one")
    assert on_ranks(2, tmp_path, partial(train_all, tmp_path / "two")) == [0, 0]
    assert_same_files(tmp_path / "one", tmp_path / "two")


def test_a_run_goes_on_on_any_number_of_ranks(tmp_path):
    train(tmp_path / "whole", total_timesteps=160, **FREELY)
    run_dir = tmp_path / "run"
    train(run_dir, total_timesteps=40, **FREELY)
    for count, budget in ((2, 80), (3, 120)):
        go_on = partial(train, run_dir, resume=True, total_timesteps=budget, **FREELY)
        assert on_ranks(count, tmp_path, go_on) == [0] * count
    train(run_dir, resume=True, total_timesteps=160, **FREELY)
    assert_same_run(tmp_path / "whole", run_dir)


class SignalTo(SignalAt):
    """Sends a signal to another rank."""

    def __init__(self, place, step, folder, number):
        super().__init__(place, step)
        self.folder, self.number = folder, number

    def _maybe(self, place, step):
        if (place, step) == (self.place, self.step):
            os.kill(int((self.folder / "pid-1").read_text()), self.number)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    path = tmp_path_factory.mktemp("whole")
    train(path)
    return path


@pytest.mark.parametrize("to", [0, 1])
def test_sigterm_to_any_rank_saves_once_and_stops_all(to, whole, tmp_path):
    stop = SignalTo("log", 50, tmp_path, signal.SIGTERM) if to else SignalAt("evaluation", 80)
    assert on_ranks(2, tmp_path, partial(train, tmp_path / "run", callbacks=[stop])) == [143, 143]
    assert "go on with `rl-training resume" in (tmp_path / "error-0").read_text()
    assert (tmp_path / "error-1").read_text() == "", "the first rank tells it"
    assert on_ranks(3, tmp_path, partial(train, tmp_path / "run", resume=True)) == [0, 0, 0]
    assert_same_run(whole, tmp_path / "run")


@pytest.mark.parametrize(("killed", "point"), [(0, "save:before-latest@3"), (1, "evaluation:done@2")])
def test_where_a_rank_is_killed_the_others_end_and_the_run_goes_on(killed, point, whole, tmp_path):
    def die(rank):
        os.environ.update({faults.VARIABLE: point} if rank == killed else {})
        train(tmp_path / "run")

    codes = on_ranks(2, tmp_path, die)
    assert (codes[killed], codes[1 - killed]) == (-9, 1)
    assert "another process of the run is gone" in (tmp_path / f"error-{1 - killed}").read_text()
    assert on_ranks(2, tmp_path, partial(train, tmp_path / "run", resume=True)) == [0, 0]
    assert_same_run(whole, tmp_path / "run")


def test_an_error_of_one_rank_ends_the_others_and_is_told_once(whole, tmp_path):
    def fail(rank):
        train(tmp_path / "run", callbacks=[CutAt("log", 50)])

    assert on_ranks(2, tmp_path, fail) == [71, 1]
    assert (tmp_path / "error-1").read_text() == "", "the first rank tells it"
    assert on_ranks(2, tmp_path, partial(train, tmp_path / "run")) == [2, 2]
    assert "already holds a run" in (tmp_path / "error-0").read_text()

    def take_other_data(rank):
        train(tmp_path / "other", dataset=small_dataset() if rank else None)

    assert on_ranks(2, tmp_path, take_other_data) == [3, 3]
    assert re.match("rank 1 ended: the data has", (tmp_path / "error-0").read_text())

    def take_other_seeds(rank):
        train(tmp_path / "other", seeds=[rank, 7])

    assert on_ranks(2, tmp_path, take_other_seeds) == [2, 2]
    assert "different configs" in (tmp_path / "error-0").read_text()


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({}, r"fewer members than ranks \(1\), and batch_size = 32 is not a multiple of 3"),
        ({"seeds": [0, 1], "algo_kwargs": {"batch_size": 33}, "engine": "compile"}, r"\(2\), step by step; use engine=eager"),
        ({"algo": "sac", "seeds": TWELVE}, "train online and finetune in one process"),
        ({"seeds": TWELVE, "finetune": {"env_steps": 10}}, "train online and finetune in one process"),
        ({"seeds": TWELVE, "env_id": None, "select_by": "fqe"}, "cannot choose by fqe"),
    ],
)
def test_what_ranks_cannot_share_is_refused_once(changes, reason, tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "3")
    for rank in (0, 1):
        monkeypatch.setenv("RANK", str(rank))
        with pytest.raises(ConfigError, match=reason) as caught:
            tiny_run(tmp_path / "run", **changes)
        assert caught.value.told == (rank > 0)
    assert not (tmp_path / "run").exists()


def test_one_rank_is_a_run_like_any_other(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setenv("WORLD_SIZE", "1")
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(run_values(total_timesteps=10)))
    done = call_cli(capsys, "train", tmp_path / "config.yaml", "--run-dir", tmp_path / "run")
    assert "after 10 gradient steps" in done.stdout


@pytest.mark.faults
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_torchrun_passes_a_stop_on_and_the_run_goes_on(number, tmp_path):
    long = {"seeds": TWELVE, "engine": "eager", "total_timesteps": 100_000, "eval_interval": 100_000, **FREELY}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump(run_values(**long)))
    arguments = torchrun(2, "train", tmp_path / "config.yaml", "--run-dir", tmp_path / "run")
    process = subprocess.Popen(arguments, env=environment(**LOOPBACK), stderr=subprocess.PIPE, text=True)
    wait_for_line(process, "saved step ")
    process.send_signal(number)
    step = int(wait_for_line(process, "stopped at step ").replace(",", ""))
    process.communicate(timeout=100)
    assert process.returncode
    ends = {**long, "total_timesteps": step + 25}
    assert on_ranks(3, tmp_path, partial(train, tmp_path / "run", resume=True, **ends)) == [0, 0, 0]
    train(tmp_path / "whole", **ends)
    assert_same_run(tmp_path / "whole", tmp_path / "run")
