"""Which checkpoint is `best` in a run without an environment: that with the highest mean score of its policies (`select_by`).

`action_distance` is the distance of the policy's actions to the held-out ones. `td_error` is the held-out loss of the critics
without CQL's penalty (with EDAC's diversity term, which is small). `validation_loss` is the held-out loss that fits a policy
to logged actions: the cloning term of BC, TD3+BC and ReBRAC, the flow of FQL, the weighted likelihood of IQL, XQL and AWAC.
Elsewhere the policy follows its critics alone; that loss falls when values rise, right or wrong, so it is refused. `fqe` is
a short fitted Q evaluation on all rows: what the policy would earn, by the data. A value that the rewards do not allow is no
score.
"""

from collections.abc import Mapping, Sequence
from functools import cache, partial
from math import isfinite, nan
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.algorithms.learner import Learner
from rl_training.config.run import RunConfig
from rl_training.errors import ConfigError
from rl_training.models.threads import one_thread
from rl_training.ope.episodes import Behaviour, Episodes
from rl_training.ope.fqe import FQEOptions, Yardstick
from rl_training.runtime.offline_data import OfflineData

_FQE_ROWS, _FQE_BUDGET = 20_000, FQEOptions(steps=1000, turns=4, ensemble=5)  # a few seconds for each evaluation

Rows = Sequence[Mapping[str, float]]


class Score(Protocol):
    """What policies are compared by."""

    def __call__(self, learner: Learner[Any, Any], rows: Rows) -> list[float]:
        """Return a score of each member, higher is better, given its metrics on held-out rows; NaN is none."""


class Selector:
    """Says at each evaluation whether the mean score of the members is the best so far; one that is not finite never is."""

    def __init__(self, score: Score) -> None:
        self.scores = score
        self.best: float | None = None

    def take(self, scores: Sequence[float], members: Sequence[int]) -> bool:
        """Return whether these members, which are still training, are better on average than at any evaluation before."""
        mean = sum(scores[member] for member in members) / len(members)
        improved = isfinite(mean) and (self.best is None or mean > self.best)
        self.best = mean if improved else self.best
        return improved


def selector(config: RunConfig[Any], learner: Learner[Any, Any], data: OfflineData | None) -> Selector | None:
    """Return what chooses the best checkpoint by held-out data; None where evaluations in an environment do."""
    if config.select_by is None:
        return None
    if data is None or data.validation is None:
        raise ConfigError("`select_by` scores policies on held-out rows, and none are: set algo_kwargs.validation.fraction")
    if config.select_by == "fqe":
        return Selector(_fqe(config, data))
    return Selector(_held_out(config, learner.metric_names))


def _held_out(config: RunConfig[Any], metrics: Sequence[str]) -> Score:
    """The score by a column of the metrics on held-out rows."""
    if config.select_by == "td_error":
        return lambda _, rows: [row.get("conservative_loss", 0.0) - row["critic_loss"] for row in rows]
    column = "action_distance" if config.select_by == "action_distance" else _fit_to_data(config.algo, metrics)
    return lambda _, rows: [-row[column] for row in rows]


def _fit_to_data(algo: str, metrics: Sequence[str]) -> str:
    """The loss that fits a policy to logged actions."""
    weighted = ["actor_loss"] if "weight_mean" in metrics else []
    found = [name for name in ("bc_loss", "flow_loss", *weighted) if name in metrics]
    if not found:
        other = "use action_distance, td_error or fqe"
        raise ConfigError(
            f"`select_by: validation_loss` needs a policy that is fitted to logged actions; {algo}'s is not: {other}"
        )
    return found[0]


def _fqe(config: RunConfig[Any], data: OfflineData) -> Score:
    """The score by a short fitted Q evaluation on all rows: a function of the policy and the data alone."""
    spaces, transforms = data.train.spaces, data.train.transforms
    episodes = Episodes.of(data.dataset, _FQE_ROWS)
    gamma = config.score_gamma
    low, high = episodes.possible_values(gamma)

    @cache
    def yardstick() -> Yardstick:
        return Yardstick(episodes, gamma, _FQE_BUDGET, torch.device("cpu"))

    def score(learner: Learner[Any, Any], rows: Rows) -> list[float]:
        del rows
        model = learner.model

        def act(observations: NDArray[np.float32], member: int) -> NDArray[np.float32]:
            seen = torch.from_numpy(transforms.observations(observations)).to(model.device)
            return spaces.denormalize_actions(learner.act(seen.expand(model.members, -1, -1))[member].cpu().numpy())

        behaviours = [Behaviour.of(partial(act, member=member), episodes) for member in range(model.members)]
        with one_thread():  # the order of sums, and so the last bits, must not depend on the machine
            found = yardstick().values(behaviours)
        values = [found.middle(member)[0] for member in range(model.members)]
        return [value if low <= value <= high else nan for value in values]

    return score
