"""Adam on groups of one flat buffer: per-member rates, counts and clipping; a group that is not due is untouched."""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from rl_training.models.mlp.operators import Backward
from rl_training.models.parameters import ALIGNMENT, ParameterBank

if TYPE_CHECKING:
    from rl_training.models.base import StackedModel


@dataclass(frozen=True)
class GroupOptions:
    """How one group of parameters is trained."""

    learning_rate: float | Tensor  # a column (members, 1) in float64 where members differ
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = 1e-8
    max_grad_norm: float | Tensor | None = None  # a column (members, 1) where members differ
    weight_decay: float | Tensor = 0.0  # decoupled; a column (members, 1) where members differ

    @property
    def decays(self) -> bool:
        """Whether any member's weights decay."""
        return bool(torch.as_tensor(self.weight_decay).any())


def adam_factors(counts: Tensor, increments: Tensor, learning_rates: Tensor, rates: Tensor, weight_decays: Tensor) -> Tensor:
    """Return the factor of m / (sqrt(v) + e), e, and the share of weights that remains: (steps, members, groups, 3).

    Both bias corrections are folded in, in float64, because 1 - 0.999 loses digits in float32. `counts` (members, groups)
    are the steps taken before, `increments` (steps, groups) those since then, `rates` the schedules' factors.
    """
    defaults = GroupOptions(0.0)
    count = counts.double().unsqueeze(0) + increments.unsqueeze(1)
    root = (1.0 - defaults.betas[1] ** count).sqrt()
    rate = learning_rates.unsqueeze(0) * rates.unsqueeze(1)
    scale = rate * root / (defaults.betas[0] ** count - 1.0)
    return torch.stack((scale, defaults.eps * root, 1.0 - rate * weight_decays), dim=-1).float()


