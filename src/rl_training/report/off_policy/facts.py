"""What a kept off-policy evaluation says, in the words that the page and the Markdown share."""

from collections.abc import Sequence

from rl_training.report.facts import NOTHING, number
from rl_training.report.off_policy.kept import ESTIMATORS, Estimate, Evaluation, Judged

HEADINGS = (
    *("policy", "step", "member", "value (90 % interval)", *ESTIMATORS),
    *("effective episodes", "beyond the data", "verdict"),
)
SUPPORT_HEADINGS = ("policy", "beyond the data", "actions, deviations away", "observations there", "episodes, share of rows")
SUPPORT_NOTE = (
    "Actions beyond anything that was logged in similar states; 5% of the logged actions are so themselves. Actions: how far "
    "from the nearest logged one, in standard deviations. Observations: how much higher or lower than elsewhere, in standard "
    "deviations. Episodes: the share of their rows."
)
_SHARED = (
    "Another table has the same log with another value: policies that are evaluated together share learned features. "
    "Compare within a table, or evaluate all in one call of `rl-training ope`."
)
_MARKS = {"trust": "", "doubt": " ~", "cannot tell": " ?"}
_MANY_BEYOND = 0.05  # by which logged actions are beyond the support themselves


def episodes_text(episodes: int, whole: int) -> str:
    """Return how many episodes there are, or how many parts of them that count as episodes."""
    if episodes == whole:
        return f"{episodes:,} episodes"
    return f"{episodes:,} parts of {whole:,} {'episode' if whole == 1 else 'episodes'}, which count as episodes"


def source_text(one: Evaluation) -> str:
    """Return by what data policies were judged, and what the values are."""
    data, _, rows, episodes, whole = one.source
    text = (
        f"Judged by {data}: {rows:,} rows, {episodes_text(episodes, whole)}. Values are discounted by {one.gamma:g} from "
        "where episodes begin, in the units of the rewards. ~ is doubtful, ? cannot be told from this data."
    )
    return f"{text} {_SHARED}" if one.shared else text


def value_text(one: Estimate) -> str:
    """Return a value with its interval."""
    return NOTHING if one.value is None else f"{number(one.value)} ({number(one.low)} to {number(one.high)})"


def estimate_text(one: Estimate) -> str:
    """Return an estimate with a mark of its verdict."""
    return "?" if one.value is None else number(one.value) + _MARKS[one.verdict]


def cells(one: Judged) -> list[str]:
    """Return the row of a policy under `HEADINGS`."""
    each = [estimate_text(one.each[name]) for name in ESTIMATORS]
    verdict = f"{one.joint.verdict}: {'; '.join(one.reasons)}" if one.reasons else one.joint.verdict
    who = [one.run, f"{one.step:,}", f"{one.member} (seed {one.seed})"]
    return [*who, value_text(one.joint), *each, f"{one.joint.episodes:,.1f}", f"{one.beyond:.1%}", verdict]


def logged_cells(one: Evaluation) -> list[str]:
    """Return the row of the logged behaviour under `HEADINGS`."""
    unknown = [NOTHING] * len(ESTIMATORS)
    own = [value_text(one.logged), *unknown, f"{one.logged.episodes:,.1f}"]
    return ["the log", NOTHING, NOTHING, *own, NOTHING, NOTHING]


def label(one: Judged, among: Sequence[Judged]) -> str:
    """Return the name of a policy, as long as it needs to be told from the others."""
    same = [other for other in among if other.run == one.run]
    step = f", step {one.step:,}" if len({other.step for other in same}) > 1 else ""
    member = f", member {one.member}" if len({other.member for other in same}) > 1 else ""
    return f"{one.run}{step}{member}"


def leaving(one: Evaluation) -> list[Judged]:
    """Return the policies that leave the data more often than it leaves itself, the worst first."""
    return sorted((policy for policy in one.policies if policy.beyond > _MANY_BEYOND), key=lambda policy: -policy.beyond)


def apart_text(value: float) -> str:
    """Return how much higher or lower a column is, in deviations."""
    return f"{abs(value):.2g} {'higher' if value > 0.0 else 'lower'}"


def support_cells(one: Judged, among: Sequence[Judged]) -> list[str]:
    """Return the row of a policy under `SUPPORT_HEADINGS`."""
    actions = ", ".join(f"{name} {value:.2g}" for name, value in one.actions.items())
    seen = ", ".join(f"{name} {apart_text(value)}" for name, value in one.observations.items())
    episodes = ", ".join(f"{name} ({share:.0%})" for name, share in one.episodes.items())
    return [label(one, among), f"{one.beyond:.1%}", actions or NOTHING, seen or NOTHING, episodes or NOTHING]
