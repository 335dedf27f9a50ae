"""The bounds of actions that the reader of a file states, beside what the file holds."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from rl_training.config.blocks import ReadOptions
from rl_training.errors import ConfigError

_NAMES = ("`action_low` (--action-low)", "`action_high` (--action-high)")


def requested_bounds(options: ReadOptions, width: int, source: str) -> tuple[NDArray[np.float32], NDArray[np.float32]] | None:
    """Return the bounds that the options state for `width` actions, or None; what cannot be is refused under its own name.

    One number is that of every action. The file is not at fault here, so this is an error of the settings.
    """
    if options.action_low is None or options.action_high is None:
        return None
    stated = (options.action_low, options.action_high)
    wrong = [_counted(name, bound) for name, bound in zip(_NAMES, stated, strict=True) if len(bound) not in (1, width)]
    if wrong:
        has = "has 1 action: give one" if width == 1 else f"has {width} actions: give {width}, or one for all"
        raise ConfigError(f"{' and '.join(wrong)}, and {source} {has}")
    with np.errstate(over="ignore"):  # what single precision cannot hold is refused below
        low, high = (np.broadcast_to(np.asarray(bound, dtype=np.float32), width).copy() for bound in stated)
    for name, bound in zip(_NAMES, (low, high), strict=True):
        if not np.isfinite(bound).all():
            raise ConfigError(f"{name} must be finite numbers, got {bound.tolist()}")
    if (above := np.flatnonzero(low > high)).size:
        column = int(above[0])
        raise ConfigError(f"{_NAMES[0]} is {low[column]:g} for action {column}, above {high[column]:g}, its {_NAMES[1]}")
    return low, high


def _counted(name: str, bound: Sequence[float]) -> str:
    return f"{name} has {len(bound)} number{'s' * (len(bound) != 1)}"
