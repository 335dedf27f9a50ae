"""`rl-training ope | select`: what policies would earn by the log, and which of them to take or to try."""

import json
import re
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Annotated, Any

import typer

from rl_training.cli.grouping import Remark, grouped
from rl_training.cli.options import DebugOption, DeviceOption, JsonOption, ReadChoice, local_runs, numbers
from rl_training.errors import ConfigError

if TYPE_CHECKING:
    from rl_training.api.selecting import Candidate, Selection

_OF_A_RUN = re.compile(r"((?:@\d+)?(?::\d+)?)$")  # what a name of a policy has after its run


def _local_policies(names: list[str]) -> list[str]:
    """Names of policies, those of runs in a store with the local copies of these."""
    parted = [_OF_A_RUN.split(name, maxsplit=1)[:2] for name in names]
    return [run + suffix for run, (_, suffix) in zip(local_runs([run for run, _ in parted]), parted, strict=True)]


RunsArgument = Annotated[
    list[str],
    typer.Argument(
        help="Run directories or checkpoints; every member of a population counts, or those named: RUN:MEMBER, RUN@STEP.",
        metavar="RUN...",
        callback=_local_policies,
    ),
]
AgainOption = Annotated[bool, typer.Option("--again", help="Evaluate anew, even if the same was evaluated before.")]
_ESTIMATORS = ("fqe", "model", "dr", "wpdis")
_MOST_NAMED = 3  # columns and episodes that are named in a line


