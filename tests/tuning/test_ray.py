"""Jobs on a real cluster of three Ray nodes on the loopback address, of which one is lost."""

import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from contextlib import suppress
from dataclasses import replace
from importlib.util import find_spec
from ipaddress import ip_address
from pathlib import Path

import pytest

from rl_training.errors import ConfigError
from rl_training.experiment.run_record import run_status
from rl_training.tuning.backends.attempts import LIMIT, Interruptions
from rl_training.tuning.backends.ray import RayBackend, _require_answer
from rl_training.tuning.job import PopulationJob
from tests.helpers import ROOT, assert_same_run, checkpoints, environment, run_cli
from tests.tuning.jobs import DATA, TINY, assert_as_local, holder, resumed_from, tiny_jobs

installed = pytest.mark.skipif(find_spec("ray") is None, reason="ray is not installed")
HEALTH = {"health_check_initial_delay_ms": 1000, "health_check_period_ms": 1000, "health_check_timeout_ms": 5000}
STORE = 80 << 20


@pytest.fixture
def cluster(tmp_path, monkeypatch):
    """Three nodes with one CPU each, which nothing but the loopback address reaches and which ask for a token."""
    (tmp_path / "token").write_text("of-this-test")
    settings = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN_PATH": str(tmp_path / "token"), "OMP_NUM_THREADS": "1"}
    for name, value in {**settings, "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(path for path in sys.path if path))
    from ray.cluster_utils import Cluster

    head = {"num_cpus": 1, "object_store_memory": STORE, "include_dashboard": False, "_system_config": HEALTH}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    cluster.lost, _ = (cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2))
    yield cluster
    cluster.shutdown()


def parents():
    """The parent of every process."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with_name = entry / "stat"
            try:
                found[int(entry.name)] = int(with_name.read_text().rpartition(")")[2].split()[1])
            except OSError:
                continue
    return found


def descendants(process):
    above = parents()
    found = {process}
    while more := {child for child, parent in above.items() if parent in found} - found:
        found |= more
    return found


def raylet_of(node):
    (raylet,) = node.all_processes["raylet"]
    return raylet.process.pid


class LosesNode(threading.Thread):
    """Waits until a job on a node is between two checkpoints, and does something to the node's processes."""

    def __init__(self, node, jobs, lose):
        super().__init__(daemon=True)
        self.node, self.jobs, self.lose, self.victim = node, jobs, lose, None

    def run(self):
        while self.victim is None:
            time.sleep(0.05)
            processes = descendants(raylet_of(self.node))
            for job in self.jobs:
                if holder(job) in processes and checkpoints(job.run_dir) and resumed_from(job) == 0:
                    self.victim = job
        self.lose(processes)


def kill(processes):
    for process in processes:
        os.kill(process, signal.SIGKILL)


@installed
@pytest.mark.timeout(1200)
def test_a_node_killed_in_the_middle_costs_nothing_but_time(cluster, tmp_path):
    jobs = tiny_jobs(tmp_path / "runs", 8)
    loses = LosesNode(cluster.lost, jobs, kill)
    loses.start()
    results = [(job.name, result) for job, result in RayBackend(cluster.address).run(jobs)]
    assert sorted(results) == [(job.name, "finished") for job in jobs]
    assert resumed_from(loses.victim) > 0
    assert_as_local(jobs, tmp_path / "local")


@installed
@pytest.mark.timeout(1200)
def test_a_node_that_is_only_cut_off_never_writes_beside_its_successor(cluster, tmp_path):
    """The process goes on while the cluster takes the node for dead: the second copy waits for the lock."""
    jobs = tiny_jobs(tmp_path / "runs", 3, total_timesteps=3000)
    loses = LosesNode(cluster.lost, jobs, lambda _: os.kill(raylet_of(cluster.lost), signal.SIGSTOP))
    loses.start()
    try:
        results = [(job.name, result) for job, result in RayBackend(cluster.address).run(jobs)]
    finally:
        kill(descendants(raylet_of(cluster.lost)))
    assert sorted(results) == [(job.name, "finished") for job in jobs]
    assert_as_local(jobs, tmp_path / "local")


@installed
@pytest.mark.timeout(600)
def test_who_stops_waiting_leaves_jobs_that_have_saved(cluster, tmp_path):
    first, second = tiny_jobs(tmp_path / "runs", 2, checkpoint_interval=100_000, total_timesteps=100_000, engine="eager")
    (quick,) = tiny_jobs(tmp_path / "quick", 1)
    results = RayBackend(cluster.address).run([first, second, quick])
    assert next(results) == (quick, "finished")
    while not all(holder(job) and (Path(job.run_dir) / "metrics.jsonl").exists() for job in (first, second)):
        time.sleep(0.1)
    results.close()
    for job in (first, second):
        assert run_status(Path(job.run_dir)) == "StoppedBySignal"
        assert checkpoints(job.run_dir)


