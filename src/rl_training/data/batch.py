"""The batch type that datasets and replay buffers return and learners take."""

from dataclasses import dataclass, fields, replace
from typing import Self

from torch import Tensor

from rl_training.errors import ConfigError


@dataclass(frozen=True, slots=True)
class Batch:
    """Transitions for one update; a solo learner also takes the fields without the members axis."""

    observations: Tensor  # (members, batch, observation_dim)
    actions: Tensor  # (members, batch, action_dim), scaled to [-1, 1] for learners
    rewards: Tensor  # (members, batch)
    next_observations: Tensor  # (members, batch, observation_dim)
    terminals: Tensor  # (members, batch), 1.0 only for a true end; a timeout still bootstraps
    next_actions: Tensor | None = None  # (members, batch, action_dim), NaN where unknown: after a cut, or if collected
    returns_to_go: Tensor | None = None  # (members, batch)
    discounts: Tensor | None = None  # (members, batch), of the value at the end of several steps; None is gamma, of one
    prior: Tensor | None = None  # (members, batch), 1.0 for rows of prior data in a mixed batch

    def without_members(self) -> Self:
        """Return the first member's batch without the members axis."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        return replace(self, **{name: value[0] for name, value in values.items() if value is not None})

    def with_members(self, members: int) -> Self:
        """Return the batch with a members axis of length `members`; a batch without one gets an axis of length 1."""
        batch = self
        if self.rewards.ndim == 1:
            values = {f.name: getattr(self, f.name) for f in fields(self)}
            batch = replace(self, **{name: value.unsqueeze(0) for name, value in values.items() if value is not None})
        if batch.rewards.shape[0] != members:
            raise ConfigError(
                f"the batch has rewards of shape {tuple(self.rewards.shape)}; "
                f"({members}, batch) is needed for {members} members"
            )
        return batch