def ope(
    runs: RunsArgument,
    reading: ReadChoice,
    data: Annotated[str | None, typer.Option(help="Logged data to judge by; by default that of the first run.")] = None,
    checkpoints: Annotated[str, typer.Option(help="Of each run: latest, best, all that it kept, or a step.")] = "latest",
    gamma: Annotated[float | None, typer.Option(help="Discount of the values; by default that of the runs.")] = None,
    rows: Annotated[int, typer.Option(help="Most rows of the data to use, in whole episodes.", min=100)] = 100_000,
    steps: Annotated[int | None, typer.Option(help="Gradient steps of each fit, if not as many as usual.", min=1)] = None,
    seed: Annotated[int, typer.Option(help="Seed of the estimators.", min=0)] = 0,
    again: AgainOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Estimate from logged data what policies would earn, with intervals, and say which of it to trust."""
    del debug
    reading.check_used_with(data)
    from rl_training.api.kept_estimates import answered
    from rl_training.api.off_policy import ask

    wanted: dict[str, Any] = {"checkpoints": checkpoints, "gamma": gamma, "rows": rows, "steps": steps, "seed": seed}
    asked = ask(runs, data, **wanted, **reading.settings)
    found = answered(asked, again=again, device=device or "auto", tell=_teller(as_json), warn=_warn)
    if as_json:
        print(json.dumps(found.report))
        return
    for warning in found.report["warnings"]:
        _warn(warning)
    _print_estimates(found.report)
    if found.files:
        print(f"kept in {', '.join(map(str, found.files))}; `rl-training report` shows it")


def _teller(as_json: bool) -> Callable[[str], None]:
    """What says how far an evaluation is, on standard error."""
    return (lambda _: None) if as_json else (lambda text: print(text, file=sys.stderr))


def _warn(text: str) -> None:
    print(f"warning: {text}", file=sys.stderr)


def _print_estimates(report: Mapping[str, Any]) -> None:
    from rl_training.report.off_policy.facts import episodes_text
    from rl_training.report.off_policy.kept import rank

    episodes = episodes_text(report["episodes"], report.get("whole_episodes", report["episodes"]))
    print(f"{report['data']}: {report['rows']:,} rows, {episodes}")
    print(f"values are discounted by {report['gamma']:g} from where episodes begin, with 90 % intervals")
    rows: list[Sequence[str]] = [("policy", "value", "", *_ESTIMATORS, "beyond the data", "verdict")]
    logged = report["logged"]
    rows.append(("(the log)", *_value_cells(logged), *("" for _ in _ESTIMATORS), "", ""))
    policies = sorted(report["policies"], key=lambda one: rank(one["verdict"], one["value"]))
    for one in policies:
        each = [_estimate_cell(one["estimates"][name]) for name in _ESTIMATORS]
        rows.append((one["name"], *_value_cells(one), *each, f"{one['support']['beyond']:.0%}", one["verdict"]))
    _print_table(rows)
    print("~ doubtful, ? cannot be told from this data")
    if len(policies) > 1:
        print(
            "these policies share learned features: with others beside them, their values and that of the log differ somewhat"
        )
    for line in grouped([pair for one in policies for pair in _remarks(one)], [one["name"] for one in policies]):
        print(line)


def _remarks(one: Mapping[str, Any]) -> Iterator[Remark]:
    """Why a verdict is not better, where the policy leaves the data, and what to do."""
    for number, reason in enumerate(one["reasons"]):  # the first is what decides
        yield Remark(one["name"], f"{'also' if number else one['verdict']}: {reason}")
    if one["verdict"] != "trust" and (where := _where(one["support"])):
        yield Remark(one["name"], *where)
    if one.get("advice"):
        yield Remark(one["name"], f"to know more: {one['advice']}")


def _value_cells(one: Mapping[str, Any]) -> tuple[str, str]:
    if one["value"] is None:
        return "-", ""
    low, high = one["interval"]
    return f"{one['value']:z.4g}", f"[{low:z.4g}, {high:z.4g}]"


def _estimate_cell(one: Mapping[str, Any]) -> str:
    """An estimate with a mark of its verdict."""
    mark = {"trust": "", "doubt": " ~", "cannot tell": " ?"}[one["verdict"]]
    return "?" if one["value"] is None else f"{one['value']:z.4g}{mark}"


def _where(support: Mapping[str, Any]) -> tuple[str, str] | None:
    """Where a policy leaves the data most, in a sentence, and in which episodes."""
    actions = sorted(support["actions"].items(), key=lambda pair: -pair[1])[:_MOST_NAMED]
    seen = sorted(support["observations"].items(), key=lambda pair: -abs(pair[1]))[:_MOST_NAMED]
    if not actions or actions[0][1] == 0.0:
        return None
    moved = ", ".join(f"{name} ({value:.2g} deviations)" for name, value in actions)
    there = ", ".join(sorted(f"{name} is {'high' if value > 0.0 else 'low'}" for name, value in seen if abs(value) > 0.2))
    episodes = sorted(support["episodes"].items(), key=lambda pair: (-pair[1], int(pair[0])))[:_MOST_NAMED]
    listed = ", ".join(f"{number} ({share:.0%})" for number, share in episodes)
    return f"it leaves the data most in {moved}" + (f", where {there}" if there else ""), f"; episodes {listed}"


def select(
    runs: RunsArgument,
    reading: ReadChoice,
    data: Annotated[str | None, typer.Option(help="Logged data to judge by; by default that of the runs.")] = None,
    checkpoints: Annotated[str, typer.Option(help="Of each run: latest, best or all that it kept.")] = "latest",
    result: Annotated[
        list[str] | None,
        typer.Option(help="Returns of real episodes: NAME=SCORE or NAME=3.1,2.9; may be repeated.", metavar="NAME=SCORE"),
    ] = None,
    budget: Annotated[int, typer.Option(help="Real episodes that can be run next.")] = 10,
    again: AgainOption = False,
    device: DeviceOption = None,
    as_json: JsonOption = False,
    debug: DebugOption = False,
) -> None:
    """Rank policies by logged data and real results, and say which to try next and what would settle the choice."""
    del debug
    if checkpoints not in ("latest", "best", "all"):
        raise ConfigError(f"--checkpoints {checkpoints!r}: must be latest, best or all")
    results = parse_results(result or ())
    reading.check_used_with(data)
    from rl_training.api import selecting

    settings = {"checkpoints": checkpoints, "device": device or "auto", "again": again, **reading.settings}
    found = selecting.select(runs, data, results=results, budget=budget, tell=_teller(as_json), warn=_warn, **settings)
    if as_json:
        print(json.dumps(found.plain()))
        return
    for warning in found.warnings:
        _warn(warning)
    _print_selection(found)


def parse_results(texts: Sequence[str]) -> dict[str, list[float]]:
    """Return the results by name of options such as `runs/a=3.1,2.9`; those of one name are joined."""
    found: dict[str, list[float]] = {}
    for text in texts:
        name, separator, values = text.rpartition("=")
        if not separator or not name:
            raise ConfigError(f"--result {text!r}: must look like runs/a=3.1 or runs/a=3.1,2.9")
        found.setdefault(name, []).extend(numbers(values, "result"))
    return found


def _print_selection(found: "Selection") -> None:
    told = "estimates are discounted, with 90 % intervals; results are returns of real episodes; +- is one standard deviation"
    print(f"{len(found.candidates)} policies by {found.data}; {told}")
    rows: list[tuple[str, ...]] = [("", "policy", "estimate", "verdict", "results", "expected return", "best")]
    rows += [_candidate_row(rank, one) for rank, one in enumerate(found.candidates, 1)]
    _print_table(rows)
    if any(one.value is not None and not one.counted for one in found.candidates):
        print("not used: the log cannot tell what it returns, which says nothing against it: it counts as one of the others")
    shares = ", ".join(f"{name} x{count}" for name, count in found.shares.items())
    print(f"try first: {shares}")
    print(f"\n{found.conclusion}")  # apart from the table, and last: it is what people look for


def _candidate_row(rank: int, one: "Candidate") -> tuple[str, ...]:
    estimate = "-" if one.value is None else f"{one.value:z.4g} [{one.interval[0]:z.4g}, {one.interval[1]:z.4g}]"
    verdict = one.verdict if one.counted or one.value is None else f"{one.verdict}, not used"
    results = f"{len(one.results)}: {sum(one.results) / len(one.results):z.4g}" if one.results else "-"
    expected = f"{one.expected_return:z.4g} +- {one.expected_std:.2g}"
    return str(rank), one.name, estimate, verdict, results, expected, f"{one.chance:.0%}"


def _print_table(rows: Sequence[Sequence[str]]) -> None:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    for row in rows:
        print("  ".join(text.ljust(width) for text, width in zip(row, widths, strict=True)).rstrip())