class GroupedAdam:
    """Adam (Kingma and Ba, 2015) over the groups of a parameter bank, with decoupled weight decay as in AdamW."""

    def __init__(self, bank: ParameterBank, options: Mapping[str, GroupOptions]) -> None:
        if set(options) != set(bank.groups):
            raise ValueError(f"options for {sorted(options)} do not match groups {sorted(bank.groups)}")
        self.bank = bank
        self.first = bank.new_buffer()  # running mean of the gradient
        self.second = bank.new_buffer()  # running mean of its square
        device = bank.flat.device
        self.counts = {name: torch.zeros(bank.members, 1, device=device) for name in options}
        self._segments = {name: [s.name for s in bank.segments if s.group == name] for name in options}
        self._rows = {name: self._fused_rows(name) for name in options}
        self.change_options(options)

    def _fused_rows(self, name: str) -> list[list[Tensor]]:
        """Views of parameters, moments and counts of a group, a row per segment and member."""
        columns = [(segment.name in self._segments[name], segment.size) for segment in self.bank.segments]
        rows: list[list[Tensor]] = []
        for buffer in (self.bank.flat, self.first, self.second):
            pieces = torch.split_with_sizes(buffer, [size for _, size in columns], dim=1)
            rows.append([row for piece, (mine, _) in zip(pieces, columns, strict=True) if mine for row in piece.unbind(0)])
        return [*rows, [*self.counts[name][:, 0].unbind(0)] * len(self._segments[name])]

    def change_options(self, options: Mapping[str, GroupOptions]) -> None:
        """Go on with other options of the same groups."""
        self.options = dict(options)
        self._decayed = {name: self._decayed_columns(name) for name, own in options.items() if own.decays}
        for derived in ("learning_rates", "weight_decays", "_decay_flags"):
            vars(self).pop(derived, None)

    def _decayed_columns(self, name: str) -> list[slice]:
        """The columns of the parameters of a group that decay."""
        return [
            slice(start + offset, start + offset + spec.numel)
            for segment, start in ((s, self.bank.offsets[s.name]) for s in self.bank.segments if s.group == name)
            for spec, offset in zip(segment.specs, segment.offsets, strict=True)
            if spec.decays
        ]

    @torch.no_grad()
    def clipped(self, gradients: dict[str, Tensor], due: Collection[str]) -> dict[str, Tensor]:
        """Return the gradients with the norm of each due group, per member, clipped to its `max_grad_norm`."""
        for name in due:
            largest = self.options[name].max_grad_norm
            if largest is not None:
                parts = [gradients[segment] for segment in self._segments[name]]
                factor = (largest / (torch.cat(parts, dim=1).norm(dim=1, keepdim=True) + 1e-6)).clamp(max=1.0)
                gradients |= {segment: gradients[segment] * factor for segment in self._segments[name]}
        return gradients

    @torch.no_grad()
    def step(self, gradients: Mapping[str, Tensor], due: Collection[str], rates: Mapping[str, float]) -> None:
        """Apply one Adam step to the due groups; `rates` scales each group's learning rate (its schedule)."""
        for name in due:
            options = self.options[name]
            parts = [gradients[segment] for segment in self._segments[name]]
            rate = options.learning_rate * rates[name]
            self.counts[name].add_(1.0)
            self.decay(name, rate)
            if parts[0].is_cpu:
                self._fused_step(name, parts, rate)
            else:
                self.elementwise_step(name, torch.cat(parts, dim=1), rate)

    def decay(self, name: str, rate: float | Tensor) -> None:
        """Shrink the weights of a group, p <- p - rate * decay * p, if it decays; a step follows."""
        share = 1.0 - rate * self.options[name].weight_decay
        for columns in self._decayed.get(name, []):
            self.bank.flat[:, columns].mul_(share.float() if isinstance(share, Tensor) else share)

    @cached_property
    def learning_rates(self) -> Tensor:
        """The learning rates of all members and groups, (members, groups)."""
        return self._table([options.learning_rate for options in self.options.values()])

    @cached_property
    def weight_decays(self) -> Tensor:
        """The weight decays of all members and groups, (members, groups)."""
        return self._table([options.weight_decay for options in self.options.values()])

    def _table(self, columns: Sequence[float | Tensor]) -> Tensor:
        table = torch.empty(self.bank.members, len(columns), dtype=torch.float64)
        for number, column in enumerate(columns):
            table[:, number : number + 1] = torch.as_tensor(column, dtype=torch.float64)
        return table.to(self.bank.flat.device)

    @cached_property
    def _decay_flags(self) -> Tensor | None:
        """For each column whether it decays; None if none does."""
        if not self._decayed:
            return None
        flags = torch.zeros(self.bank.size)
        for columns in (columns for group in self._decayed.values() for columns in group):
            flags[columns] = 1.0
        return flags.to(self.bank.flat.device)

    @torch.no_grad()
    def kernel_step(
        self,
        gradients: Mapping[str, Tensor],
        factors: Tensor,
        followed: "StackedModel | None",
        tau: Tensor,
        rounded: Sequence[Tensor] = (),
        postponed: Mapping[tuple[str, ...], Backward] | None = None,
    ) -> None:
        """Apply one step to the segments that have gradients, and update their targets, in one pass over GPU memory.

        `factors` are those of `adam_factors` for one step; the caller updates the counts. `followed` is the model whose
        targets are due, None when they are not. `rounded` are the buffers of `RoundedWeights`, which are updated too. The
        gradients of `postponed` segments are computed here, where they are applied.
        """
        from rl_training.models.mlp.triton import launch_adam  # needs Triton

        defaults = GroupOptions(0.0)
        if any((o.betas, o.eps) != (defaults.betas, defaults.eps) for o in self.options.values()):
            raise NotImplementedError("the kernel supports Adam with the default betas and eps only")
        targets = followed.targets if followed is not None else None
        offsets = targets.offsets if targets is not None else {}
        groups = list(self.options)
        places = {
            segment.name: (
                self.bank.offsets[segment.name],
                groups.index(segment.group),
                offsets.get(segment.name, -ALIGNMENT),
            )
            for segment in self.bank.segments
        }
        flat = targets.flat if targets is not None else self.bank.flat
        buffers = (self.bank.flat, self.first, self.second, flat)
        state = launch_adam.AdamState(*buffers, factors, tau, self._decay_flags, defaults.betas, rounded)
        for names, given in (postponed or {}).items():
            launch_adam.parameter_updates(state, given, [places[name] for name in names])
        if gradients:
            launch_adam.adam(state, list(gradients.values()), [places[name] for name in gradients])

    def elementwise_step(self, name: str, gradient: Tensor, rate: float | Tensor) -> None:
        """Apply the formula p <- p - rate * m^ / (sqrt(v^) + eps), with bias-corrected m^ and v^."""
        columns, options, count = self.bank.groups[name], self.options[name], self.counts[name]
        first, second = self.first[:, columns], self.second[:, columns]
        beta1, beta2 = options.betas
        first.lerp_(gradient, 1.0 - beta1)
        second.mul_(beta2).addcmul_(gradient, gradient, value=1.0 - beta2)
        # both corrections are folded into factors (members, 1) in float64, because 1 - 0.999 loses digits in float32
        root = (1.0 - beta2 ** count.double()).sqrt()
        scale = (rate * root / (beta1 ** count.double() - 1.0)).float()
        denominator = second.sqrt().add_((options.eps * root).float())
        self.bank.flat[:, columns].addcmul_(torch.div(first, denominator, out=denominator), scale)

    def _fused_step(self, name: str, gradients: Sequence[Tensor], rate: float | Tensor) -> None:
        """Apply the same formula in one pass over memory per distinct rate, with a row per segment and member."""
        parameters, first, second, counts = self._rows[name]
        rows: list[list[Tensor]] = [
            parameters,
            [row for gradient in gradients for row in gradient.unbind(0)],
            first,
            second,
            [],
            counts,
        ]
        if not isinstance(rate, Tensor):
            self._fused_kernel(name, rows, rate)
            return
        rates = rate[:, 0].tolist() * len(gradients)
        for value in dict.fromkeys(rates):
            indices = [index for index, other in enumerate(rates) if other == value]
            self._fused_kernel(name, [[row[index] for index in indices] if row else [] for row in rows], value)

    def _fused_kernel(self, name: str, rows: Sequence[list[Tensor]], rate: float) -> None:
        """Run torch's CPU kernel on rows of parameters, gradients, moments and counts."""
        options = self.options[name]
        torch._fused_adam_(
            *rows,
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
