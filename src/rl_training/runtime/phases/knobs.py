"""Knobs that change when a run goes online: at once, or linearly over the online phase."""

from collections.abc import Mapping
from typing import Any

import torch

from rl_training.algorithms.learner import Learner
from rl_training.config.finetune import Change

_RATE = "_learning_rate"


class KnobChanges:
    """Changes the knobs of a learner; what they are depends on the environment step alone, so a resume changes nothing.

    Knobs of the losses become knobs of the learner. Learning rates become factors, and knobs of acting attributes of the
    model.
    """

    def __init__(self, learner: Learner[Any, Any], changes: Mapping[str, Change], env_steps: int) -> None:
        self._learner, self._changes, self._env_steps = learner, changes, env_steps
        acting = learner.model.knobs_type.acting_knobs
        self._rates = [name for name in changes if name.endswith(_RATE)]
        self._acting = [name for name in changes if name in acting]
        own = [name for name in changes if name not in {*self._rates, *self._acting}]
        self._fixed = {name: changes[name].end for name in own if not changes[name].moves}
        shape, device = (learner.model.members, 1), learner.model.device
        self._columns = {name: torch.zeros(shape, device=device) for name in own if changes[name].moves}
        self._knobs = learner.knobs
        sources = {name: learner.model if name in acting else learner.knobs for name in changes}
        self._offline = {name: getattr(source, name) for name, source in sources.items()}
        self._begun = False

    @property
    def change_acting(self) -> bool:
        """Whether knobs of acting change."""
        return bool(self._acting)

    def apply(self, env_step: int) -> None:
        """Set the knobs to what they are at an environment step."""
        if not self._begun and (self._fixed or self._columns):
            self._learner.change_knobs(self._fixed, self._columns)
        self._begun = True
        for name, column in self._columns.items():
            column.fill_(self._value(name, env_step))
        for name in self._acting:
            setattr(self._learner.model, name, self._value(name, env_step))

    def rate(self, group: str, env_step: int) -> float:
        """Return the factor of a group's learning rate at an environment step."""
        if not self._rates:
            return 1.0
        online = self._knobs.model_copy(update={name: self._value(name, env_step) for name in self._rates})
        before, after = self._knobs.learning_rate(group), online.learning_rate(group)
        return 1.0 if after is before else float(after / before)  # a swept one, which cannot change, is a column

    def _value(self, name: str, env_step: int) -> Any:
        return self._changes[name].at(min(env_step / self._env_steps, 1.0), self._offline[name])
