"""Behaviour cloning (Pomerleau: "Efficient training of artificial neural networks for autonomous navigation", 1991).

The policy regresses on the logged actions, by maximum likelihood or by squared error; rewards are not used. Trained on the
best episodes only (`dataset: {..., top: 10%}`) it is the 10 % BC of the papers.
"""

from typing import Any

from torch import Tensor

from rl_training.algorithms.learner import Learner, Metrics, Step
from rl_training.config.algorithms.bc import BCKnobs
from rl_training.data.batch import Batch
from rl_training.models.bc import MLPBCModel


def likelihood_loss(log_prob: Tensor) -> Tensor:
    """Return the batch mean of -log pi(a | s), (members,)."""
    return -log_prob.mean(-1)


def regression_loss(predicted: Tensor, actions: Tensor) -> Tensor:
    """Return the mean squared distance to the logged actions over batch and dimensions, (members,)."""
    return (predicted - actions).square().mean((-2, -1))


def bc_loss(model: MLPBCModel, batch: Batch, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return the loss and metrics of behaviour cloning for a batch, without side effects; `knobs` as for `BC`."""
    return BC(model, **knobs).pure_loss(batch)


class BC(Learner[MLPBCModel, BCKnobs]):
    """Behaviour cloning on a model of stacked members; the metric `bc_loss` is the squared error for either policy."""

    knobs_type = BCKnobs
    metric_names = ("actor_loss", "bc_loss")

    def loss(self, batch: Batch, step: Step) -> tuple[Tensor, Metrics]:
        """Return the sum of the losses over members, and metrics (members,)."""
        del step  # no random numbers, and the policy is always due
        model = self.model
        mean = model.mean_actions(model.online, batch.observations)
        actor = distance = regression_loss(mean, batch.actions)
        if not model.deterministic:
            actor = likelihood_loss(model.log_density(model.online, mean, batch.actions))
        return actor.sum(), {"actor_loss": actor.detach(), "bc_loss": distance.detach()}
