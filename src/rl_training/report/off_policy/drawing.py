"""A value and its interval as a small picture on a scale that several share."""

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

from rl_training.report.facts import number
from rl_training.report.off_policy.facts import value_text
from rl_training.report.off_policy.kept import Estimate
from rl_training.report.page.html import Markup

_WIDTH, _HEIGHT, _ROOM = 1000.0, 20, 0.03  # of a picture, and the part of the scale beside what it must show
_TIP, _ARROW = 2.0, 20.0  # distance of an arrow from the edge, and its length


@dataclass(frozen=True)
class Scale:
    """From where to where pictures reach, and the value of the log in all of them."""

    low: float
    high: float
    logged: Estimate

    @classmethod
    def of(cls, logged: Estimate, others: Sequence[Estimate]) -> "Scale | None":
        """Return a scale for all estimates that say something, else for any; None without numbers."""
        counted = [one for one in others if one.usable] or list(others)
        ends = [end for one in (logged, *counted) for end in (one.low, one.high, one.value) if end is not None]
        if not ends or min(ends) == max(ends):
            return None
        room = _ROOM * (max(ends) - min(ends))
        return cls(min(ends) - room, max(ends) + room, logged)

    def _at(self, value: float | None) -> float:
        share = ((self.low if value is None else value) - self.low) / (self.high - self.low)
        return round(_WIDTH * min(1.0, max(0.0, share)), 1)

    def heading(self) -> Markup:
        """Return the ends of the scale."""
        return Markup(f'<span class="ends"><span>{number(self.low)}</span><span>{number(self.high)}</span></span>')

    def drawn(self, one: Estimate, name: str) -> Markup:
        """Return a picture of an estimate, told in words too."""
        told = escape(", ".join(filter(None, (f"{name}: {value_text(one)}", self.beyond(one)))))
        return Markup(
            f'<svg class="whisker" viewBox="0 0 {_WIDTH:.0f} {_HEIGHT}" preserveAspectRatio="none" role="img" '
            f'aria-label="{told}"><title>{told}</title>{self._log()}{"" if one.value is None else self._whisker(one)}</svg>'
        )

    def _log(self) -> str:
        if self.logged.value is None:
            return ""
        left, right, middle = map(self._at, (self.logged.low, self.logged.high, self.logged.value))
        shade = f'<rect class="band" x="{left}" width="{max(0.0, right - left):.1f}" height="{_HEIGHT}"/>'
        return f'{shade}<path class="reference" stroke-dasharray="3 3" d="M{middle} 0V{_HEIGHT}"/>'

    def beyond(self, one: Estimate) -> str:
        """Return that a value lies outside the scale, and on which side; nothing of one inside."""
        if one.value is None or self.low <= one.value <= self.high:
            return ""
        return f"the value {number(one.value)} lies {'below' if one.value < self.low else 'above'} the scale"

    def _whisker(self, one: Estimate) -> str:
        """A line for the interval, as far as it is on the scale, and a dot for the value, or an arrow to where it lies."""
        left, right, middle = map(self._at, (one.low, one.high, one.value))
        unsure = "" if one.usable else ' stroke-dasharray="5 4"'
        half = _HEIGHT // 2
        line = f'<path class="interval"{unsure} d="M{left} {half}H{right}"/>' if left < right else ""
        if not self.beyond(one):
            return f'{line}<path class="point" d="M{middle} {half}h.01"/>'
        tip, base = abs(middle - _TIP), abs(middle - _TIP - _ARROW)  # from either edge inwards
        return f'{line}<path class="arrow" d="M{base} {half - 6}L{tip} {half}L{base} {half + 6}Z"/>'
