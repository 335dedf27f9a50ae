"""What training warned of: the doctor's findings about the data, and doubts about the policy, as they are by now.

A run keeps each warning once, from when it was first given. Figures of every check are logged, so what became of it is known.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from rl_training.analysis.last_check import LastCheck, last_check
from rl_training.analysis.logged_run import LoggedRun
from rl_training.experiment.kept_warnings import warnings_of
from rl_training.runtime.validating.concerns import CODES, RISING


@dataclass(frozen=True)
class Caution:
    """A warning as a sentence, with where it was given."""

    text: str
    past: bool = False  # whether it no longer holds


def cautions_of(run: LoggedRun) -> list[Caution]:
    """Return the warnings of a run, a doubt that still holds with its latest figures; those that no longer hold come last."""
    checked = last_check(run)
    found = [_caution(str(one["text"]), one.get("at"), checked) for one in warnings_of(run.record)]
    return sorted(found, key=lambda one: one.past)


def _caution(text: str, at: str | None, checked: LastCheck | None) -> Caution:
    """A warning in the light of the last check, if that was a later one and the warning was about what it checks."""
    code = text.partition(": ")[0]
    told = at is None or f" by {at};" in text  # a divergence says itself by when it was seen
    plain = Caution(text if told else f"{text} (at {at})")
    if checked is None or at == checked.place or code not in (*CODES, RISING):
        return plain
    if checked.warnings is None or code == RISING:
        return Caution(f"{text} (at {at}; whether it still holds at {checked.place} is not logged)")
    if code in checked.warnings:
        return Caution(f"{checked.warnings[code]} (at {checked.place}; first at {at})")
    return Caution(f"no longer at {checked.place}: {plain.text}", past=True)


def cautions(runs: Sequence[LoggedRun], names: Sequence[str], more: Sequence[str] = ()) -> list[Caution]:
    """Return the warnings of some runs, with the name of its run before each where there are several, and more of them."""
    found = [
        replace(one, text=f"{name}: {one.text}") if len(runs) > 1 else one
        for run, name in zip(runs, names, strict=True)
        for one in cautions_of(run)
    ]
    return sorted([*found, *map(Caution, more)], key=lambda one: one.past)
