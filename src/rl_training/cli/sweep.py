"""Sweeps on the command line: how they are requested, and how their results are shown."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.runtime.population import Combination


def parse_sweep(texts: Sequence[str]) -> dict[str, list[Any]]:
    """Return the values by knob of options such as `expectile=0.7,0.9`; the config checks which are legal."""
    from rl_training.config.yaml_loader import parse_scalar

    sweep: dict[str, list[Any]] = {}
    for text in texts:
        knob, _, values = text.partition("=")
        parts = [part.strip() for part in values.split(",")]
        if not knob.strip() or not all(parts):
            raise ConfigError(f"--sweep {text!r}: must look like expectile=0.7,0.8,0.9")
        if knob.strip() in sweep:
            raise ConfigError(f"--sweep {text!r}: `{knob.strip()}` was given before; list all its values at once")
        try:
            sweep[knob.strip()] = [parse_scalar(part) for part in parts]
        except ConfigError:
            raise ConfigError(f"--sweep {text!r}: the values must be numbers, such as expectile=0.7,0.8,0.9") from None
    return sweep


def combination_table(found: "Sequence[Combination]") -> list[str]:
    """Return a table with one line per combination of a sweep, and the best one; empty if no member was evaluated."""
    from rl_training.config.sweep import knob_text
    from rl_training.runtime.population import best_combination

    best = best_combination(found)
    if best is None:
        return []
    rows = [[*found[0].knobs, "return", "std", "members"]]
    for one in found:
        lost = f" ({one.diverged} diverged)" if one.diverged else ""
        figures = ["-", "-"] if one.return_mean is None else [f"{one.return_mean:.1f}", f"{one.return_std:.1f}"]
        rows.append([*(f"{value:g}" for value in one.knobs.values()), *figures, f"{len(one.members)}{lost}"])
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    lines = ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]
    return [*lines, f"best: {knob_text(best.knobs)} with mean return {best.return_mean:.1f}"]
