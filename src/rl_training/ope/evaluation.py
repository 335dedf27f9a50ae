"""All estimators on the same episodes and policies, and what they say together."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import torch
from numpy.typing import NDArray

from rl_training.ope.density import LoggedDensity
from rl_training.ope.dynamics import Dynamics, DynamicsOptions, Followed, Rollouts
from rl_training.ope.episodes import Act, Behaviour, Episodes
from rl_training.ope.fqe import FittedQ, FittedValues, FQEOptions
from rl_training.ope.importance import Weighted, counts_of, log_ratios, weighted_estimates
from rl_training.ope.opinions import Doubts, Opinion, joint, opinion, possible, precise
from rl_training.ope.returns import Line
from rl_training.ope.support import LoggedSupport, Support

_FEW = 10.0  # effective episodes below which importance weights say nothing
_FOREIGN = 0.05  # share of actions that a policy would never take, above which they say nothing either
MANY_BEYOND, _MOST_BEYOND = 0.15, 0.5  # shares of actions beyond the support; of logged ones it is 0.05
_USUAL = 0.05  # share of logged rows that no row of another episode is near
_LEAVES, _LOST = 0.02, 0.2  # shares of the steps of rollouts that leave the range of the data
_MISSES = 0.25  # of the spread of logged returns, by which a model may miss their mean
_DIVERGES = 1.1  # growth of an error from one evaluation to the next, from which on regularising does not help
_LEAST_SHOWN = 0.01  # percent of growth; less says nothing to a reader, and a spectral radius is not known as well
_PREDICTED = 0.5  # of the variance of a typical column, below which a model predicts nothing

Tell = Callable[[str], None]


@dataclass(frozen=True)
class OPEOptions:
    """What is estimated, and with what effort."""

    gamma: float = 0.99
    fqe: FQEOptions = field(default_factory=FQEOptions)
    dynamics: DynamicsOptions = field(default_factory=DynamicsOptions)
    density_steps: int = 2000
    seed: int = 0

    @classmethod
    def of(cls, gamma: float, seed: int, steps: int | None = None) -> "OPEOptions":
        """Return the usual options with a discount and a seed, and with another number of gradient steps if given."""
        own: dict[str, int] = {"seed": seed} if steps is None else {"seed": seed, "steps": steps}
        density = cls.density_steps if steps is None else steps
        return cls(gamma, FQEOptions(**own), DynamicsOptions(**own), density, seed)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Estimated:
    """What is known of one policy from the log."""

    estimates: Mapping[str, Opinion]
    joint: Opinion
    support: Support
    outside: float  # share of the model's steps that left the range of the data


@dataclass(frozen=True, eq=False)
class Logged:
    """What the logged behaviour itself earned."""

    value: Opinion  # discounted, by fitted Q evaluation of what was logged
    returns: NDArray[np.float64]  # of the episodes, not discounted, as far as they were logged
    line: Line  # from values to returns
    explained: NDArray[np.float64]  # by the model, of each observation's change and of the reward


def evaluate(
    episodes: Episodes, policies: Sequence[Act], options: OPEOptions, device: torch.device, tell: Tell = lambda _: None
) -> tuple[list[Estimated], Logged]:
    """Return what is known of each policy, and of the logged behaviour."""
    behaviours = [Behaviour.of(act, episodes) for act in policies]
    logged = Behaviour.logged(episodes)
    tell("support")
    support = LoggedSupport(episodes)
    tell("fitted Q evaluation")
    fitted = FittedQ(episodes, [*behaviours, logged], options.gamma, options.fqe, device)
    values = fitted.fit()
    tell("importance weights")
    density = LoggedDensity(episodes, options.density_steps, options.seed, device)
    density.fit()
    likely, deviations = density.log_densities()
    tell("model of the plant")
    model = Dynamics(episodes, options.gamma, options.dynamics, device)
    model.fit()
    followed = model.followed(density.mean)
    usual = max(_USUAL, support.strange(followed.visited, followed.counted))
    counts = counts_of(len(episodes.lengths), options.seed)
    limits, unit = episodes.possible_values(options.gamma), float(episodes.rewards.std()) / (1.0 - options.gamma)
    found = []
    for number, (act, behaviour) in enumerate(zip(policies, behaviours, strict=True)):
        where = support.of(behaviour)
        rolled = model.rollouts(act)
        strange = support.strange(rolled.visited, rolled.counted)
        unknown = max(0.0, strange - usual) * unit  # where nobody was, anything may be earned that ever was
        places = (strange, usual)
        ratios = log_ratios(episodes, behaviour, likely, deviations)
        weighted = weighted_estimates(episodes, ratios, options.gamma, counts, fitted.at_rows(number, behaviour))
        estimates = {
            "fqe": _fitted(values, number, _of_support(where, _of_places(places)), (followed.miss, unknown), episodes),
            "model": _modelled(rolled, model, _of_places(places), (followed, unknown), episodes),
            "dr": _weighted(weighted[1], where),
            "wpdis": _weighted(weighted[0], where),
        }
        estimates = {name: possible(one, *limits) for name, one in estimates.items()}
        lead = {name: estimates[name] for name in ("fqe", "model")}
        together = joint(lead, min(options.fqe.ensemble, options.dynamics.ensemble), _of_support(where, _of_places(places)))
        together = possible(precise(together, followed.spread), *limits)
        found.append(Estimated(estimates, together, where, rolled.outside))
    return found, _logged(episodes, values, model, options.gamma)


def diverges_text(growth: float) -> str:
    """Return that repeated evaluation would diverge, in digits that show it, where a growth near 1 would be 1.000."""
    more = 100.0 * (growth - 1.0)
    if more < _LEAST_SHOWN:
        how = "does not shrink"
    else:
        how = f"grows by {more:.2g}% each time" if more < 99.0 else f"grows {growth:.2g}-fold each time"
    return f"repeated evaluation would diverge (an error {how})"


def more_text(more: float) -> str:
    """Return by how much something is more, or less: a number without a sign."""
    return f"{abs(more):.3g} {'less' if more < 0.0 else 'more'}"


def _of_places(places: tuple[float, float]) -> Doubts:
    strange, usual = places
    share = f"{strange:.0%} of where it goes in the model is beyond what was logged ({usual:.0%} is for what was logged)"
    more = strange - usual + _USUAL
    return Doubts().if_(MANY_BEYOND < more <= _MOST_BEYOND, "doubt", share).if_(more > _MOST_BEYOND, "cannot tell", share)


def _of_support(where: Support, doubts: Doubts) -> Doubts:
    """What speaks against an estimate already, and where the policy's actions are."""
    usual = f"{where.usual:.0%} of the logged ones are"
    share = f"{where.beyond:.0%} of its actions are beyond what was logged in similar states ({usual})"
    return doubts.if_(MANY_BEYOND < where.beyond <= _MOST_BEYOND, "doubt", share).if_(
        where.beyond > _MOST_BEYOND, "cannot tell", share
    )


