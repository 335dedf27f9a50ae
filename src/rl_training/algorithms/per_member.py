"""Knobs that may differ between the members of one model: one column per knob, which losses use like a number."""

from collections.abc import Mapping, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor

from rl_training.config.shared_knobs import LearnerKnobs, check_sweepable
from rl_training.errors import ConfigError

Knob = float | Tensor
"""A number that all members share, or a column (members, 1) with one for each."""
KnobsT = TypeVar("KnobsT", bound=LearnerKnobs)


def per_member(knob: Knob, values: Tensor) -> Knob:
    """Return a knob reshaped to broadcast against values (members, ...); a number is returned unchanged.

    A column (members, 1) broadcasts against (members, batch) without help. With any other rank it would match the wrong axis.
    """
    return knob.reshape(-1, *(1 for _ in values.shape[1:])) if isinstance(knob, Tensor) else knob


def swept_knobs(
    knobs_type: type[KnobsT],
    knobs: Mapping[str, Any],
    member_knobs: Sequence[Mapping[str, float]],
    members: int,
    device: torch.device,
) -> KnobsT:
    """Return checked knobs, with a column (members, 1) for each that `member_knobs` names; every member's are checked."""
    checked = knobs_type.checked(knobs)
    if not any(member_knobs):
        return checked
    if len(member_knobs) != members or any(set(own) != set(member_knobs[0]) for own in member_knobs):
        raise ConfigError(f"member_knobs must name the same knobs for each of the {members} members")
    check_sweepable(checked, member_knobs[0])
    every = [knobs_type.checked({**knobs, **own}) for own in member_knobs]

    def column(name: str) -> Tensor:
        # the optimizer computes with rates and decays in float64, as with plain numbers; losses in the batch's float32
        precision = torch.float64 if name.endswith(("_learning_rate", "_weight_decay")) else torch.float32
        return torch.tensor([[getattr(own, name)] for own in every], dtype=precision, device=device)

    return checked.model_copy(update={name: column(name) for name in member_knobs[0]})
