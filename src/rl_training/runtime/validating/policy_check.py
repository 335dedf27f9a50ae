"""What a policy does on logged rows: distance to the logged actions, share at a bound, values that are possible or not.

Without an environment this is all that can be known of a policy. Each figure has a reference beside it that needs no policy:
the best constant action, a plain regression of the actions on the observations (cloning), the command of the row before
(persistence), the data itself.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.algorithms.learner import Learner
from rl_training.config.shared_knobs import CriticKnobs
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.processing import RunData, spread_rows
from rl_training.data.regression import Regression
from rl_training.data.returns import RewardRange, compute_returns_to_go
from rl_training.data.row_blocks import spread_evenly
from rl_training.data.row_view import RowView
from rl_training.data.spaces import Spaces
from rl_training.data.transforms import Transforms
from rl_training.runtime.validating.concerns import settled_share
from rl_training.runtime.validating.rests import AT_BOUND, FEWEST, rests

REFERENCE_ROWS = 20_000  # rows that the cloning reference is fitted on
_RETURN_ROWS = 1_000_000  # rows whose returns are computed
_CHUNK = 4096  # rows scored at once
_MOST_STARTS = 500  # episodes whose beginning is scored
_MOVED = 1e-6  # of half the range, by which a command differs that is not that of the row before

Numbers = NDArray[np.float64]
Figures = dict[str, float]


@dataclass(frozen=True)
class ReturnLimits:
    """Rewards and discounted returns in the data, in real units."""

    allowed: RewardRange
    rewards: NDArray[Any]
    terminals: NDArray[np.bool_]
    timeouts: NDArray[np.bool_]

    @classmethod
    def of(cls, view: RowView) -> "ReturnLimits":
        """Return the limits that rows of a dataset show."""
        rewards, terminals = view.whole("rewards"), view.whole("terminals")
        part = slice(0, _RETURN_ROWS)
        cuts = view.ends & ~terminals
        return cls(RewardRange.of(rewards, terminals), rewards[part], terminals[part], cuts[part])

    def possible(self, gamma: float) -> tuple[float, float]:
        """Return the lowest and the highest discounted return that these rewards allow."""
        return self.allowed.values(gamma)

    def reached(self, gamma: float) -> tuple[float, float]:
        """Return the lowest and the highest discounted return of an episode, as far as it was logged."""
        returns = compute_returns_to_go(self.rewards, self.terminals, self.timeouts, gamma, "zero")
        first = np.append(True, (self.terminals | self.timeouts)[:-1])
        return float(returns[first].min()), float(returns[first].max())


@dataclass(frozen=True)
class LoggedStarts:
    """Where logged episodes begin, and the rewards that followed."""

    observations: torch.Tensor  # (episodes, observation_dim), as a learner sees them
    rewards: Sequence[Numbers]  # of each episode
    cut: NDArray[np.bool_]  # (episodes,): by a time limit, so that more would have been earned
    allowed: RewardRange

    @classmethod
    def of(cls, view: RowView, transforms: Transforms, known: RewardRange | None = None) -> "LoggedStarts":
        """Return the starts of some episodes, spread evenly."""
        last = np.flatnonzero(view.ends)
        chosen = spread_evenly(len(last), _MOST_STARTS)
        first = np.append(0, last[:-1] + 1)[chosen]
        observations = torch.from_numpy(transforms.observations(view.take("observations", first)))
        spans = zip(first.tolist(), (last[chosen] + 1).tolist(), strict=True)
        rewards = [view.read("rewards", slice(*span)).astype(np.float64) for span in spans]
        allowed = RewardRange.of(view.whole("rewards"), view.whole("terminals"))
        allowed = allowed if known is None else allowed.joined(known)
        return cls(observations, rewards, ~view.take("terminals", last[chosen]), allowed)

    def returned(self, gamma: float) -> Figures:
        """Return what the episodes earned, discounted: on average, at least, at most, and at most if cut ones went on."""
        found = np.array([np.sum(own * gamma ** np.arange(len(own))) for own in self.rewards])
        rest = self.allowed.values(gamma)[1] * self.cut * gamma ** np.array([len(own) for own in self.rewards])
        figures = {"return": found.mean(), "lowest": found.min(), "highest": found.max(), "possible": (found + rest).max()}
        return {f"start_{name}": float(value) for name, value in figures.items()}


@dataclass(frozen=True)
class LoggedRows:
    """Observations and actions as a learner sees them, and how to translate them."""

    observations: torch.Tensor  # (rows, observation_dim)
    actions: Numbers  # (rows, learned_dim), in [-1, 1] inside the bounds
    spaces: Spaces
    transforms: Transforms
    previous: Numbers | None = None  # actions of the rows before, NaN where an episode begins; None where not asked for

    @classmethod
    def of(cls, data: RunData, most: int, view: RowView | None = None) -> "LoggedRows":
        """Return rows spread evenly over processed data; with the `view` that it is of, also the actions before them."""
        columns = data.layout.columns(spread_rows(data, most))
        actions = columns["actions"].numpy().astype(np.float64)
        before = None
        if view is not None:
            before = np.clip(_previous(view, spread_evenly(len(data), most), data.spaces), -1.0, 1.0)
        return cls(columns["observations"], actions, data.spaces, data.transforms, before)

    @classmethod
    def raw(cls, dataset: TransitionDataset, most: int, spaces: Spaces, transforms: Transforms) -> "LoggedRows":
        """Return rows spread evenly over a dataset; its actions may lie outside the bounds."""
        rows = spread_evenly(len(dataset), most)
        observations = torch.from_numpy(transforms.observations(dataset.observations[rows]))
        actions = spaces.normalize_actions(dataset.actions[rows]).astype(np.float64)
        return cls(observations, actions, spaces, transforms, _previous(RowView(dataset), rows, spaces))


def _previous(view: RowView, rows: NDArray[np.int64], spaces: Spaces) -> Numbers:
    """The actions before some rows as a learner sees them, NaN where an episode begins."""
    before = np.maximum(rows - 1, 0)
    actions = spaces.normalize_actions(view.take("actions", before)).astype(np.float64)
    actions[(rows == 0) | view.ends[before]] = np.nan
    return actions


class PolicyCheck:
    """Scores policies on rows of one dataset, always the same rows.

    Plain cloning is a regression fitted on the rows of `reference`; without one, on every other row.
    """

    def __init__(
        self, rows: LoggedRows, limits: ReturnLimits, starts: LoggedStarts, reference: LoggedRows | None = None
    ) -> None:
        self._starts = starts
        self._observations, self._actions = rows.observations, rows.actions
        self._spaces, self._transforms, self._limits = rows.spaces, rows.transforms, limits
        self._reached: dict[float, tuple[float, float]] = {}
        self._returned: dict[float, Figures] = {}
        self._reference, self._previous = reference, rows.previous
        self._moved = np.zeros_like(self._actions, dtype=bool)
        if self._previous is not None:  # NaN is no move
            self._moved = np.abs(self._actions - self._previous) > _MOVED
        self._rests = rests(self._actions, _labels(self._spaces), self._predicted)
        self.references = self._reference_figures(np.clip(self._predicted(lambda actions: actions), -1.0, 1.0))

    def __len__(self) -> int:
        return len(self._actions)

    def _predicted(self, of: Callable[[Numbers], Numbers]) -> Numbers:
        """What a plain regression on the observations says of a function of the actions in these rows."""
        here, wanted, reference = self._observations.numpy(), of(self._actions), self._reference
        if reference is not None:
            return Regression(reference.observations.numpy(), of(reference.actions))(here)
        if len(here) < 2:
            return wanted
        first, second, guess = np.arange(0, len(here), 2), np.arange(1, len(here), 2), np.empty_like(wanted)
        for fitted, others in ((first, second), (second, first)):
            guess[others] = Regression(here[fitted], wanted[fitted])(here[others])
        return guess

    def _reference_figures(self, cloned: Numbers) -> Figures:
        """The figures that need no policy."""
        actions, spaces = self._actions, self._spaces
        constant = _distances("constant", np.abs(actions - np.median(actions, axis=0)), spaces)
        cloning = _distances("cloning", np.abs(actions - cloned), spaces)
        spreads = {"spread_data": _spread(actions), "spread_cloning": _spread(cloned)}
        return {**constant, **cloning, "at_bound_data": _at_bound(actions), **spreads, **self._persistence(cloned)}

    def _persistence(self, cloned: Numbers) -> Figures:
        """How far the commands of the rows before are; where none is known, nothing."""
        if self._previous is None:
            return {}
        apart = np.abs(self._actions - self._previous)
        known = ~np.isnan(apart).any(axis=1)
        figures = _distances("persistence", apart[known], self._spaces) if known.any() else {}
        figures |= self._where_moved("persistence", apart)
        return figures | self._where_moved("cloning", np.abs(self._actions - cloned))

    def _where_moved(self, name: str, apart: Numbers) -> Figures:
        """A mean distance where the logged command is not that of the row before: a command that is held tells nothing."""
        pairs = zip(apart.T, self._moved.T, strict=True)
        columns = [column[moved].mean() / 2.0 for column, moved in pairs if moved.sum() >= FEWEST]
        return {f"moved_{name}": float(np.mean(columns))} if columns else {}

    @torch.no_grad()
    def figures(self, learner: Learner[Any, Any]) -> list[Figures]:
        """Return the figures of each member's mean action, distances as shares of the range; without side effects."""
        members = learner.model.members
        parts = [self._scored(learner, slice(i, i + _CHUNK)) for i in range(0, len(self), _CHUNK)]
        found = []
        claimed = self._claimed(learner)
        for member in range(members):
            actions, *values = [np.concatenate(pieces, axis=1)[member] for pieces in zip(*parts, strict=True)]
            apart = np.abs(actions - self._actions)
            figures = {**_distances("action", apart, self._spaces), **self._where_moved("action", apart)}
            figures |= {"at_bound": _at_bound(actions), "spread": _spread(actions), **self.references}
            for rest in self._rests:
                figures |= rest.figures(actions)
            if values and self._transforms.reward_scale:
                gamma = _gamma(learner, member)
                figures |= self._value_figures(values[0], values[1], gamma) | self._start_figures(claimed[member], gamma)
                figures["values_settled"] = settled(learner, member)
            found.append(figures)
        return found

    def _claimed(self, learner: Learner[Any, Any]) -> Numbers:
        """The values of the policies where episodes begin, (members, episodes); of no use without critics."""
        seen = self._starts.observations.to(learner.model.device).expand(learner.model.members, -1, -1)
        values = learner.q_values(seen, learner.act(seen, deterministic=True))
        return np.zeros(seen.shape[:2]) if values is None else values.double().cpu().numpy()

    def _start_figures(self, claimed: Numbers, gamma: float) -> Figures:
        """Values where episodes begin in real units, beside what these returned."""
        if gamma not in self._returned:
            self._returned[gamma] = self._starts.returned(gamma)
        return {"start_value": float(self._transforms.real_values(claimed, gamma).mean()), **self._returned[gamma]}

    def _scored(self, learner: Learner[Any, Any], part: slice) -> list[NDArray[Any]]:
        """The actions of every member, and where there are critics the values of these and of the logged actions."""
        model = learner.model
        observations = self._observations[part].to(model.device).expand(model.members, -1, -1)
        own = learner.act(observations, deterministic=True)
        logged = torch.from_numpy(self._actions[part]).to(own).expand(model.members, -1, -1)
        values = [learner.q_values(observations, actions) for actions in (own, logged)]
        return [one.double().cpu().numpy() for one in (own, *values) if one is not None]

    def _value_figures(self, own: Numbers, logged: Numbers, gamma: float) -> Figures:
        """Values in real units beside the returns that are possible, and those that episodes reached."""
        if gamma not in self._reached:
            self._reached[gamma] = self._limits.reached(gamma)
        own, logged = (self._transforms.real_values(values, gamma) for values in (own, logged))
        limits = {"possible": self._limits.possible(gamma), "reached": self._reached[gamma]}
        values = {
            "q_policy": float(own.mean()),
            "q_data": float(logged.mean()),
            "q_lowest": own.min(),
            "q_highest": own.max(),
        }
        returns = {
            f"{name}_{side}": pair[side == "highest"] for name, pair in limits.items() for side in ("lowest", "highest")
        }
        return {name: float(value) for name, value in {**values, **returns}.items()}