def _fitted(values: FittedValues, number: int, doubts: Doubts, errors: tuple[float, float], episodes: Episodes) -> Opinion:
    (value, networks, sampling), grown = values.middle(number), values.growth[:, number].numpy()
    grows = f"{diverges_text(float(grown.max()))}, so it is regularised"
    lost = bool(np.median(grown) >= _DIVERGES) or float(values.stable[:, number].float().mean()) <= 0.5
    doubts.if_(bool(grown.max() >= 1.0) and not lost, "doubt", grows).if_(lost, "cannot tell", grows)
    effective = float(np.median(values.effective[:, number])) / float(episodes.lengths.mean())
    return opinion(value, float(np.linalg.norm((sampling, networks, *errors))), len(grown), effective, doubts)


def _modelled(
    rolled: Rollouts, model: Dynamics, doubts: Doubts, errors: tuple[Followed, float], episodes: Episodes
) -> Opinion:
    followed, unknown = errors
    means = rolled.values.mean(axis=1)
    sampling = float(rolled.values.std(ddof=1) / np.sqrt(min(rolled.values.size, len(episodes.lengths))))
    left = f"{rolled.outside:.0%} of the steps in the model leave the range of the data"
    doubts.if_(_LEAVES < rolled.outside <= _LOST, "doubt", left).if_(rolled.outside > _LOST, "cannot tell", left)
    missed = f"in the model logged episodes earn {more_text(followed.more)} than they did"
    doubts.if_(_MISSES < followed.surely <= 1.0, "doubt", missed).if_(followed.surely > 1.0, "cannot tell", missed)
    typical = float(np.median(model.explained))
    doubts.if_(
        typical < _PREDICTED, "cannot tell", f"the model predicts {max(0.0, typical):.0%} of how a typical column changes"
    )
    return opinion(
        float(means.mean()),
        float(np.linalg.norm((sampling, means.std(ddof=1), followed.miss, unknown))),
        len(means),
        len(episodes.lengths),
        doubts,
    )


def _weighted(found: Weighted, where: Support) -> Opinion:
    few = f"it rests on {found.effective:.1f} episodes"
    never = f"{found.foreign:.0%} of the actions in the episodes that it rests on are none that the policy would take"
    doubts = _of_support(where, Doubts())
    doubts.if_(found.effective < _FEW, "cannot tell", few).if_(found.foreign > _FOREIGN, "cannot tell", never)
    return opinion(found.value, float(found.resampled.std(ddof=1)), 0, found.effective, doubts)


def _logged(episodes: Episodes, values: FittedValues, model: Dynamics, gamma: float) -> Logged:
    middle, networks, sampling = values.middle(-1)
    grown = float(values.growth[:, -1].max())
    doubts = Doubts().if_(grown >= 1.0, "doubt", diverges_text(grown))
    value = opinion(middle, float(np.hypot(sampling, networks)), len(values.values), len(episodes.lengths), doubts)
    value = possible(precise(value, float(episodes.returns(gamma).std(ddof=1))), *episodes.possible_values(gamma))
    return Logged(value, episodes.whole_returns(), Line.of(episodes, value.value, gamma), model.explained)
