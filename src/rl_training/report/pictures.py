"""The curves of runs as a PNG, for slides and papers."""

import io
import math
import textwrap
from collections.abc import Sequence
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np

from rl_training.analysis.logged_run import RETURN, LoggedRun
from rl_training.errors import ConfigError
from rl_training.output import printable
from rl_training.report import data_facts, facts
from rl_training.report.bands import Group, curves_text, distinct_names, groups_of, title_of
from rl_training.report.charts import Chart, Line, held_out_charts, return_charts, training_charts, value_charts
from rl_training.report.palette import LIGHT, colour_of, dash_of, kind_dash, reference_dash

if TYPE_CHECKING:
    from matplotlib.axes import Axes

INSTALL = 'pip install "rl-training[plot]"'
SOFTWARE = "rl-training report"  # written into the file, by which it is recognised
_DASH_UNIT = 2.0  # of the dashes of the page, in widths of a line
_COLUMNS, _MOST_CHARTS, _MOST_GROUPS = 3, 15, 16
_NOTE_WIDTH = 170  # characters of a line below the charts
_FEW_POINTS = 25  # of a curve, which are marked, as on the page
_LONGEST_NAMES = 44, 22  # characters of a name in the legend of a large and of a small chart
_FEW_LINES = 4  # on a small chart: more do not fit into a legend


def png(runs: Sequence[LoggedRun], title: str | None = None, *, members: bool = False) -> bytes:
    """Return a picture of the learning curve, and below it of losses and other metrics; a ConfigError without matplotlib."""
    try:
        from matplotlib.figure import Figure
    except ImportError:
        raise ConfigError(f"a PNG needs matplotlib: {INSTALL}") from None
    every = groups_of(runs)
    groups = facts.best_groups(every, _MOST_GROUPS)
    charts = [*return_charts(groups), *held_out_charts(groups), *value_charts(groups)[0], *training_charts(groups)]
    drawn = charts[:_MOST_CHARTS] or [Chart("Nothing logged yet", [])]
    large = max(1, sum(chart.metric == RETURN for chart in drawn))  # these come first, one for each environment
    rows = math.ceil((len(drawn) - large) / _COLUMNS)
    figure = Figure(figsize=(11.0, 4.6 * large + 2.7 * rows), layout="constrained")
    grid = figure.add_gridspec(large + rows, _COLUMNS, height_ratios=[*[1.7] * large, *[1.0] * rows])
    places = [*product(range(large), [slice(None)]), *product(range(large, large + rows), range(_COLUMNS))]
    for chart, place in zip(drawn, places, strict=False):  # the last row may have room for more
        _draw(figure.add_subplot(grid[place]), chart, groups, members=members, legend=place[0] < large)
    names = distinct_names(runs)
    figure.suptitle(printable(title or title_of(runs)), parse_math=False)
    left_out = [
        _left_out("charts", len(charts), _MOST_CHARTS),
        _left_out("curves", len(every), _MOST_GROUPS, facts.best_or_first(every)),
    ]
    told = [facts.as_of_now(curves_text(groups), runs), *data_facts.notes(runs, names), *left_out]
    note = textwrap.fill(printable(" ".join(filter(None, told))), _NOTE_WIDTH)
    figure.supxlabel(note, fontsize=8, color="#525d6e", parse_math=False)
    data = io.BytesIO()
    figure.savefig(data, format="png", dpi=130, metadata={"Software": SOFTWARE})
    return data.getvalue()


def _left_out(what: str, count: int, most: int, which: str = "first") -> str:
    """That there is more than a picture holds; nothing if all is there."""
    return f"The {which} {most} of {count} {what}: a report as HTML has more." if count > most else ""


