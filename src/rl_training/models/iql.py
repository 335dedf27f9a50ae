"""The networks of IQL and XQL: a Gaussian policy with tanh mean, an ensemble of critics, a value network."""

from torch import Tensor

from rl_training.config.algorithms.iql import IQLNetworkKnobs
from rl_training.models.base import CriticModel, Parameters
from rl_training.models.gaussian import GaussianPolicyModel
from rl_training.models.parameters import Segment


class MLPIQLModel(GaussianPolicyModel, CriticModel):
    """Critics Q(s, a), value V(s) and a plain Gaussian policy."""

    knobs_type = IQLNetworkKnobs
    target_groups = ("critic",)

    def build_networks(self, shape: IQLNetworkKnobs) -> list[Segment]:
        """Make critics, value network and policy."""
        self._critic, policy = self._make_critic(shape), self._make_gaussian(shape)
        self._value = self._make_scalar("value", shape, 0, shape.value_layer_norm)
        return [self._critic.parameters, self._value.parameters, *policy]

    def values(self, parameters: Parameters, observations: Tensor) -> Tensor:
        """Return V, (members, batch)."""
        return self._value(parameters["value"], observations)
