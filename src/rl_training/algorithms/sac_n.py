"""SAC-N (An, Moon, Kim, Song: "Uncertainty-based offline reinforcement learning with diversified Q-ensemble", 2021).

SAC on a fixed dataset with N critics, whose minimum is the target and what the policy maximises: where the data says little
the critics disagree, so their minimum is low there. The paper needs 10 (halfcheetah) to 500 (hopper) critics. As in the
official code the losses of critics, policy and temperature use the parameters from before the step; CORL updates temperature,
policy and critics in turn.
"""

from typing import Any, ClassVar

from torch import Tensor

from rl_training.algorithms.learner import Metrics
from rl_training.algorithms.sac import SAC
from rl_training.config.algorithms.sac_n import SACNKnobs
from rl_training.data.batch import Batch
from rl_training.models.sac import MLPSACModel


def sac_n_loss(model: MLPSACModel, batch: Batch, *, step: int = 0, **knobs: Any) -> tuple[Tensor, Metrics]:
    """Return SAC-N's loss and metrics with the random numbers of `step`, without side effects; `knobs` as for `SACN`."""
    return SACN(model, **knobs).pure_loss(batch, step)


class SACN(SAC):
    """SAC on data with many critics; nothing but the size of the ensemble differs."""

    knobs_type: ClassVar[type[SACNKnobs]] = SACNKnobs
    knobs: SACNKnobs
