"""Whether anybody did what a policy does, and was where it goes.

Actions: for each of some rows the most similar observations of other episodes are found, and how far the policy's action is
from the nearest one that was taken there. Places: for observations and actions of rollouts in a model, how far the nearest
logged row is, in units of how far that row is from its own nearest in another episode (Tax, 2001), because rows are dense in
some places and sparse in others. The reference is the same distance of logged rows themselves: what is beyond its 95 %
quantile is outside the support of the data. An action that is nearly a logged one (0.15 deviations away) is inside all the
same: commands that have levels are mostly shared by similar states, exactly, and by a quantile of 0 every other number would
be outside. A policy whose every action is a usual one may still go where nobody was.
"""

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from rl_training.data.row_blocks import spread_evenly
from rl_training.ope.episodes import Behaviour, Episodes

_ASKED, _KNOWN = 4000, 20_000  # rows that are looked at, and rows that are looked for
_SIMILAR = 50  # observations that count as similar to one
_CLOSEST = 0.5  # of the usual distance of rows: rows that are closer together count as this far apart
_QUANTILE = 0.95
_SAME = 0.15  # of the deviation of the logged actions, in each column: what is that near to one was as good as done
_PART = 500


@dataclass(frozen=True, eq=False)
class Support:
    """Where a policy leaves the data."""

    beyond: float  # share of rows where its action is outside the support
    usual: float  # share of rows where the logged action is
    columns: NDArray[np.float64]  # by action: how far outside, in deviations of the logged actions, where it is
    episodes: NDArray[np.int64]  # those where it is outside most, by their number in the dataset
    shares: NDArray[np.float64]  # of the rows of these episodes
    where: NDArray[np.float64]  # by observation: its mean where the policy is outside less its mean elsewhere, in deviations


class LoggedSupport:
    """The actions that were logged in similar states, for some rows spread evenly over the data."""

    def __init__(self, episodes: Episodes) -> None:
        self.episodes = episodes
        self.rows = spread_evenly(len(episodes), _ASKED)
        known = torch.from_numpy(spread_evenly(len(episodes), _KNOWN))
        self._seen = torch.from_numpy(episodes.of_observations(episodes.observations))
        actions = Behaviour.logged(episodes).here
        episode = torch.from_numpy(episodes.episode)
        asked = torch.from_numpy(self.rows)
        self._rows = torch.cat((self._seen, actions), dim=-1)[known]
        similar = []
        for part in torch.split(asked, _PART):
            apart = torch.cdist(self._seen[part], self._seen[known])
            apart[episode[part][:, None] == episode[known][None]] = torch.inf  # the row itself and its neighbours in time
            similar.append(apart.topk(min(_SIMILAR, len(known)), largest=False).indices)
        self._taken = actions[known][torch.cat(similar)]  # (asked, similar, actions)
        apart = self._distance(actions[asked])
        self.limit = max(float(apart.quantile(_QUANTILE)), _SAME * actions.shape[1] ** 0.5)
        self.usual = float((apart > self.limit).double().mean())
        spaced, nearest = self._nearest(self._rows, episode[known])
        self._spaced = spaced.clamp(min=max(_CLOSEST * float(spaced.median()), 1e-6))
        self.farthest = float((spaced / self._spaced[nearest]).quantile(_QUANTILE))

    def _nearest(self, points: Tensor, episodes: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """How far the nearest logged row is, and which it is; for logged rows, given their episodes, one of another."""
        found = []
        for first in range(0, len(points), _PART):
            part = slice(first, first + _PART)
            apart = torch.cdist(points[part], self._rows)
            if episodes is not None:
                apart[episodes[part, None] == episodes] = torch.inf
            found.append(apart.min(-1))
        return torch.cat([one.values for one in found]), torch.cat([one.indices for one in found])

    def _distance(self, actions: Tensor) -> Tensor:
        return (self._taken - actions.unsqueeze(1)).square().sum(-1).amin(-1).sqrt()

    def strange(self, visited: Tensor, counted: Tensor) -> float:
        """Return the share of visited observations and actions, weighted by `counted`, that no logged row is near."""
        apart, nearest = self._nearest(visited)
        return float(counted[apart / self._spaced[nearest] > self.farthest].sum() / counted.sum())

    def of(self, behaviour: Behaviour, most: int = 5) -> Support:
        """Return where a policy leaves the data."""
        own = behaviour.here[self.rows]
        apart = (self._taken - own.unsqueeze(1)).square().sum(-1)
        nearest = self._taken.gather(1, apart.argmin(-1)[:, None, None].expand(-1, 1, own.shape[-1])).squeeze(1)
        beyond = apart.amin(-1).sqrt() > self.limit
        columns = (own - nearest).abs()[beyond].mean(0) if beyond.any() else torch.zeros(own.shape[-1])
        seen = self._seen[self.rows]
        mixed = bool(beyond.any()) and not bool(beyond.all())
        where = seen[beyond].mean(0) - seen[~beyond].mean(0) if mixed else torch.zeros(seen.shape[-1])
        numbers = self.episodes.episode[self.rows]
        count = np.bincount(numbers, minlength=len(self.episodes.lengths))
        outside = np.bincount(numbers, weights=beyond.double().numpy(), minlength=len(count))
        shares = outside / np.maximum(count, 1)
        worst = np.argsort(-shares * (count > 0), kind="stable")[:most]
        worst = worst[shares[worst] > 0.0]
        return Support(
            float(beyond.double().mean()),
            self.usual,
            columns.double().numpy(),
            self.episodes.numbers[worst],
            shares[worst],
            where.double().numpy(),
        )
