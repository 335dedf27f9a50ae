"""Jobs as tasks of a Ray cluster: one that dies with its node or its process goes on elsewhere, from its last checkpoint."""

import os
import socket
from collections.abc import Generator, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from rl_training.envs.imports import imported
from rl_training.errors import ConfigError, StoppedBySignal, StorageError
from rl_training.experiment.run_record import run_status
from rl_training.tuning.backends.attempts import Interruptions, attempt
from rl_training.tuning.job import FINISHED, PopulationJob

LOOPBACK = "127.0.0.1"
ANSWER_TIME = 10.0  # seconds for the first answer of a cluster
STOP_TIME = 120.0  # seconds that running jobs have to save when everything stops; one that compiles does that first
STORE = 80 << 20  # bytes of shared memory for a Ray of our own: jobs and results are a few lines


class RayBackend:
    """Runs jobs on a cluster; without an address, on a Ray of its own that only this machine can reach."""

    def __init__(self, address: str | None = None) -> None:
        self.address = address or os.environ.get("RAY_ADDRESS")
        _library(self.address)

    def run(self, jobs: Sequence[PopulationJob]) -> Generator[tuple[PopulationJob, str]]:
        """Run every job and yield each when it ends. All nodes must see the folder that this process is in."""
        with _connected(self.address) as ray:
            _require_room(ray.nodes(), jobs)
            yield from _Tasks(ray).run(jobs)


class _Tasks:
    """The jobs that Ray has now, each as one task."""

    def __init__(self, ray: Any) -> None:
        self._ray = ray
        self._task = ray.remote(max_retries=0)(_attempt)  # which job is worth another try is decided here
        self._running: dict[Any, PopulationJob] = {}
        self._interruptions = Interruptions()

    def run(self, jobs: Sequence[PopulationJob]) -> Generator[tuple[PopulationJob, str]]:
        try:
            for job in jobs:
                self._submit(job)
            while self._running:
                (reference, *_), _ = self._ray.wait(list(self._running))
                job = self._running.pop(reference)
                if (result := self._result(reference, job)) is None:
                    self._submit(job)
                else:
                    yield job, result
        finally:
            self._stop()

    def _submit(self, job: PopulationJob) -> None:
        task = self._task.options(name=job.name, num_cpus=job.cpus, num_gpus=job.gpus)
        self._running[task.remote(job, os.getcwd(), imported())] = job

    def _result(self, reference: Any, job: PopulationJob) -> str | None:
        """Return what a job returned, or None if it is to be run again."""
        errors = self._ray.exceptions
        try:
            result: str | None = self._ray.get(reference)
            reason = "it was asked to stop"
        except errors.RayTaskError as error:  # raised by the job, not by the cluster
            raise error.cause from None
        except errors.RayError as error:
            result, reason = None, str(error).strip().partition("\n")[0]
        if result is None:
            return self._interruptions.give_up(job, reason)
        if result == FINISHED and run_status(Path(job.run_dir)) != FINISHED:
            raise StorageError(
                f"{job.run_dir}: another node finished it, and it is not seen here; choose storage that all see"
            )
        return result

    def _stop(self) -> None:
        """Let every running job save and stop, as Ctrl-C does."""
        for reference in self._running:
            self._ray.cancel(reference)
        if self._running:
            self._ray.wait(list(self._running), num_returns=len(self._running), timeout=STOP_TIME)


def _attempt(job: PopulationJob, folder: str, imports: Sequence[str]) -> str | None:
    """Run a job in a worker of Ray; None if it was asked to stop and has saved."""
    try:
        os.chdir(folder)
    except OSError as error:
        raise ConfigError(
            f"{folder}: is not seen by every node ({error.strerror}); start from storage that all see"
        ) from None
    try:
        return attempt(job, imports)
    except StoppedBySignal:
        return None


def _library(address: str | None) -> Any:
    """Import Ray, set up to ask for its token, to report nothing and, where it is our own, to keep to the loopback address.

    By default it puts the address of the machine in place of the loopback one, and then listens on every interface.
    """
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address is None:
        os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"  # on these systems it is 0, which is what is wanted here
    try:
        import ray
    except ImportError:
        raise ConfigError('--backend ray: ray is not installed: pip install "rl-training[ray]"') from None
    return ray


@contextmanager
def _connected(address: str | None) -> Iterator[Any]:
    """Connect to a cluster, or start one on the loopback address; a connection that is there already is used and kept."""
    ray = _library(address)
    if ray.is_initialized():
        yield ray
        return
    if address is None and ray.util.get_node_ip_address() != LOOPBACK:  # imported before this module could set it up
        raise ConfigError("--backend ray: would listen on every network interface; start Ray yourself and pass its --address")
    if address is not None:
        _require_answer(address)
    own = {"include_dashboard": False, "object_store_memory": STORE} if address is None else {}
    try:
        ray.init(address or "local", **own, log_to_driver=False, logging_level="error")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(f"--backend ray --address {address or 'local'}: {str(error).strip().splitlines()[0]}") from None
    try:
        yield ray
    finally:
        ray.shutdown()


def _require_answer(address: str) -> None:
    """Refuse an address where nobody listens: Ray would try for minutes."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not port.isdigit():  # `auto`, which Ray looks up
        return
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_TIME).close()
    except OSError as error:
        raise ConfigError(f"--address {address}: no Ray answers there ({error.strerror or error}); is it started?") from None


def _require_room(nodes: Sequence[dict[str, Any]], jobs: Sequence[PopulationJob]) -> None:
    """Refuse a job that no node can hold: Ray would wait forever."""
    for cpus, gpus in {(job.cpus, job.gpus) for job in jobs}:
        have = [(node["Resources"].get("CPU", 0), node["Resources"].get("GPU", 0)) for node in nodes if node["Alive"]]
        if not any(cpus <= node_cpus and gpus <= node_gpus for node_cpus, node_gpus in have):
            raise ConfigError(f"--backend ray: no node has the {cpus} CPUs and {gpus:g} GPUs of a job")
