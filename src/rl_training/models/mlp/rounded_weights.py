"""The weights of a model rounded to bfloat16, which halves what the passes of its networks read.

The kernel of Adam writes them together with the weights, so that they cost one more write; they are in no checkpoint.
"""

import torch
from torch import Tensor
from torch.autograd.graph import increment_version

from rl_training.models.base import StackedModel


class RoundedWeights:
    """The trained and the target parameters of a model, rounded, in the layout of their buffers.

    They are up to date after `refresh` and after every step of `GroupedAdam.kernel_step`. Only bf16 has them.
    """

    def __init__(self, model: StackedModel, precision: str) -> None:
        self._sources = (model.trained.flat, model.targets.flat)
        self.buffers: tuple[Tensor, ...] = ()
        if precision == "bf16":
            self.buffers = tuple(torch.zeros_like(source, dtype=torch.bfloat16) for source in self._sources)
        self._versions: list[int] = []

    def refresh(self) -> None:
        """Round again if anything but kernel steps with these buffers has changed the parameters since the last time."""
        if self.buffers and self._current() != self._versions:
            for rounded, source in zip(self.buffers, self._sources, strict=True):
                rounded.copy_(source)
            self._versions = self._current()

    def stepped(self) -> None:
        """Note that kernel steps have changed the parameters and these buffers; others of the same model are now outdated."""
        if self.buffers:
            increment_version(self._sources)  # torch itself counts only what it has written
            self._versions = self._current()

    def _current(self) -> list[int]:
        return [source._version for source in self._sources]
