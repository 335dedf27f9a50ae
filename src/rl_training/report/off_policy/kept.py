"""The kept off-policy evaluations of runs: read as foreign data, checked, and joined where they judged by the same log."""

import math
import os
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from rl_training.analysis.endings import furthest
from rl_training.analysis.logged_run import LoggedRun
from rl_training.errors import CheckpointError, RLTrainingError
from rl_training.output import printable
from rl_training.storage import OPE_FILE, parse_json, read_regular_file

ESTIMATORS = ("fqe", "model", "dr", "wpdis")
VERDICTS = ("trust", "doubt", "cannot tell")  # the surest first
_KINDS: dict[type, str] = {list: "a list", dict: "an object", str: "a text"}
_LIMIT = 4 << 20  # bytes of a file
_LONGEST = 200  # characters of a text
_MOST_TEXTS, _MOST_COLUMNS = 6, 8  # reasons, and columns of a policy


@dataclass(frozen=True)
class Estimate:
    """A value with its 90 % interval; None where there is none."""

    value: float | None
    low: float | None
    high: float | None
    episodes: float  # on which it rests
    verdict: str

    @property
    def usable(self) -> bool:
        """Whether it says anything."""
        return self.value is not None and self.verdict != "cannot tell"


@dataclass(frozen=True)
class Judged:
    """One policy, what it would earn, and where it leaves the data."""

    run: str
    step: int
    member: int
    seed: int
    joint: Estimate
    each: Mapping[str, Estimate]
    reasons: tuple[str, ...]  # and what to do about them
    beyond: float  # share of its actions
    actions: Mapping[str, float]  # deviations, the largest first
    observations: Mapping[str, float]
    episodes: Mapping[str, float]  # shares


@dataclass(frozen=True)
class Evaluation:
    """Policies that were judged by one log, the surest verdicts first, and of these the highest values."""

    source: tuple[str, str, int, int, int]  # data, fingerprint, rows, episodes (or parts of them), whole episodes
    gamma: float
    logged: Estimate
    warnings: tuple[str, ...]
    policies: tuple[Judged, ...]
    shared: bool = False  # whether others were evaluated by the same rows, but not together with these


def evaluations(runs: Sequence[LoggedRun], names: Sequence[str]) -> tuple[list[Evaluation], list[str]]:
    """Return the kept evaluations, one for each log, and a caution for each file that cannot be shown; nothing is raised."""
    found: dict[Any, Evaluation] = {}
    cautions = []
    for run, name in zip(runs, names, strict=True):
        try:
            own = _read(run, name)
        except RLTrainingError as error:
            cautions.append(f"{printable(str(error))}; `rl-training ope` writes it anew")
            continue
        if own is not None:
            key = (own.source, own.gamma, own.logged)
            found[key] = _joined(found[key], own) if key in found else own
    logs = Counter(map(_log, found.values()))
    return [replace(one, policies=_ranked(one.policies), shared=logs[_log(one)] > 1) for one in found.values()], cautions


def _log(one: Evaluation) -> tuple[Any, ...]:
    """The rows that policies were judged by, whatever they are called, and the discount."""
    return (*one.source[1:], one.gamma)


def _joined(one: Evaluation, other: Evaluation) -> Evaluation:
    warnings = tuple(dict.fromkeys((*one.warnings, *other.warnings)))
    return replace(one, warnings=warnings, policies=(*one.policies, *other.policies))


def _ranked(policies: Sequence[Judged]) -> tuple[Judged, ...]:
    return tuple(sorted(policies, key=lambda one: rank(one.joint.verdict, one.joint.value)))


def rank(verdict: str, value: float | None) -> tuple[int, float]:
    """Return what sorts policies by verdict, the surest first, then by value: one that cannot be told leads nobody."""
    return VERDICTS.index(verdict), math.inf if value is None else -value


def _read(run: LoggedRun, name: str) -> Evaluation | None:
    path = run.path / OPE_FILE
    if not os.path.lexists(path):
        return None
    found = _evaluation(_Part(parse_json(read_regular_file(path, _LIMIT), str(path)), str(path)), name)
    told = _of_earlier_policies(run, name, [policy.step for policy in found.policies])
    return replace(found, warnings=(*found.warnings, told)) if told else found


def _of_earlier_policies(run: LoggedRun, name: str, steps: Sequence[int]) -> str:
    """Which checkpoint was evaluated, where the run has learned on since; empty where its last policy is among them."""
    judged, last = max(steps, default=None), furthest(run, "step")
    if judged is None or last is None or judged >= last:
        return ""
    offline = run.switch is not None and judged <= run.switch
    when = "the offline policy, before the run went online" if offline else "an earlier policy of the run"
    return f"{name}: evaluated is the checkpoint at step {judged:,}, {when}; its last policy is that of step {last:,}"