@installed
@pytest.mark.timeout(600)
def test_a_ray_of_our_own_listens_on_the_loopback_address_alone(tmp_path):
    """In a process of its own: what Ray does is decided when it is imported."""
    code = "import sys; from tests.tuning.test_ray import own_ray; own_ray(sys.argv[1])"
    extra = {"PYTHONPATH": f"{ROOT / 'src'}:{ROOT}", "RAY_AUTH_TOKEN": "of-this-test"}
    arguments = [sys.executable, "-c", code, str(tmp_path)]
    subprocess.run(arguments, env=environment(**extra), check=True, timeout=500, capture_output=True)


def own_ray(folder):
    jobs = tiny_jobs(Path(folder), 1)
    for _, result in RayBackend().run(jobs):
        assert result == "finished"
        assert {address for process in descendants(os.getpid()) for address in listening(process)} == {"127.0.0.1"}


@installed
@pytest.mark.skipif(find_spec("optuna") is None, reason="optuna is not installed")
@pytest.mark.timeout(900)
def test_a_study_with_ray_is_the_study_of_this_machine(tmp_path, monkeypatch):
    monkeypatch.setenv("RAY_AUTH_TOKEN", "of-this-test")
    (tmp_path / "space.yaml").write_text("expectile: {low: 0.6, high: 0.9}\nbeta: {low: 1, high: 20, log: true}\n")
    data = ["--set", f"algo_kwargs.dataset={json.dumps(DATA)}", *(word for one in TINY for word in ("--set", one))]
    search = ["--space", "space.yaml", "--trials", 6, "--batch", 4, "--population", 2, "--seeds", "0,1", "--json"]
    found = {}
    for backend in ("local", "ray"):
        where = ["--run-dir", f"study-{backend}", "--backend", backend]
        done = run_cli("tune", "iql/pendulum-mixture", *data, *search, *where, cwd=tmp_path, seconds=400)
        found[backend] = json.loads(done.stdout.replace(f"study-{backend}", "study"))
    assert found["ray"] == found["local"]
    names = sorted(path.name for path in (tmp_path / "study-ray" / "populations").iterdir())
    assert len(names) == 3
    for name in names:
        assert_same_run(*(tmp_path / f"study-{backend}" / "populations" / name for backend in found))


def listening(process):
    """The addresses at which a process accepts connections."""
    sockets = {}
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A":
                words = re.findall("........", fields[1].partition(":")[0])
                sockets[f"socket:[{fields[9]}]"] = ip_address(b"".join(bytes.fromhex(word)[::-1] for word in words))
    for entry in Path(f"/proc/{process}/fd").iterdir():
        with suppress(FileNotFoundError):
            if address := sockets.get(os.readlink(entry)):
                yield str(getattr(address, "ipv4_mapped", None) or address)


@installed
def test_a_job_that_no_node_can_hold_is_refused(cluster, tmp_path):
    (job,) = tiny_jobs(tmp_path, 1)
    with pytest.raises(ConfigError, match=r"no node has the 1 CPUs and 2 GPUs of a job"):
        list(RayBackend(cluster.address).run([replace(job, gpus=2.0)]))


def test_an_address_where_nobody_listens_is_named():
    with socket.create_server(("127.0.0.1", 0)) as server:
        address = f"127.0.0.1:{server.getsockname()[1]}"
        _require_answer(address)
    with pytest.raises(ConfigError, match=rf"--address {address}: no Ray answers there \(Connection refused\)"):
        _require_answer(address)


def test_without_the_library_the_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "ray", None)
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    with pytest.raises(ConfigError, match=re.escape('--backend ray: ray is not installed: pip install "rl-training[ray]"')):
        RayBackend("127.0.0.1:6379")


def test_a_job_is_given_up_when_it_gets_nowhere(tmp_path):
    job, interruptions = PopulationJob("a", str(tmp_path), {}), Interruptions()
    for step in (10, 20):
        (tmp_path / "checkpoints" / f"step-{step:09}").mkdir(parents=True)
        assert [interruptions.give_up(job, "killed") for _ in range(LIMIT - 1)] == [None] * (LIMIT - 1)
    assert interruptions.give_up(job, "killed") == f"was interrupted {LIMIT} times without a new checkpoint: killed"
