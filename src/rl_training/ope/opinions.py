"""Estimates of one policy's value as opinions: each with an interval, what it rests on and a plain verdict; and their sum."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

import numpy as np

Verdict = Literal["trust", "doubt", "cannot tell"]
LEVEL = 0.90  # of every interval
_T_90 = {
    1: 6.314,
    2: 2.920,
    3: 2.353,
    4: 2.132,
    5: 2.015,
    6: 1.943,
    7: 1.895,
    8: 1.860,
    9: 1.833,
}  # 95 % quantiles of Student's t
_NORMAL_90 = 1.645
_ROUGH = 0.25  # of the spread of logged returns: a value that is known no better hardly tells policies apart
_ORDER: tuple[Verdict, ...] = ("trust", "doubt", "cannot tell")


@dataclass(frozen=True)
class Opinion:
    """What one estimator says of a policy."""

    value: float | None  # None where there is none, after divergence for example
    std: float
    interval: tuple[float, float]
    effective_episodes: float
    verdict: Verdict
    reasons: tuple[str, ...] = ()

    @property
    def usable(self) -> bool:
        """Whether it may count."""
        return self.value is not None and self.verdict != "cannot tell"

    def plain(self) -> dict[str, Any]:
        """Return plain values."""
        known = self.value is not None
        figures = {"std": self.std if known else None, "interval": list(self.interval) if known else [None, None]}
        return {**asdict(self), **figures, "reasons": list(self.reasons)}


@dataclass
class Doubts:
    """Collects reasons; the worst decides the verdict, and comes first."""

    level: int = 0
    reasons: list[str] = field(default_factory=list)

    def if_(self, condition: bool, verdict: Verdict, reason: str) -> "Doubts":
        """Add a reason where a condition holds."""
        if condition:
            level = _ORDER.index(verdict)
            self.reasons.insert(0 if level > self.level else len(self.reasons), reason)
            self.level = max(self.level, level)
        return self

    @property
    def verdict(self) -> Verdict:
        """The verdict so far."""
        return _ORDER[self.level]


def opinion(value: float, std: float, networks: int, effective: float, doubts: Doubts) -> Opinion:
    """Return an estimate with a 90 % interval, wider where its spread is known from few networks."""
    if not np.isfinite(value) or not np.isfinite(std):
        return Opinion(None, float("inf"), (-np.inf, np.inf), 0.0, "cannot tell", ("the estimate is not finite",))
    reach = _T_90.get(networks - 1, _NORMAL_90) * std
    return Opinion(
        float(value), float(std), (value - reach, value + reach), float(effective), doubts.verdict, tuple(doubts.reasons)
    )


def joint(opinions: Mapping[str, Opinion], networks: int, doubts: Doubts) -> Opinion:
    """Return what several opinions say together: their mean, and no surer than they agree.

    Each has one vote. Weighted by their precision they would be combined differently from policy to policy, and the errors of
    an estimator, which policies largely share, would change their order. They rest on the same rows, so two that agree are no
    surer than one; the variance is theirs, on average, or that between them, whichever is larger.
    """
    usable = {name: one for name, one in opinions.items() if one.usable}
    counted = [one for one in (usable or opinions).values() if one.value is not None]
    if not counted:
        return opinion(np.nan, np.nan, 0, 0.0, doubts)
    values, variances = np.array([one.value for one in counted]), np.array([one.std**2 for one in counted])
    between = float(values.var(ddof=1)) if len(values) > 1 else 0.0
    if len(usable) > 1:
        shown = " and ".join(f"{value:z.4g}" for value in values)
        doubts.if_(between > 4.0 * variances.mean(), "doubt", f"{' and '.join(usable)} disagree: {shown}")
    doubts.if_(not usable, "cannot tell", "no estimate can be trusted here")
    doubts.if_(0 < len(usable) < len(opinions), "doubt", f"its value is that of {' and '.join(usable)} alone")
    common = tuple(doubts.reasons)
    for name, one in opinions.items():
        own = [reason for reason in one.reasons if reason not in common]
        doubts.if_(one.verdict != "trust" and bool(own), "doubt", f"{name}: {'; '.join(own)}")
    std = float(np.sqrt(max(variances.mean(), between)))
    return opinion(float(values.mean()), std, networks, max(one.effective_episodes for one in counted), doubts)


def precise(found: Opinion, spread: float) -> Opinion:
    """Return an opinion that is doubted where it is not much more precise than logged episodes differ by `spread`."""
    doubts = Doubts(_ORDER.index(found.verdict), list(found.reasons))
    rough = f"its value has a standard deviation of {found.std:.3g}, and what logged episodes earned one of {spread:.3g}"
    doubts.if_(_ROUGH * spread < found.std <= spread, "doubt", rough).if_(found.std > spread, "cannot tell", rough)
    return replace(found, verdict=doubts.verdict, reasons=tuple(doubts.reasons))


def possible(found: Opinion, low: float, high: float) -> Opinion:
    """Return an opinion whose interval ends where the rewards end; a value beyond that cannot be told."""
    if found.value is None:
        return found
    doubts = Doubts(_ORDER.index(found.verdict), list(found.reasons))
    beyond = f"its value is {found.value:z.4g}, and the rewards allow {low:z.4g} to {high:z.4g}"
    doubts.if_(not low <= found.value <= high, "cannot tell", beyond)
    ends = tuple(min(max(end, low), high) for end in found.interval)
    return replace(found, interval=ends, verdict=doubts.verdict, reasons=tuple(doubts.reasons))  # type: ignore[arg-type]
