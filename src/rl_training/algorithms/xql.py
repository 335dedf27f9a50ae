"""Extreme Q-learning (Garg, Hejna, Geist, Ermon: "Extreme Q-learning: MaxEnt RL without entropy", 2023).

IQL whose value network is fitted by Gumbel regression instead of an expectile: errors of a maximum follow a Gumbel
distribution, and the maximum-likelihood location under it is V = T log E exp(Q / T), a soft maximum over the actions in the
data, so no action outside the data is ever evaluated. Critics and policy are IQL's, and all losses use the parameters from
before the step (the official code updates V first). The official defaults, a Huber critic and LayerNorm in the value network,
are the options `critic_loss: huber` and `value_layer_norm`. Left out: the log form of the loss, action noise and random
actions in the value batch, several value updates per step, and the gradient penalty.
"""

from typing import Any, ClassVar

from torch import Tensor

from rl_training.algorithms.iql import IQL, expectile_loss
from rl_training.algorithms.learner import Metrics
from rl_training.algorithms.per_member import Knob
from rl_training.config.algorithms.xql import XQLKnobs
from rl_training.data.batch import Batch
from rl_training.models.iql import MLPIQLModel


def gumbel_rescale_loss(residual: Tensor, loss_temperature: Knob = 1.0, max_value_diff_exp: Knob | None = None) -> Tensor:
    """Return e^-m E[e^z - z - 1] for z = residual / T, (members,): the Gumbel loss scaled down by its largest term.

    z is clipped at `max_value_diff_exp` from above. m = max(largest z of the member's batch, -1), without gradient, keeps
    every exponential at or below e, so nothing overflows; it only changes the size of the step.
    """
    z = residual / loss_temperature
    if max_value_diff_exp is not None:
        z = z.clamp(max=max_value_diff_exp)
    largest = z.detach().amax(-1, keepdim=True).clamp(min=-1.0)
    return ((z - largest).exp() - (z + 1.0) * (-largest).exp()).mean(-1)


def xql_value_loss(residual: Tensor, **knobs: Any) -> Tensor:
    """Return the value loss for residuals Q - V, (members,): Gumbel regression, or for `vanilla_value_loss` the expectile."""
    return _value_loss(residual, XQLKnobs.checked(knobs))


def _value_loss(residual: Tensor, knobs: XQLKnobs) -> Tensor:
    if knobs.vanilla_value_loss:
        return expectile_loss(residual, knobs.expectile)
    return gumbel_rescale_loss(residual, knobs.loss_temperature, knobs.max_value_diff_exp)


def xql_loss(model: MLPIQLModel, batch: Batch, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return XQL's loss and metrics for a batch, without side effects; `knobs` as for `XQL`."""
    return XQL(model, **knobs).pure_loss(batch)


class XQL(IQL):
    """Extreme Q-learning: IQL with a Gumbel value regression."""

    knobs_type: ClassVar[type[XQLKnobs]] = XQLKnobs
    knobs: XQLKnobs

    @property
    def mixes_rows(self) -> bool:
        """Whether the Gumbel loss is used, which is scaled by the largest residual of the batch."""
        return not self.knobs.vanilla_value_loss or super().mixes_rows

    def value_loss(self, residual: Tensor) -> Tensor:
        """Return the Gumbel regression of V on the target critics, (members,)."""
        return _value_loss(residual, self.knobs)
