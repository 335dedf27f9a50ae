"""Builds a learner and its networks as the registry defines them."""

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from rl_training.algorithms.learner import Learner
from rl_training.config.blocks import EVEN_VARIANCE, AlgorithmKwargs
from rl_training.data.spaces import Spaces
from rl_training.registry import get_spec


def build_learner(
    algo: str,
    spaces: Spaces,
    seeds: Sequence[int],
    device: torch.device,
    kwargs: AlgorithmKwargs,
    member_knobs: Sequence[Mapping[str, float]] = (),
) -> Learner[Any, Any]:
    """Return a learner with one member per seed; the learner and its networks each take their knobs from `algo_kwargs`.

    An `auto` that was not fitted to data gets the value for actions that fill their range evenly; only training needs it.
    """
    spec, kwargs = get_spec(algo), kwargs.fitted(lambda: EVEN_VARIANCE)
    shape = {name: getattr(kwargs, name) for name in spec.model_type.knobs_type.model_fields}
    knobs = {name: getattr(kwargs, name) for name in spec.learner.knobs_type.model_fields}
    model = spec.model_type(spaces.observation_dim, spaces.learned_dim, seeds=seeds, device=device, **shape)
    learner: Learner[Any, Any] = spec.learner(model, member_knobs=member_knobs, **knobs)
    return learner
