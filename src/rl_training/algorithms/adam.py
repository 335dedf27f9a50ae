"""Adam on groups of one flat buffer: per-member rates, counts and clipping; a group that is not due is untouched."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from rl_training.models.parameters import ParameterBank


@dataclass(frozen=True)
class GroupOptions:
    """How one group of parameters is trained."""

    learning_rate: float
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    weight_decay: float = 0.0  # decoupled, on weight matrices only
    max_grad_norm: float | None = None


class GroupedAdam:
    """Adam (Kingma and Ba, 2015), with decoupled weight decay, over the groups of a parameter bank."""

    def __init__(self, bank: ParameterBank, options: Mapping[str, GroupOptions]) -> None:
        if set(options) != set(bank.groups):
            raise ValueError(f"options for {sorted(options)} do not match groups {sorted(bank.groups)}")
        self.bank = bank
        self.options = dict(options)
        self.first = bank.new_buffer()  # running mean of the gradient
        self.second = bank.new_buffer()  # running mean of its square
        device = bank.flat.device
        self.counts = {name: torch.zeros(bank.members, 1, device=device) for name in options}
        self._segments = {name: [s.name for s in bank.segments if s.group == name] for name in options}
        buffers = (bank.flat, self.first, self.second)
        self._rows = {
            name: [*(list(buffer[:, bank.groups[name]].unbind(0)) for buffer in buffers), list(count[:, 0].unbind(0))]
            for name, count in self.counts.items()
        }
        self._mask = bank.weight_mask()

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], due: Collection[str], rates: Mapping[str, float]) -> None:
        """Apply one Adam step to the due groups; `rates` scales each group's learning rate (its schedule)."""
        for name in due:
            options = self.options[name]
            parts = [gradients[segment] for segment in self._segments[name]]
            slope = parts[0] if len(parts) == 1 else torch.cat(parts, dim=1)
            if options.max_grad_norm is not None:
                norm = slope.norm(dim=1, keepdim=True)
                slope = slope * (options.max_grad_norm / (norm + 1e-6)).clamp(max=1.0)
            rate = options.learning_rate * rates[name]
            if options.weight_decay:
                columns = self.bank.groups[name]
                self.bank.flat[:, columns].mul_(1.0 - rate * options.weight_decay * self._mask[columns])
            self.counts[name].add_(1.0)
            if slope.is_cpu:
                self._fused_step(name, slope, rate)
            else:
                self.elementwise_step(name, slope, rate)

    def elementwise_step(self, name: str, slope: Tensor, rate: float) -> None:
        """The formula: p <- p - rate * m^ / (sqrt(v^) + eps), with m^ and v^ corrected for their start at zero."""
        columns, options, count = self.bank.groups[name], self.options[name], self.counts[name]
        first, second = self.first[:, columns], self.second[:, columns]
        beta1, beta2 = options.betas
        first.lerp_(slope, 1.0 - beta1)
        second.mul_(beta2).addcmul_(slope, slope, value=1.0 - beta2)
        # both corrections folded into factors (members, 1), in float64: 1 - 0.999 has few digits in float32
        root = (1.0 - beta2 ** count.double()).sqrt()
        scale = (rate * root / (beta1 ** count.double() - 1.0)).float()
        denominator = second.sqrt().add_((options.eps * root).float())
        self.bank.flat[:, columns].addcmul_(torch.div(first, denominator, out=denominator), scale)

    def _fused_step(self, name: str, slope: Tensor, rate: float) -> None:
        """The same formula in one pass over memory: torch's own CPU kernel, a row per member."""
        options = self.options[name]
        torch._fused_adam_(
            *(self._rows[name][0], list(slope.unbind(0)), *self._rows[name][1:3], [], self._rows[name][3]),
            lr=rate,
            beta1=options.betas[0],
            beta2=options.betas[1],
            weight_decay=0.0,
            eps=options.eps,
            amsgrad=False,
            maximize=False,
        )

    def buffers(self) -> list[Tensor]:
        """Return moments and counts without copying."""
        return [self.first, self.second, *self.counts.values()]

    def tensors(self) -> dict[str, Tensor]:
        """Return copies of moments and counts by logical name."""
        counts = {f"adam/count/{name}": count[:, 0].to(torch.int64) for name, count in self.counts.items()}
        first = self.bank.export(self.first, "adam/first/")
        return {**first, **self.bank.export(self.second, "adam/second/"), **counts}

    def load_tensors(self, values: Mapping[str, Tensor]) -> None:
        """Copy moments and counts into the allocated buffers."""
        self.bank.load(self.first, values, "adam/first/")
        self.bank.load(self.second, values, "adam/second/")
        for name, count in self.counts.items():
            count.copy_(values[f"adam/count/{name}"].unsqueeze(1))
