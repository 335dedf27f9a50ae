"""The networks of AWAC: a Gaussian policy and an ensemble of critics."""

from rl_training.config.algorithms.awac import AWACNetworkKnobs
from rl_training.models.base import CriticModel
from rl_training.models.gaussian import GaussianPolicyModel
from rl_training.models.parameters import Segment


class MLPAWACModel(GaussianPolicyModel, CriticModel):
    """Critics Q(s, a) with targets and a plain Gaussian policy."""

    knobs_type = AWACNetworkKnobs
    target_groups = ("critic",)

    def build_networks(self, shape: AWACNetworkKnobs) -> list[Segment]:
        """Make critics and policy."""
        self._critic, policy = self._make_critic(shape), self._make_gaussian(shape)
        return [self._critic.parameters, *policy]