def check_report(report: Any, where: str) -> None:
    """Refuse what is not the plain report of `rl-training ope`, with everything that `select` takes from one."""
    top = _Part({"report": report}, where).part("report")
    _evaluation(top, "")
    for name in ("return_mean", "return_std", "slope", "offset"):
        top.part("logged").number(name)
    for one in top.parts("policies"):
        if one.get("value", object) is not None:
            one.number("std")


def _evaluation(top: "_Part", name: str) -> Evaluation:
    known = (top.text("data"), top.text("fingerprint"), top.whole("rows"), top.whole("episodes"))
    source = (*known, top.whole("whole_episodes") if top.has("whole_episodes") else known[-1])
    logged, policies = _estimate(top.part("logged")), tuple(_judged(one, name) for one in top.parts("policies"))
    return Evaluation(source, top.number("gamma"), logged, top.texts("warnings"), policies)


def _judged(one: "_Part", run: str) -> Judged:
    support, estimates = one.part("support"), one.part("estimates")
    advice = one.text("advice") if one.has("advice") else ""
    return Judged(
        run,
        *(one.whole("step"), one.whole("member"), one.whole("seed"), _estimate(one)),
        {name: _estimate(estimates.part(name)) for name in ESTIMATORS},
        (*one.texts("reasons"), *([f"To know more: {advice}"] if advice else [])),
        support.number("beyond"),
        *(support.numbers("actions"), support.numbers("observations"), support.numbers("episodes")),
    )


def _estimate(one: "_Part") -> Estimate:
    if one.text("verdict") not in VERDICTS:
        raise one.wrong("verdict", f"one of {', '.join(VERDICTS)}")
    episodes, verdict = one.number("effective_episodes"), one.text("verdict")
    if one.get("value", object) is None:
        return Estimate(None, None, None, episodes, verdict)
    interval = _Part(dict(zip(("low", "high"), one.get("interval", list), strict=False)), f"{one.where}: interval")
    return Estimate(one.number("value"), interval.number("low"), interval.number("high"), episodes, verdict)


class _Part:
    """An object of a file whose entries are checked as they are read; texts come out printable and short."""

    def __init__(self, values: Mapping[str, Any], where: str) -> None:
        self._values, self.where = values, where

    def wrong(self, key: str, kind: str) -> CheckpointError:
        """Return what is wrong with an entry."""
        return CheckpointError(f"{self.where}: {key} is not {kind}")

    def get(self, key: str, kind: type) -> Any:
        """Return an entry of a type."""
        if key not in self._values:
            raise CheckpointError(f"{self.where}: {key} is missing")
        if not isinstance(self._values[key], kind):
            raise self.wrong(key, _KINDS.get(kind, "what it should be"))
        return self._values[key]

    def has(self, key: str) -> bool:
        """Return whether there is an entry: files of earlier versions lack some."""
        return key in self._values

    def part(self, key: str) -> "_Part":
        """Return an object."""
        return _Part(self.get(key, dict), f"{self.where}: {key}")

    def parts(self, key: str) -> list["_Part"]:
        """Return a list of objects."""
        listed = _Part(dict(enumerate(self.get(key, list))), f"{self.where}: {key}")  # type: ignore[arg-type]
        return [listed.part(index) for index in listed._values]

    def text(self, key: str) -> str:
        """Return a text."""
        return _short(self.get(key, str))

    def texts(self, key: str) -> tuple[str, ...]:
        """Return the first of some texts."""
        found = self.get(key, list)
        if not all(isinstance(one, str) for one in found):
            raise self.wrong(key, "a list of texts")
        return tuple(map(_short, found[:_MOST_TEXTS]))

    def number(self, key: str) -> float:
        """Return a finite number."""
        value = self.get(key, object)
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 1e300:
            raise self.wrong(key, "a number")
        return float(value)

    def whole(self, key: str) -> int:
        """Return a whole number from 0 on."""
        value = self.get(key, object)
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 1 << 63:
            raise self.wrong(key, "a whole number")
        return value

    def numbers(self, key: str) -> dict[str, float]:
        """Return the largest of some numbers by their names."""
        own = self.part(key)
        found = {name: own.number(name) for name in own._values}
        largest = sorted(found.items(), key=lambda pair: -abs(pair[1]))[:_MOST_COLUMNS]
        return {_short(name): value for name, value in largest}


def _short(text: str) -> str:
    shown = printable(text[: _LONGEST + 1])
    return shown if len(shown) <= _LONGEST else shown[: _LONGEST - 1] + "\N{HORIZONTAL ELLIPSIS}"
