"""Where a run is: its phases one after another, and the position in them."""

from collections.abc import Sequence

from rl_training.runtime.phases.base import Phase


class Place:
    """A position in the sequence of a run's phases, in the unit of `total_timesteps`."""

    def __init__(self, phases: Sequence[Phase]) -> None:
        self._phases = phases
        self.position = 0
        self.total = phases[-1].last

    def phase_to(self, position: int) -> Phase:
        """Return the phase that leads to a position."""
        return next(phase for phase in self._phases if position <= phase.last)

    @property
    def phase(self) -> Phase:
        """The phase that led here."""
        return self.phase_to(self.position)

    @property
    def inside(self) -> int:
        """The position counted from the beginning of its phase."""
        return self.position - self.phase.first

    @property
    def counters(self) -> dict[str, int]:
        """The counters shown in metric rows and in the names of checkpoints."""
        return self.phase.counters(self.inside)

    @property
    def moved_rates(self) -> set[str]:
        """The groups whose learning-rate factor has not always been 1, in this phase or one before."""
        return {group for phase in self._phases if phase.first <= self.phase.first for group in phase.moved_rates}

    @property
    def count(self) -> int:
        """The position as its phase counts: gradient steps offline, environment steps online."""
        return next(iter(self.counters.values()))

    @property
    def label(self) -> str:
        """What messages call it, such as `step 120`."""
        return self.phase.label(self.inside)

    @property
    def spent(self) -> bool:
        """Whether the budget of the run ends here."""
        return self.position >= self.total

    @property
    def ends_phase(self) -> bool:
        """Whether the phase ends here."""
        return self.position == self.phase.last

    def next_boundary(self, phase: Phase, intervals: Sequence[int]) -> int:
        """Return the next position at which something may be due: a function of the intervals and the position alone."""
        inside = self.position - phase.first
        return min(phase.last, *(phase.first + (inside // interval + 1) * interval for interval in intervals))
