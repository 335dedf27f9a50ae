"""Whether anybody did what a policy does, and was where it goes.

Actions: for each of some rows the most similar observations of other episodes are found, and how far the policy's action is
from the nearest one that was taken there. Places: for observations and actions of rollouts in a model, how far the nearest
logged row is. The reference is the same distance of logged rows themselves: what is beyond its 95 % quantile is outside the
support of the data. The first says nothing of a policy whose every action is a usual one and that still never gets away from
where it begins; the second does.
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
_QUANTILE = 0.95
_PART = 500


@dataclass(frozen=True, eq=False)
class Support:
    """Where a policy leaves the data."""

    beyond: float  # share of rows where its action is outside the support
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
        similar, nearest = [], []
        for part in torch.split(asked, _PART):
            apart = torch.cdist(self._seen[part], self._seen[known])
            same = episode[part][:, None] == episode[known][None]  # the row itself and its neighbours in time
            similar.append(apart.masked_fill_(same, torch.inf).topk(min(_SIMILAR, len(known)), largest=False).indices)
            away = torch.cdist(torch.cat((self._seen[part], actions[part]), dim=-1), self._rows)
            nearest.append(away.masked_fill_(same, torch.inf).amin(-1))
        self._taken = actions[known][torch.cat(similar)]  # (asked, similar, actions)
        self.limit = float(self._distance(actions[asked]).quantile(_QUANTILE))
        self.farthest = float(torch.cat(nearest).quantile(_QUANTILE))

    def _distance(self, actions: Tensor) -> Tensor:
        return (self._taken - actions.unsqueeze(1)).square().sum(-1).amin(-1).sqrt()

    def strange(self, visited: Tensor, counted: Tensor) -> float:
        """Return the share of visited observations and actions, weighted by `counted`, that no logged row is near."""
        away = torch.cat([torch.cdist(part, self._rows).amin(-1) for part in torch.split(visited, _PART)])
        return float(counted[away > self.farthest].sum() / counted.sum())

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
            columns.double().numpy(),
            self.episodes.numbers[worst],
            shares[worst],
            where.double().numpy(),
        )
