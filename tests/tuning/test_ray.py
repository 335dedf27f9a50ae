"""Jobs on a real cluster of three Ray nodes on the loopback address, of which one is lost."""

import os
import signal
import sys
import threading
import time
from importlib.util import find_spec
from pathlib import Path

import pytest

from rl_training.errors import ConfigError
from rl_training.tuning.backends.ray import RayBackend, _require_room
from rl_training.tuning.job import PopulationJob
from tests.helpers import checkpoints
from tests.tuning.jobs import assert_as_local, holder, resumed_from, tiny_jobs

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
    cluster.lost = [cluster.add_node(num_cpus=1, object_store_memory=STORE) for _ in range(2)][0]
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
                if holder(job) in processes and 1 <= len(checkpoints(job.run_dir)) and resumed_from(job) == 0:
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
