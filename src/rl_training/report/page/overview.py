"""The verdict on runs, at the top of a page."""

from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path

from rl_training.analysis.endings import missing_rows, seeds_text
from rl_training.analysis.logged_run import LoggedRun
from rl_training.registry import get_spec
from rl_training.report import data_facts, facts
from rl_training.report.bands import MANY, Numbers, groups_of, summarize
from rl_training.report.facts import MemberFacts, number
from rl_training.report.live.progress import progress_text
from rl_training.report.page.html import Cell, Markup, Row, card, in_brackets, prose, table, whole
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
        own, _, final, best, distance, algo, where, count, steps, time = cells = facts.overview_cells(run, name, timing)
        returns = [
            Cell(in_brackets(shown), _sorted_by(facts.returns_of(found, which)), number=True)
            for shown, which in ((final, "final"), (best, "best"))
        ]
        taken, spent = Cell(steps, facts.steps_taken(run)), Cell(whole(time), timing.seconds, number=True)
        texts.append(cells)
        away = Cell(in_brackets(distance), number=True)
        rows.append(
            [
                own,
                Cell(Markup(", ".join(filter(None, (_status(run).text, escape(progress))))), long=bool(progress)),
                *returns,
                away,
                algo,
                where,
                Cell(count, number=True),
                taken,
                spent,
            ]
        )
    kept = facts.filled_columns(texts)
    shown = [[row[i] for i in kept] for row in rows]
    listed = table([facts.as_of_now(facts.OVERVIEW[i], runs) for i in kept], shown, "Runs", sortable=True)
    notes = filter(None, (facts.returns_note(runs, names), *data_facts.notes(runs, names)))
    note = "".join(f'<p class="note">{prose(text)}</p>' for text in notes)
    return f"<section><h2>Runs</h2>{note}{listed}{''.join(map(_message, runs))}</section>"


def _sorted_by(values: Numbers) -> float | str:
    return float(summarize(values)[0]) if len(values) else ""


def _cards(run: LoggedRun, timing: Timing) -> str:
    found = facts.member_facts(run)
    final, best = (facts.returns_of(found, which) for which in ("final", "best"))
    cards = [
        card("status", _status(run), progress_text(run)),
        card("algorithm", run.config.algo),
        card("learned on", facts.source_of(run), _evaluated_in(run)),
        card("members", facts.count_text(found), seeds_text(run.seeds.values())),
        card("steps", *_two_lines(facts.steps_text(run))),
        card("time", facts.time_text(timing), facts.speed_text(timing)),
    ]
    best_of, episodes = facts.combinations(groups_of([run])), run.config.final_rhythm.eval_episodes
    name = facts.as_of_now("final return", [run])
    whose = "each member's " if facts.lost_members(run) else ""  # the curve goes on without those that diverged
    last = f"{whose}last evaluation, {episodes} episode{'s' if episodes > 1 else ''}"
    which_best = "each member's best evaluation" if len(best) > 1 else f"best evaluation, {found[0].best_text}"
    if best_of and len(final):
        group, own = best_of[0]
        value = facts.returns_of(own, "final")
        cards += [
            card("best combination", group.label, f"of {len(best_of)}, by the {name}"),
            card(f"its {name}", number(summarize(value)[0]), _spread(value, own, last)),
        ]
    elif len(final):
        cards += [card(name, number(summarize(final)[0]), _spread(final, found, last))]
        cards += [card("best return", number(summarize(best)[0]), _spread(best, found, which_best))]
    elif run.config.final_env_id:
        cards += [card(name, "none yet" if run.record["status"] == "running" else "none", "not evaluated")]
    else:
        cards += _held_out_card(run)
    return "".join(cards)


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
    return [card("from the logged actions", f"{own:.1%}", f"of the range; best constant action {best:.1%}")]


def _two_lines(text: str) -> tuple[str, str]:
    first, _, second = text.partition(" ")
    return first, second


def _spread(values: Numbers, members: Sequence[MemberFacts], what: str) -> str:
    """What a number of some members is: the middle of how many values, from where to where; and how many diverged."""
    lost = sum(one.diverged for one in members)
    count = f" of {len(values)} members" if len(values) < len(members) else ""
    told = [what]
    if len(values) > 1:
        told.insert(0, f"{'mean' if len(values) < MANY else 'interquartile mean'}{count}, {facts.range_text(values)}")
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
