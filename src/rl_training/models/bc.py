"""The networks of behaviour cloning: a policy, Gaussian or deterministic, and nothing else."""

from torch import Tensor

from rl_training.config.algorithms import BCNetworkKnobs
from rl_training.models.gaussian import GaussianPolicyModel
from rl_training.models.parameters import Segment


class MLPBCModel(GaussianPolicyModel):
    """A Gaussian policy, or with `policy: deterministic` its mean alone."""

    knobs_type = BCNetworkKnobs

    def build_networks(self, shape: BCNetworkKnobs) -> list[Segment]:
        """Make the policy; the standard deviation is a parameter of a Gaussian one only."""
        self.deterministic = shape.policy == "deterministic"
        mean, log_std = self._make_gaussian(shape)
        return [mean] if self.deterministic else [mean, log_std]

    def act(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return actions in [-1, 1]; those of a deterministic policy are the same with and without noise."""
        return super().act(observations, None if self.deterministic else noise)
