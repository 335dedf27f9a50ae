"""What a study asks of the place where its jobs run."""

from collections.abc import Generator, Sequence
from typing import Protocol

from rl_training.tuning.job import PopulationJob


class Backend(Protocol):
    """Runs jobs, in any order and number at a time; one that was running when everything died may be given again."""

    def run(self, jobs: Sequence[PopulationJob]) -> Generator[tuple[PopulationJob, str]]:
        """Run every job and yield each when it ends, with what `run_job` returned: `finished`, or why it failed for good.

        What is no fault of a job (a stop signal, a full disk) is raised; the same jobs may then be given again. Closing
        stops the jobs that are under way, each of which saves itself.
        """
