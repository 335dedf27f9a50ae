"""The off-policy evaluation of a policy in its card: the entry of the exported policy, checked and as plain values."""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from rl_training.errors import ConfigError
from rl_training.storage import parse_json, read_regular_file

MAX_BYTES = 4 * 2**20
_MOST_TEXT, _MOST_ENTRIES, _DEEPEST = 2000, 200, 4
_NOT_GIVEN = "No off-policy evaluation was given."


def read_report(path: str | Path) -> dict[str, Any]:
    """Return the report that `rl-training ope RUN --json` wrote; a file that is none is refused with a ConfigError."""
    report = parse_json(read_regular_file(Path(path), MAX_BYTES, ConfigError), str(path), ConfigError)
    if not isinstance(report.get("policies"), list):
        raise ConfigError(f"{path}: has no `policies`; write it with rl-training ope RUN --json > FILE")
    return report


def entry_of(report: Mapping[str, Any], run: Path | None, step: int, member: int) -> dict[str, Any]:
    """Return the report of the policy of a run, step and member: `report` itself, or one of its `policies`."""
    entries = report.get("policies", [report])
    if not isinstance(entries, list) or not all(isinstance(one, Mapping) for one in entries):
        raise ConfigError("the off-policy evaluation is not a list of reports of policies")
    fitting = [one for one in entries if _is_of(one, run, step, member)]
    if len(fitting) != 1:
        there = "; ".join(f"{one.get('run')}, step {one.get('step')}, member {one.get('member')}" for one in entries[:6])
        problem = "more than one report" if fitting else "no report"
        raise ConfigError(f"the off-policy evaluation has {problem} of {run}, step {step}, member {member}; it has: {there}")
    return _checked(fitting[0])


def _is_of(entry: Mapping[str, Any], run: Path | None, step: int, member: int) -> bool:
    """Whether a report is of this policy, as far as it says which it is of."""
    if entry.get("step", step) != step or entry.get("member", member) != member:
        return False
    given = entry.get("run")
    if run is None or given is None:
        return True
    other, own = Path(str(given)), run.resolve()
    known = {own, *own.parents[:2]}  # a checkpoint belongs to the run that it is in
    return other.resolve() in known or (not other.exists() and other.name in {one.name for one in known})


def _checked(entry: Mapping[str, Any]) -> dict[str, Any]:
    """What a card keeps of a report; values of another kind are refused."""
    value, interval, verdict = entry.get("value"), entry.get("interval"), entry.get("verdict")
    reasons, estimates = entry.get("reasons", []), entry.get("estimates", {})
    problems = {
        "value": value is not None and not _is_number(value),
        "interval": interval is not None and not _is_interval(interval),
        "verdict": not _is_text(verdict),
        "reasons": not isinstance(reasons, list) or len(reasons) > _MOST_ENTRIES or not all(map(_is_text, reasons)),
        "estimates": not isinstance(estimates, Mapping) or not _is_plain(estimates),
    }
    for name, wrong in problems.items():
        if wrong:
            raise ConfigError(f"the off-policy evaluation has no legal `{name}`: {str(entry.get(name))[:60]!r}")
    return {"value": value, "interval": interval, "verdict": verdict, "reasons": list(reasons), "estimates": dict(estimates)}


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_interval(value: Any) -> bool:
    return isinstance(value, list | tuple) and len(value) == 2 and all(map(_is_number, value)) and value[0] <= value[1]


def _is_text(value: Any) -> bool:
    return isinstance(value, str) and 0 < len(value) <= _MOST_TEXT


def _is_plain(value: Any, depth: int = 0) -> bool:
    """Whether a value is JSON of a reasonable size."""
    if value is None or isinstance(value, bool) or value == "" or _is_number(value) or _is_text(value):
        return True
    if not isinstance(value, list | tuple | Mapping) or depth == _DEEPEST or len(value) > _MOST_ENTRIES:
        return False
    if isinstance(value, Mapping):
        return all(_is_text(name) and _is_plain(one, depth + 1) for name, one in value.items())
    return all(_is_plain(one, depth + 1) for one in value)


def lines(report: Mapping[str, Any] | None) -> list[str]:
    """Return what a card says of an off-policy evaluation."""
    if report is None:
        return [_NOT_GIVEN]
    value, interval = report["value"], report["interval"]
    told = "no value" if value is None else f"a value of {value:z.5g}"
    told += "" if interval is None else f" ({interval[0]:z.5g} to {interval[1]:z.5g})"
    found = [f"Off-policy evaluation: {told}; verdict: {_one_line(report['verdict'])}."]
    found += [f"Reason of the verdict: {_one_line(reason)}" for reason in report["reasons"]]
    plain = {name: one for name, one in report["estimates"].items() if _is_number(one)}
    if plain:
        found.append(f"Estimates: {', '.join(f'{_one_line(name)} {one:z.5g}' for name, one in plain.items())}.")
    return found


def _one_line(text: str) -> str:
    return " ".join(text.split())
