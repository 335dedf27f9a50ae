"""The verdict on runs, at the top of a page."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from rl_training.analysis.endings import missing_rows, seeds_text
from rl_training.analysis.logged_run import LoggedRun
from rl_training.analysis.random_play import random_play
from rl_training.output import prose
from rl_training.registry import get_spec
from rl_training.report import data_facts, facts
from rl_training.report.bands import MANY, Numbers, groups_of, summarize
from rl_training.report.facts import MemberFacts, number
from rl_training.report.live.progress import progress_text
from rl_training.report.page.html import Cell, Markup, Row, card, in_brackets, returns_cell, table, whole
from rl_training.report.page.sweep import chance_text
from rl_training.report.timing import Timing


def overview(runs: Sequence[LoggedRun], names: Sequence[str], timings: Mapping[Path, Timing]) -> str:
    """Return the verdict: cards for one run, a table for several."""
    if len(runs) == 1:
        cards = _cards(runs[0], timings[runs[0].path])
        return f'<section aria-label="Overview"><dl class="cards">{cards}</dl>{_message(runs[0])}</section>'
    rows: list[Row] = []
    texts: list[list[str]] = []
    for run, name in zip(runs, names, strict=True):
        found, timing, progress = facts.counted_members(run), timings[run.path], progress_text(run)
        own, final, best, distance, _, algo, where, count, steps, time = cells = facts.overview_cells(run, name, timing)
        texts.append(cells)
        status = ", ".join(filter(None, (_status(run).text, escape(progress))))
        rows.append(
            [
                own,
                returns_cell(final, facts.returns_of(found, "final")),
                returns_cell(best, facts.returns_of(found, "best")),
                Cell(in_brackets(distance), number=True),
                Cell(Markup(status), long=bool(progress)),
                *(algo, where, Cell(count, number=True)),
                *(Cell(steps, facts.steps_taken(run)), Cell(whole(time), timing.seconds, number=True)),
            ]
        )
    kept = facts.filled_columns(texts)
    shown = [[row[i] for i in kept] for row in rows]
    listed = table([facts.as_of_now(facts.OVERVIEW[i], runs) for i in kept], shown, "Runs", sortable=True)
    notes = filter(None, (facts.returns_note(runs, names), *data_facts.notes(runs, names)))
    below = "".join([*map(_message, runs), *(f'<p class="note">{prose(text)}</p>' for text in notes)])
    return f'<section><h2>Runs</h2>{listed}<div class="after">{below}</div></section>'


def _cards(run: LoggedRun, timing: Timing) -> str:
    """The answer first: what came out, and whether that beats the data; then how."""
    found = facts.member_facts(run)
    return "".join(
        [
            *_results(run, found),
            card("status", _status(run), progress_text(run)),
            card("algorithm", run.config.algo),
            card("learned on", facts.source_of(run), _evaluated_in(run)),
            card("members", facts.count_text(found), seeds_text(run.seeds.values())),
            card("steps", *_two_lines(facts.steps_text(run))),
            card("time", facts.time_text(timing), facts.speed_text(timing)),
        ]
    )


def _results(run: LoggedRun, found: Sequence[MemberFacts]) -> list[str]:
    """The cards of the returns; without an environment that of the distance to the data."""
    ranked, episodes = facts.combinations(groups_of([run])), facts.episodes_of(run)
    name = facts.as_of_now("final return", [run])
    final, best = (facts.returns_of(found, which) for which in ("final", "best"))
    whose = "each member's " if facts.lost_members(run) else ""  # the curve goes on without those that diverged
    last = f"{whose}last evaluation, {episodes} episode{'s' if episodes > 1 else ''}"
    if ranked and len(final):
        group, own = ranked[0]
        told = "; ".join(filter(None, (f"of {len(ranked)}, by the {name}", chance_text(ranked))))
        return [card("best combination", group.label, told), _final_card(run, f"its {name}", own, last)]
    if len(final):
        which = "each member's best evaluation" if len(best) > 1 else f"best evaluation, {found[0].best_text}"
        best_card = card("best return", number(summarize(best)[0]), _spread(best, found, which))
        return [_final_card(run, name, found, last), best_card]
    if run.config.final_env_id:
        return [card(name, "none yet" if run.record["status"] == "running" else "none", "not evaluated")]
    return _held_out_card(run)


def _final_card(run: LoggedRun, name: str, members: Sequence[MemberFacts], last: str) -> str:
    """The return that a run ended with, beside what it should beat."""
    values, (least, whose) = facts.returns_of(members, "final"), _yardstick(run)
    reached, told = float(summarize(values)[0]), _spread(values, members, last)
    if least is None:
        return card(name, number(reached), told)
    worse = reached < least
    beside = "below" if worse else "above" if reached > least else "equal to"
    shown = Markup(f'<span class="warn">{number(reached)}</span>') if worse else number(reached)
    return card(name, shown, f"{beside} {whose}, {number(least)}; {told}")


def _yardstick(run: LoggedRun) -> tuple[float | None, str]:
    """The return that the policy should beat, and whose it is: that of the data, or of random actions."""
    play = random_play(run)
    return (data_facts.return_mean(run), "the mean return in the data") if play is None else (play.mean, "random actions")


def _evaluated_in(run: LoggedRun) -> str:
    """Where a run was evaluated, if that is not where it learned."""
    env = run.config.final_env_id
    return f"evaluated in {env}" if env and run.switch is None and not get_spec(run.config.algo).online else ""


def _held_out_card(run: LoggedRun) -> list[str]:
    """Without an environment the distance to logged actions is the first thing to know of a policy."""
    distances = facts.held_out_distances(run)
    if distances is None:
        return []
    own, best = distances
    shown = Markup(f'<span class="warn">{own:.1%}</span>') if best < own else f"{own:.1%}"
    beside = "worse than the best constant action," if best < own else "best constant action"
    return [card("from the logged actions", shown, f"of the range; {beside} {best:.1%}")]


def _two_lines(text: str) -> tuple[str, str]:
    first, _, second = text.partition(" ")
    return first, second


def _spread(values: Numbers, members: Sequence[MemberFacts], what: str) -> str:
    """What a number of some members is: the middle of how many values, from where to where; and how many diverged."""
    lost = sum(one.diverged for one in members)
    count = f" of {len(values)} members" if len(values) < len(members) else ""
    told = [what]
    if len(values) > 1:
        ends = f"lowest {number(values.min())}, highest {number(values.max())}"
        told.insert(0, f"{'mean' if len(values) < MANY else 'interquartile mean'}{count}, {ends}")
    elif count:
        told.insert(0, f"of one of {len(members)} members")
    if lost:
        never = sum(one.diverged and one.final is None for one in members)
        told.append(f"{lost} of {len(members)} diverged{f', {never} of them before any evaluation' if never else ''}")
    return "; ".join(told)


def _status(run: LoggedRun) -> Markup:
    known = {"finished": "warn" if facts.lost_members(run) else "good", "running": "warn", "stopped by a signal": "warn"}
    kind = known.get(facts.status_of(run), "bad")
    return Markup(f'<span class="{kind}">{escape(facts.outcome_of(run))}</span>')


def _message(run: LoggedRun) -> str:
    message = run.record.get("message")
    told = [f'<p class="note">{escape(run.name)}: {prose(str(message))}</p>'] if message else []
    missing = (f'<p class="bad">{escape(run.name)}: {prose(text)}</p>' for text in missing_rows(run))
    return "".join([*told, *missing])
