"""The learning curves of going online as a picture, one chart for each set."""

from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from rl_training.analysis.logged_run import Curve
from rl_training.report.bands import band

COLOURS = {"cal_ql": "#0072b2", "iql": "#c75000", "rlpd": "#00795a", "awac": "#a8427f", "td3_bc": "#946300"}


def draw(
    results: Iterable[dict[str, Any]], normalised: Callable[[str, Iterable[float | None]], list[float]], path: Path
) -> None:
    """Write the interquartile means over seeds, with a band over their middle half, by environment steps."""
    results = list(results)
    names = list(dict.fromkeys(one["set"] for one in results))
    figure = Figure(figsize=(11.0, 4.2), layout="constrained")
    for number, name in enumerate(names):
        axes = figure.add_subplot(1, len(names), number + 1)
        for one in (one for one in results if one["set"] == name):
            scores = np.array([normalised(name, row) for row in one["returns"]])
            found = band(Curve(np.array(one["positions"]) - (one["switch"] or 0), scores), range(scores.shape[1]))
            steps = found.positions / 1000
            axes.plot(steps, found.middle, color=COLOURS[one["algo"]], label=one["algo"])
            axes.fill_between(steps, found.low, found.high, color=COLOURS[one["algo"]], alpha=0.18, linewidth=0)
        axes.axvline(0, color="#1a2230", linewidth=1.0, linestyle=(0, (4, 3)))
        axes.set_title(name, loc="left", fontsize=11)
        axes.set_xlabel("thousand environment steps; before the switch, gradient steps offline")
        axes.set_ylabel("score")
        axes.grid(alpha=0.3)
        axes.spines[["top", "right"]].set_visible(False)
    drawn = {name: line for axes in figure.axes for line, name in zip(*axes.get_legend_handles_labels(), strict=True)}
    # below the charts, where no curve is
    figure.legend(list(drawn.values()), list(drawn), loc="outside lower center", ncols=len(drawn), frameon=False)
    figure.savefig(path, dpi=100, metadata={"Software": None})
