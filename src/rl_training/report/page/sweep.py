"""The combinations of a sweep on a page, and how sure the best of them is."""

from collections.abc import Sequence

from rl_training.output import prose
from rl_training.report import facts
from rl_training.report.bands import Group, summarize
from rl_training.report.facts import MemberFacts
from rl_training.report.page.html import Cell, Row, returns_cell, table

_MOST_ROWS = 500
Ranked = Sequence[tuple[Group, Sequence[MemberFacts]]]


def combinations(groups: Sequence[Group]) -> str:
    """Return the results of each combination of a sweep over its seeds, the best first; nothing without a sweep."""
    rows: list[Row] = []
    for group, own in facts.combinations(groups)[:_MOST_ROWS]:
        label, count, final, best = facts.combination_cells(group, own)
        returns = [returns_cell(text, facts.returns_of(own, name)) for text, name in ((final, "final"), (best, "best"))]
        rows.append([label, Cell(count, len(own), number=True), *returns])
    if not rows:
        return ""
    runs = [group.run for group in groups]
    note, *headings = (facts.as_of_now(text, runs) for text in (facts.COMBINATIONS_NOTE, *facts.COMBINATIONS))
    listed = table(headings, rows, "Combinations", sortable=True, tall=len(rows) > 14)
    return f'<section><h2>Combinations</h2><p class="note">{prose(note)}</p>{listed}</section>'


def chance_text(ranked: Ranked) -> str:
    """Return that the best combination may be so by chance, and why; empty where it leads by more than seeds differ."""
    finals = [facts.returns_of(own, "final") for _, own in ranked[:2]]
    if len(finals) < 2 or not all(map(len, finals)):
        return ""
    if max(map(len, finals)) == 1:
        return "that may be chance, with one seed each"
    lead = summarize(finals[0])[0] - summarize(finals[1])[0]
    spread = max(float(values.max() - values.min()) for values in finals)
    return "that may be chance: the second differs by less than the seeds do" if lead < spread else ""