def settled(learner: Learner[Any, Any], member: int) -> float:
    """Return the share of the way from 0 to the values of the policy that the critics have gone."""
    if not isinstance(learner.knobs, CriticKnobs):
        return 1.0
    updates = learner.step / learner.knobs.target_interval
    ahead = 1.0 - _gamma(learner, member) ** learner.knobs.n_step
    return float(settled_share(updates, _knob(learner.knobs.tau, member), ahead))


def _gamma(learner: Learner[Any, Any], member: int) -> float:
    return _knob(learner.knobs.gamma, member) if isinstance(learner.knobs, CriticKnobs) else 0.0


def _knob(value: Any, member: int) -> float:
    """A knob of a member, which may be swept."""
    values = torch.as_tensor(value, dtype=torch.float64).reshape(-1)
    return float(values[member if len(values) > 1 else 0])


def _distances(name: str, apart: Numbers, spaces: Spaces) -> Figures:
    """Mean distances (rows, learned_dim) in units of half the range: as a share of it, and by column in real units."""
    half = ((spaces.action_high - spaces.action_low) / 2.0)[spaces.free]
    mean = apart.mean(axis=0)
    columns = {f"{name}_distance/{label}": float(value) for label, value in zip(_labels(spaces), mean * half, strict=True)}
    return {f"{name}_distance": float(mean.mean() / 2.0), **columns}


def _labels(spaces: Spaces) -> list[str]:
    """What figures call the action columns that a learner sees: their names, or their numbers."""
    labels = spaces.action_names or tuple(str(column) for column in range(spaces.action_dim))
    return [label for label, free in zip(labels, spaces.free, strict=True) if free]


def _at_bound(actions: Numbers) -> float:
    """The share of actions at a bound, counted column by column."""
    return float((np.abs(actions) >= AT_BOUND).mean())


def _spread(actions: Numbers) -> float:
    """The standard deviation over states as a share of the range, averaged over the columns."""
    return float(actions.std(axis=0).mean() / 2.0)
