"""The offline phase: gradient steps on a fixed dataset."""

from rl_training.algorithms.learner import Metrics
from rl_training.config.schedules import CONSTANT
from rl_training.runtime.phases.base import Phase


class OfflinePhase(Phase):
    """Gradient steps only; the unit is a gradient step."""

    @property
    def chunk(self) -> int:
        """The maximum number of steps between two checks of the watchdog and the signals."""
        return self.steps.chunk

    def prepare(self, done: int, count: int) -> None:
        """Fetch the batches of the next steps; the learner is not changed."""
        self.steps.batches.prepare(done, count)

    def run(self, done: int, count: int) -> Metrics:
        """Take `count` gradient steps and return the metrics of the last."""
        scheduled = any(schedule != CONSTANT for schedule in self._schedules.values())
        return self.steps.run(done, count, (lambda offset: self.rates(done + offset)) if scheduled else None)

    def counters(self, done: int) -> dict[str, int]:
        """Return the gradient steps."""
        return {"step": done}