def _draw(axes: "Axes", chart: Chart, groups: Sequence[Group], *, members: bool, legend: bool = False) -> None:
    """Draw one chart: curves with their bands, references, and where runs went online."""
    from matplotlib.ticker import PercentFormatter

    names = list(dict.fromkeys(line.name for line in chart.lines))
    named = legend or len({line.group for line in chart.lines}) > 1  # the large chart says which run has which colour
    for line in chart.lines:
        whose = _shortened(groups[line.group].label, legend=legend) if named else ""
        label = ", ".join(filter(None, [whose, line.name])).lstrip("_")
        _draw_curve(axes, line, kind=names.index(line.name), label=label, members=members)
    if chart.lines:
        (start, end), margin = chart.steps, 0.01
        axes.set_xlim(start - margin * (end - start), end + margin * (end - start))
        axes.locator_params(axis="x", integer=True, nbins=8 if legend else 5)  # few enough for numbers in millions
    for i, (name, value) in enumerate(chart.references.items()):
        axes.axhline(value, color="#525d6e", linewidth=1.0, linestyle=_style(reference_dash(i)), label=name)
    _draw_switches(axes, groups, sorted({line.group for line in chart.lines}), named=legend)
    axes.set_title(chart.title, fontsize=11 if legend else 9, loc="left", parse_math=False)
    axes.grid(alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    axes.tick_params(labelsize=9 if legend else 7)
    axes.set_xlabel("steps" if legend else "", fontsize=9)
    if chart.percent:
        axes.yaxis.set_major_formatter(PercentFormatter(1.0))
        axes.set_ylim(bottom=max(0.0, axes.get_ylim()[0]))  # no share is below
    if chart.lines and (legend or (len(chart.lines) <= _FEW_LINES and (len(names) > 1 or chart.references))):
        size, below, columns = (8, 4.5, 5) if legend else (6, 3.5, 2)  # below the axis, where it covers no curve
        place: dict[str, Any] = {"loc": "upper center", "bbox_to_anchor": (0.5, 0.0), "borderaxespad": below}
        drawn = axes.legend(fontsize=size, frameon=False, ncols=columns, **place)
        for text in drawn.get_texts():  # names of runs, in which a $ is no mathematics
            text.set_parse_math(False)


def _draw_curve(axes: "Axes", line: Line, *, kind: int, label: str, members: bool) -> None:
    """Draw a curve with its band, a cross where a member ended, and its members; a second kind is thinner, as on the page."""
    band, several = line.band, line.band.members.shape[1] > 1
    style: dict[str, Any] = {
        "color": LIGHT[colour_of(line.group)],
        "linestyle": _style(kind_dash(kind) or dash_of(line.group)),
    }
    if len(band.positions) <= _FEW_POINTS:  # of a single one no line is seen
        style |= {"marker": "o", "markersize": 3.5}
    axes.plot(band.positions, band.middle, label=label, linewidth=1.2 if kind else 1.8, **style)
    if several:
        thin = 0 if len(band.positions) > 1 else 4  # the band of a single point is a bar
        axes.fill_between(band.positions, band.low, band.high, color=style["color"], alpha=0.18, linewidth=thin)
    if members and several:
        axes.plot(band.positions, band.members, linewidth=0.7, alpha=0.5, **style)
    if band.ends:
        ended = np.isin(band.positions, band.ends)
        axes.plot(band.positions[ended], band.middle[ended], "x", color=style["color"], markersize=7)


def _style(dashes: str) -> Any:
    """The dashes of the page as a style of matplotlib."""
    return (0, [float(part) / _DASH_UNIT for part in dashes.split()]) if dashes else "-"


def _shortened(name: str, *, legend: bool) -> str:
    """A name that fits into the legend of a large chart, or of a small one."""
    most = _LONGEST_NAMES[0 if legend else 1]
    return name if len(name) <= most else f"{name[: most - 1]}…"


def _draw_switches(axes: "Axes", groups: Sequence[Group], drawn: Sequence[int], *, named: bool) -> None:
    """Mark where the runs on a chart went online, in the colour of the first that did so there; `named` in the legend too."""
    switches: dict[int, list[int]] = {}
    for number in drawn:
        if (switch := groups[number].run.switch) is not None:
            switches.setdefault(switch, []).append(number)
    for place, own in sorted(switches.items()):
        others = f" and {len(own) - 1} more" if len(own) > 1 else ""
        whose = f"{_shortened(groups[own[0]].label, legend=named)}{others} goes online"
        label = "goes online" if len(own) == len(drawn) else whose
        colour = "#1a2230" if len(switches) == 1 else LIGHT[colour_of(own[0])]
        style: dict[str, Any] = {"color": colour, "linewidth": 1.0, "linestyle": (0, (4, 3))}
        axes.axvline(place, label=label.lstrip("_") if named else None, **style)
