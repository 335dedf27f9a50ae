"""Knobs that members of one model may differ in: one column per knob, which the losses take in the place of a number."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from rl_training.config.knobs import LearnerKnobs, check_sweepable
from rl_training.errors import ConfigError

Knob = float | Tensor
"""A number that all members share, or a column (members, 1) with one for each."""
KnobsT = TypeVar("KnobsT", bound=LearnerKnobs)


def per_member(knob: Knob, values: Tensor) -> Knob:
    """Return a knob as it meets values (members, ...): a number as it is, a column with just as many axes as they have.

    Two axes need no help: a column meets (members, batch) as it is. With any other rank it would meet the wrong axis.
    """
    return knob.reshape(-1, *(1 for _ in values.shape[1:])) if isinstance(knob, Tensor) else knob


def swept_knobs(
    knobs_type: type[KnobsT],
    knobs: Mapping[str, Any],
    member_knobs: Sequence[Mapping[str, float]],
    members: int,
    device: torch.device,
) -> KnobsT:
    """Return checked knobs, with a column (members, 1) for each that `member_knobs` names; every member's are legal."""
    checked = knobs_type.checked(knobs)
    if not any(member_knobs):
        return checked
    if len(member_knobs) != members or any(set(own) != set(member_knobs[0]) for own in member_knobs):
        raise ConfigError(f"member_knobs must name the same knobs for each of the {members} members")
    check_sweepable(knobs_type, member_knobs[0])
    every = [knobs_type.checked({**knobs, **own}) for own in member_knobs]

    def column(name: str) -> Tensor:
        # the optimizer scales a rate in float64, as it does a number; what meets a batch has the batch's precision
        precision = torch.float64 if name.endswith("_learning_rate") else torch.float32
        return torch.tensor([[getattr(own, name)] for own in every], dtype=precision, device=device)

    return checked.model_copy(update={name: column(name) for name in member_knobs[0]})
