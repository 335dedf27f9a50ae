"""The networks of behaviour cloning: a policy, Gaussian or deterministic, and nothing else."""

from rl_training.config.algorithms.bc import BCNetworkKnobs
from rl_training.models.gaussian import GaussianPolicyModel
from rl_training.models.parameters import Segment


class MLPBCModel(GaussianPolicyModel):
    """A Gaussian policy, or with `policy: deterministic` its mean alone."""

    knobs_type = BCNetworkKnobs

    def build_networks(self, shape: BCNetworkKnobs) -> list[Segment]:
        """Make the policy; only a Gaussian one has a standard deviation."""
        return self._make_gaussian(shape)
