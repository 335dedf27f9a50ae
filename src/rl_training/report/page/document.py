"""Runs as one HTML page: no network, no libraries; it opens from disk."""

import hashlib
import re
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cache
from html import escape
from importlib.resources import files
from itertools import count

from rl_training.analysis.logged_run import LoggedRun
from rl_training.report import palette
from rl_training.report.bands import distinct_names, groups_of, title_of
from rl_training.report.cautions import cautions
from rl_training.report.charts import held_out_charts, return_charts, training_charts, value_charts
from rl_training.report.facts import best_groups
from rl_training.report.off_policy.kept import evaluations
from rl_training.report.off_policy.section import section as off_policy
from rl_training.report.page import appendix, overview, sections, sweep
from rl_training.report.page.data import as_json, page_data
from rl_training.report.timing import timing_of

MARK = "<!-- made by rl-training report -->"
_MOST_GROUPS = 40  # curves with bands on a chart
_MOST_DRAWN = 12  # members whose curves are shown without being asked for
_FEWEST_LINKED = 5  # headings from which on a page begins with links to them
_MOST_BANDS = 6  # curves whose bands are
_SCRIPTS = ("state.js", "numbers.js", "charts.js", "cursor.js", "controls.js")  # one function: they share their names


@dataclass(frozen=True)
class Picture:
    """A policy at work: an animation and a still, or the reason why there is none."""

    label: str
    caption: str
    moving: bytes = b""  # GIF
    still: bytes = b""  # PNG


def render_page(
    runs: Sequence[LoggedRun],
    *,
    title: str | None = None,
    members: bool | None = None,
    pictures: Sequence[Picture] = (),
    live: float = 0.0,
    first: str = "",
    left_out: Sequence[str] = (),
) -> str:
    """Return the page of some runs, finished or under way; all texts in it are escaped, and it can load nothing.

    `first` are sections, as HTML, that come before those of the runs; `left_out` says which runs are missing, and why.

    `members` says whether curves of single members are drawn at first; by default those of few. A page loads itself again
    every `live` seconds, unless they are 0, and keeps what the reader has chosen.
    """
    every, names = groups_of(runs), distinct_names(runs)
    groups = best_groups(every, _MOST_GROUPS)
    labels = [group.label for group in groups]
    returns, held_out, training = return_charts(groups), held_out_charts(groups), training_charts(groups)
    values, reasons = value_charts(groups)
    timings = {run.path: timing_of(run) for run in runs}
    data = page_data(groups, [*returns, *values], [*held_out, *training], [timings[group.run.path] for group in groups])
    data["members"] = sum(len(group.members) for group in groups) <= _MOST_DRAWN if members is None else members
    data["bands"] = len(groups) <= _MOST_BANDS
    data["live"] = live
    shown = title or title_of(runs)
    figures = sections.Figures(labels)
    judged, damaged = evaluations(runs, names)
    body = [
        first,
        overview.overview(runs, names, timings),
        sections.warnings(cautions(runs, names, [*left_out, *damaged])),
        sections.curves(groups, len(every), runs, figures, returns, data),
        sweep.combinations(every),
        sections.pictures(pictures),
        sections.values(figures, values, reasons),
        sections.held_out(figures, held_out, groups),
        off_policy(judged),
        sections.training(figures, training),
        appendix.members(every, groups),
        appendix.datasets(runs, names),
        appendix.settings(runs, names),
        appendix.times(runs, names, timings),
    ]
    return _document(shown, "".join(body), as_json(data), live=live)


def _document(title: str, body: str, data: str, *, live: float) -> str:
    """The page around its sections."""
    style = palette.style_sheet() + _asset("page.css")
    script = f'"use strict";(() => {{\n{"".join(map(_asset, _SCRIPTS))}}})();'
    policy = (
        f"default-src 'none'; style-src '{_hash(style)}'; script-src '{_hash(script)}'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )
    now = datetime.now(UTC).strftime("%Y-%m-%d %H:%M:%S UTC" if live else "%Y-%m-%d %H:%M UTC")
    pause = '<button type="button" id="pause">Pause</button>' if live else ""
    fresh = f"; loads itself again every {live:g} second{'s' * (live != 1)}" if live else ""
    return (
        f'<!doctype html>{MARK}<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        '<meta name="viewport" content="width=device-width, initial-scale=1"><meta name="color-scheme" content="light dark">'
        f"<title>{escape(title)}</title><style>{style}</style></head><body>"
        f'<header><div><h1>{escape(title)}</h1><p class="soft">Training report, {now}{fresh}</p></div>'
        f'<div class="buttons">{pause}<button type="button" id="theme">Dark colours</button></div></header>'
        "<main><noscript><p>The curves need JavaScript; the tables hold the results without it.</p></noscript>"
        f"{_contents(body)}</main>"
        f'<script type="application/json" id="report-data">{data}</script><script>{script}</script></body></html>\n'
    )


def _contents(body: str) -> str:
    """The sections of a page, of a long one after a list of links to them."""
    titles = re.findall("<section><h2>(.*?)</h2>", body)
    if len(titles) < _FEWEST_LINKED:
        return body
    links = "".join(f'<li><a href="#part{i}">{title}</a></li>' for i, title in enumerate(titles))
    numbers = count()
    named = re.sub("<section>(?=<h2>)", lambda _: f'<section id="part{next(numbers)}">', body)
    return f'<nav aria-label="Parts of this page"><ul class="contents">{links}</ul></nav>{named}'


@cache
def _asset(name: str) -> str:
    return (files("rl_training") / "assets" / "report" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
