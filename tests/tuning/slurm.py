"""A Slurm of one node on the loopback address, from the programs of the system."""

import os
import shutil
import socket
import subprocess
import time
from contextlib import contextmanager

PROGRAMS = ("munged", "slurmctld", "slurmd", "srun", "scontrol", "sinfo", "squeue")
CONFIG = """
ClusterName=test
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.log
ProctrackType=proctrack/pgid
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
ReturnToService=2
NodeName={host} NodeAddr=127.0.0.1 CPUs=2 State=UNKNOWN
PartitionName=main Nodes=ALL Default=YES PriorityTier=1 GraceTime=10
PartitionName=urgent Nodes=ALL PriorityTier=2 PreemptMode=OFF
"""


def is_there():
    """Whether a Slurm can be started here: its daemons start jobs as other users, so they are root's."""
    return os.geteuid() == 0 and (os.cpu_count() or 1) >= 2 and all(shutil.which(program) for program in PROGRAMS)


def free_ports(number):
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(number)]
    ports = [one.getsockname()[1] for one in sockets]
    for one in sockets:
        one.close()
    return ports


@contextmanager
def running(folder):
    """Run munge, the controller and one node in a folder; yield the path of the config."""
    (folder / "state").mkdir(parents=True)
    (folder / "munge.key").write_bytes(os.urandom(128))
    (folder / "munge.key").chmod(0o600)
    host = socket.gethostname().partition(".")[0]
    config = folder / "slurm.conf"
    config.write_text(CONFIG.format(host=host, folder=folder, ports=free_ports(2)))
    names = {"key-file": "munge.key", "socket": "munge.socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
    munged = ["munged", "--foreground", "--force", *(f"--{name}={folder / file}" for name, file in names.items())]
    daemons = [munged, ["slurmctld", "-D", "-f", config], ["slurmd", "-D", "-f", config, "-N", host]]
    started = []
    try:
        for daemon in daemons:
            started.append(subprocess.Popen(daemon, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
            time.sleep(1)
        until(lambda: b"idle" in answer(config, "sinfo"))
        yield config
        until(lambda: not answer(config, "squeue"))  # else what runs the last step would wait for the controller for ever
    finally:
        for process in reversed(started):
            process.terminate()
            process.wait(60)


def answer(config, program):
    own = {**os.environ, "SLURM_CONF": str(config)}
    return subprocess.run([program, "-h"], env=own, capture_output=True, check=False).stdout


def until(condition, seconds=300):
    """Wait for something that other processes do."""
    end = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.1)
