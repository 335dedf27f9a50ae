"""How far into the future a discounted sum reaches."""

from math import ceil, log

_FORGOTTEN = 0.01  # rewards that count less than this share are left out


def steps_that_count(gamma: float) -> int:
    """Return the number of steps after which a reward counts less than 1 %."""
    return max(1, ceil(log(_FORGOTTEN) / log(gamma))) if gamma > 0.0 else 1
