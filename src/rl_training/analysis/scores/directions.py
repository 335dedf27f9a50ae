"""Which way a metric points: whether high values are good, low ones, or neither; and whether it measures policies at all."""

from collections.abc import Sequence
from typing import Literal, TypeAlias

from rl_training.analysis.logged_run import DISTANCE, RETURN, RETURN_STD, LoggedRun
from rl_training.errors import ConfigError

Direction: TypeAlias = Literal["higher", "lower", "none"]

SCORE = "validation/score"  # what `select_by` chooses checkpoints by, higher for a better one
_HIGH = (RETURN, "data/episode_return", SCORE)
_OF_EPISODES = (RETURN_STD, "eval/length_mean")  # no score: a short episode is a fall here and a goal there
_ON_ROWS = ("train", "validation")  # what is measured on rows of data
_LOW = ("action_distance",)  # and every loss and error
_NO_SCORE = (
    # what critics expect, right or wrong; the loss of a policy falls with it
    *("q_mean", "q_policy", "q_data", "q_lowest", "q_highest", "v_mean", "advantage_mean", "weight_mean", "start_value"),
    *("actor_loss", "alpha_loss", "alpha", "entropy", "at_bound", "spread", "values_settled", "calibrated_fraction"),
    *("learning_rate_factor", "prior_samples", "online_samples"),
    # what needs no policy
    *("constant_distance", "cloning_distance", "persistence_distance", "at_bound_data", "spread_data", "spread_cloning"),
    *("moved_action", "moved_cloning", "moved_persistence"),
    *(f"{side}_{name}" for side in ("low", "high") for name in ("rows", "data", "distance", "reached")),
    *("possible_lowest", "possible_highest"),
    *("reached_lowest", "reached_highest", "start_return", "start_lowest", "start_highest", "start_possible"),
)


def known_direction(metric: str) -> Direction | None:
    """Return which values of a metric are good, `none` if neither are; None for a metric that is not known here."""
    if metric in _HIGH:
        return "higher"
    if metric in _OF_EPISODES:
        return "none"
    kind, _, rest = metric.partition("/")
    name = rest.partition("/")[0]  # that of a single action has its name after it
    if kind not in _ON_ROWS:
        return None
    if name in _NO_SCORE:
        return "none"
    return "lower" if name in _LOW or "loss" in name or "error" in name else None


def measures_quality(metric: str) -> bool:
    """Return whether a run with a better value has a better policy: of distances, losses and errors on rows it need not."""
    return known_direction(metric) not in ("lower", "none")


def direction_of(metric: str, *, lower_is_better: bool, by: str) -> Direction:
    """Return which values of a metric of runs are good: by the metric, or as asked where it is not known; else high ones."""
    known = known_direction(metric)
    if known == "none" and (lower_is_better or by == "best"):
        asked = "--lower-is-better" if lower_is_better else "--by best"
        raise ConfigError(f"{asked}: {metric} is no score, so no value of it is better than another; leave {asked} out")
    return "lower" if lower_is_better else known or "higher"


def refuse_turned(metric: str) -> None:
    """Refuse to call low values of a metric good where high ones are known to be."""
    if known_direction(metric) == "higher":
        raise ConfigError(f"--lower-is-better: a high {metric} of a run is good; leave --lower-is-better out")


def refuse_unlike_scores(runs: Sequence[LoggedRun], metric: str) -> None:
    """Refuse scores of `select_by` unless all are estimates of one return: others are of rows, by another name comparable."""
    kinds = list(dict.fromkeys(_kind_of_score(run) for run in runs)) if metric == SCORE else []
    if not kinds or (len(kinds) == 1 and kinds[0].startswith("fqe")):
        return
    what = f"is another figure in each run (select_by: {'; '.join(kinds)})" if len(kinds) > 1 else f"is of `{kinds[0]}`"
    raise ConfigError(
        f"{metric}: {what}, which says nothing of returns; compare a figure by its own name: `--metric {DISTANCE}`"
    )


def _kind_of_score(run: LoggedRun) -> str:
    config = run.config
    if config.select_by != "fqe":
        return str(config.select_by)
    return f"fqe with gamma {config.score_gamma:g}"
