"""The backend that a command names, and how much of a machine its jobs take."""

from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError
from rl_training.tuning.backends.base import Backend
from rl_training.tuning.backends.local import LocalBackend
from rl_training.tuning.job import PopulationJob


@dataclass(frozen=True)
class Place:
    """Where jobs run: on this machine (`processes` side by side), in a Ray cluster (`address`) or by Slurm (`options`)."""

    name: str = "local"
    processes: int = 1
    address: str | None = None
    options: Mapping[str, Any] | None = None  # of sbatch
    gpus: float | None = None  # of each job; None: one if the config names a GPU
    cpus: int = 1

    def backend(self, study: Path) -> Backend:
        """Return the backend for a study in a directory; a ConfigError for options of another one."""
        wrong = [("--address", self.address, "ray"), ("--slurm", self.options, "slurm")]
        for option, given, owner in wrong:
            if given and self.name != owner:
                raise ConfigError(f"{option} is for --backend {owner}, not {self.name}")
        if self.name == "local":
            if self.gpus is not None or self.cpus != 1:
                raise ConfigError("--gpus and --cpus are for --backend ray and slurm; a local job sees every GPU")
            return LocalBackend(self.processes)
        if self.processes != 1:
            raise ConfigError(f"--jobs is for --backend local; {self.name} runs as many side by side as there is room for")
        if self.name == "ray":
            from rl_training.tuning.backends.ray import RayBackend

            return _Sized(RayBackend(self.address), self)
        if self.name == "slurm":
            from rl_training.tuning.backends.slurm import SlurmBackend

            return _Sized(SlurmBackend(study / "slurm", self.options), self)
        raise ConfigError(f"--backend {self.name!r}: must be local, ray or slurm")


@dataclass(frozen=True)
class _Sized:
    """A backend whose jobs take what the place says."""

    backend: Backend
    place: Place

    def run(self, jobs: Sequence[PopulationJob]) -> Generator[tuple[PopulationJob, str]]:
        gpus, cpus = self.place.gpus, self.place.cpus
        return self.backend.run([replace(job, cpus=cpus, gpus=job.gpus if gpus is None else gpus) for job in jobs])
