"""A run of two phases: gradient steps on a dataset, then interaction, with one axis of positions through both."""

from collections.abc import Callable, Collection
from typing import Any

from torch import Tensor

from rl_training.algorithms.learner import Metrics
from rl_training.errors import ConfigError
from rl_training.runtime.checkpoint import Checkpoint
from rl_training.runtime.engine import Acceleration, Engine, Phase
from rl_training.runtime.offline import OfflineEngine
from rl_training.runtime.online import OnlineEngine


class TwoPhaseEngine(Engine):
    """Offline up to the switch, online from there on.

    Up to and at the switch everything is that of an offline run: counters, checkpoints, numbers. So a run may be told to go
    on online before it starts or after it has ended, and it makes no difference.
    """

    def __init__(self, offline: OfflineEngine, online: OnlineEngine, planned_steps: int) -> None:
        super().__init__(offline.learner, {}, offline.total + online.total, offline.chunk)
        self.offline, self.online, self.switch = offline, online, offline.total
        self._planned = planned_steps

    def _leading_to(self, position: int) -> tuple[Engine, int]:
        """The engine that leads to a position, and the position as that engine counts."""
        return (self.offline, position) if position <= self.switch else (self.online, position - self.switch)

    def rates(self, position: int) -> dict[str, float]:
        """Return the learning-rate factor of each group at the step that begins at a position."""
        engine, _ = self._leading_to(position + 1)
        return engine.rates(position if engine is self.offline else position - self.switch)

    @property
    def planned_steps(self) -> int:
        """The gradient steps that say how the run goes; those of a phase that may be asked for later are not among them."""
        return self._planned

    def accelerate(self, acceleration: Acceleration) -> None:
        """Let the gradient steps of both phases run as resolved."""
        self.offline.accelerate(acceleration)
        self.online.accelerate(acceleration)

    def prepare(self, first: int, count: int) -> None:
        """Read ahead in the phase of the next positions."""
        engine, after = self._leading_to(first + 1)
        engine.prepare(after - 1, count)

    def run(self, first: int, count: int) -> Metrics:
        """Advance inside one phase; a chunk never crosses the switch."""
        engine, after = self._leading_to(first + 1)
        return engine.run(after - 1, count)

    def counters(self, position: int) -> dict[str, int]:
        """Return gradient steps, and beyond the switch environment steps."""
        engine, inside = self._leading_to(position)
        return engine.counters(inside)

    def position(self, checkpoint: Checkpoint) -> int:
        """Return the position at which a checkpoint stands; one that does not fit the switch is refused."""
        position = checkpoint.step if checkpoint.env_step is None else self.switch + checkpoint.env_step
        if checkpoint.env_step is None and position > self.switch:
            raise ConfigError(f"the online phase begins at step {self.switch}, before the {position} of {checkpoint.path}")
        if self.counters(position)["step"] != checkpoint.step:
            raise ConfigError(f"{checkpoint.path}: was written with an online phase that begins at another step")
        return position

    def phase(self, position: int) -> Phase:
        """Return the phase that leads to a position."""
        if position <= self.switch:
            return Phase(0, self.switch, self.offline.chunk)
        return Phase(self.switch, self.total, self.online.chunk)

    def label(self, position: int) -> str:
        """Return the words for a position in its phase."""
        engine, inside = self._leading_to(position)
        return engine.label(inside)

    def member_metrics(self, member: int) -> dict[str, float]:
        """Return what a log row shows of a member's environment."""
        return self.online.member_metrics(member)

    def freeze(self, members: Collection[int]) -> None:
        """Let the environments of stopped members stand still."""
        self.online.freeze(members)

    def tensors(self, position: int) -> dict[str, Tensor]:
        """Return what the phase of a position adds to a checkpoint."""
        engine, inside = self._leading_to(position)
        return engine.tensors(inside)

    def state(self, position: int) -> dict[str, Any]:
        """Return the plain values that the phase of a position adds to a checkpoint."""
        engine, inside = self._leading_to(position)
        return engine.state(inside)

    def restore(self, checkpoint: Checkpoint) -> None:
        """Take back replay and environments, where the checkpoint lies beyond the switch."""
        if checkpoint.env_step is not None:
            self.online.restore(checkpoint)

    def forget_unless(self, referenced: Callable[[], Collection[str] | None]) -> None:
        """Remove the segments that no checkpoint refers to."""
        self.online.forget_unless(referenced)

    def close(self) -> None:
        """Close environments and data."""
        self.offline.close()
        self.online.close()
