"""Jobs through submitit: with its local executor, and with a real Slurm where one can be started."""

import os
import re
import signal
import subprocess
import sys
import threading
from importlib.util import find_spec

import pytest

from rl_training.errors import ConfigError
from rl_training.tuning.backends.slurm import SlurmBackend
from rl_training.tuning.job import PopulationJob
from tests.helpers import ROOT, checkpoints
from tests.tuning import slurm
from tests.tuning.jobs import assert_as_local, holder, resumed_from, tiny_jobs

installed = pytest.mark.skipif(find_spec("submitit") is None, reason="submitit is not installed")
real = pytest.mark.skipif(not slurm.is_there(), reason="no Slurm can be started here")


class LocalBackend(SlurmBackend):
    executor = "LocalExecutor"


@pytest.fixture(autouse=True)
def workers_find_the_package(monkeypatch):
    monkeypatch.setenv("PYTHONPATH", f"{ROOT / 'src'}:{ROOT}")
    monkeypatch.setenv("OMP_NUM_THREADS", "1")


def in_the_middle(job):
    """Whether a job has saved, but for the first time."""
    return checkpoints(job.run_dir) and resumed_from(job) == 0


def send_in_the_middle(job, number):
    """Send a signal to the process of a job once it is between two checkpoints."""

    def send():
        slurm.until(lambda: in_the_middle(job))
        os.kill(holder(job), number)

    threading.Thread(target=send, daemon=True).start()


@installed
@pytest.mark.timeout(900)
def test_a_job_whose_time_is_up_saves_and_one_that_is_killed_goes_on(tmp_path):
    stopped, killed = jobs = tiny_jobs(tmp_path / "runs", 2, total_timesteps=1500)
    send_in_the_middle(stopped, signal.SIGUSR2)
    send_in_the_middle(killed, signal.SIGKILL)
    backend = LocalBackend(tmp_path / "submitit", {"timeout_min": 30})
    results = {job.name: result for job, result in backend.run(jobs)}
    assert results == {job.name: "finished" for job in jobs}
    assert resumed_from(stopped) > 0
    assert resumed_from(killed) > 0
    logs = [path.read_text() for path in (tmp_path / "submitit").glob("*log.out")]
    assert any("Requeued job" in log for log in logs)
    assert_as_local(jobs, tmp_path / "local")


@installed
@pytest.mark.timeout(600)
def test_a_job_that_cannot_train_is_told_in_its_own_words(tmp_path):
    (job,) = tiny_jobs(tmp_path / "runs", 1)
    job.config["algo_kwargs"]["dataset"] = [{"path": "missing.npz"}]
    ((told, result),) = LocalBackend(tmp_path / "submitit", {"timeout_min": 30}).run([job])
    assert told is job
    assert "missing.npz" in result


@installed
@real
@pytest.mark.timeout(1800)
def test_preempted_jobs_of_a_real_slurm_are_queued_again_and_go_on(tmp_path, monkeypatch):
    with slurm.running(tmp_path / "slurm") as config:
        monkeypatch.setenv("SLURM_CONF", str(config))
        jobs = tiny_jobs(tmp_path / "runs", 3, total_timesteps=2000)
        options = {"partition": "main", "time": 30}
        SlurmBackend(tmp_path / "submitit", options)._submit(jobs)  # by a process that is killed now
        threading.Thread(target=preempt, args=(jobs[:2],), daemon=True).start()
        results = {job.name: result for job, result in SlurmBackend(tmp_path / "submitit", options).run(jobs)}
    assert results == {job.name: "finished" for job in jobs}
    assert [resumed_from(job) > 0 for job in jobs] == [True, True, False]
    assert len(list((tmp_path / "submitit").glob("*submission.sh"))) == 1
    assert_as_local(jobs, tmp_path / "local")


def preempt(jobs):
    """Tell the first job that its time is up, and take the machine from the other for a while."""
    first, second = jobs
    slurm.until(lambda: in_the_middle(first))
    os.kill(holder(first), signal.SIGUSR2)
    slurm.until(lambda: in_the_middle(second))
    subprocess.run(["sbatch", "-p", "urgent", "-n", "2", "-o", "/dev/null", "--wrap", "sleep 1"], check=True)


@installed
def test_what_slurm_cannot_do_is_refused(tmp_path):
    with pytest.raises(ConfigError, match=r"--backend slurm: 0.5 GPUs for a job: Slurm gives whole ones"):
        list(LocalBackend(tmp_path).run([PopulationJob("a", str(tmp_path / "a"), {}, gpus=0.5)]))


@installed
@pytest.mark.skipif(slurm.is_there(), reason="there is a Slurm")
def test_a_machine_without_slurm_is_named(tmp_path):
    with pytest.raises(ConfigError, match=r"--backend slurm: .*srun"):
        SlurmBackend(tmp_path)


def test_without_the_library_the_extra_is_named(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "submitit", None)
    wanted = '--backend slurm: submitit is not installed: pip install "rl-training[slurm]"'
    with pytest.raises(ConfigError, match=re.escape(wanted)):
        SlurmBackend(tmp_path)
