"""The networks of behaviour cloning: a policy, Gaussian or deterministic, and nothing else."""

from torch import Tensor

from rl_training.config.algorithms import BCNetworkKnobs
from rl_training.models.gaussian import GaussianPolicyModel
from rl_training.models.parameters import Segment


class MLPBCModel(GaussianPolicyModel):
    """A Gaussian policy, or with `policy: deterministic` its mean alone."""

    knobs_type = BCNetworkKnobs

    def build_networks(self, shape: BCNetworkKnobs) -> list[Segment]:
        """Make the policy; only a Gaussian one has a standard deviation."""
        self.deterministic = shape.policy == "deterministic"
        mean, log_std = self._make_gaussian(shape)
        return [mean] if self.deterministic else [mean, log_std]

    def act(self, observations: Tensor, noise: Tensor | None = None) -> Tensor:
        """Return actions in [-1, 1]; a deterministic policy ignores the noise."""
        return super().act(observations, None if self.deterministic else noise)
