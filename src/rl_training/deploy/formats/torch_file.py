"""`torch`: policy.pt2, a program of `torch.export` for a batch of any size."""

from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn.functional import gelu, layer_norm, silu

from rl_training.deploy.program import Floats, Network, Program
from rl_training.models.mlp.eager import LAYER_NORM_EPS

FILES = ("policy.pt2",)


def write(program: Program, directory: Path) -> None:
    """Write the file of a policy."""
    batch = torch.export.Dim("batch", min=1)
    names = ["observation", *(["last_action"] if program.safety.uses_last else [])]
    widths = (len(program.mean), len(program.middle))
    example = tuple(torch.zeros(3, width) for width in widths[: len(names)])
    exported = torch.export.export(PolicyModule(program).eval(), example, dynamic_shapes={name: {0: batch} for name in names})
    torch.export.save(exported, directory / "policy.pt2")


class PolicyModule(nn.Module):
    """A policy of plain operations: (observation[, last_action]) to action, or (action, columns outside)."""

    def __init__(self, program: Program) -> None:
        super().__init__()
        self._program, safety = program, program.safety
        numbers: dict[str, Floats | None] = {
            "mean": program.mean,
            "std": program.std,
            "middle": program.middle,
            "half_range": program.half_range,
        }
        numbers |= {"low": safety.low, "high": safety.high, "fallback": safety.fallback, "change": safety.change}
        numbers |= {"candidates": program.candidates}
        if safety.seen is not None:
            numbers |= {"seen_low": safety.seen[0], "seen_high": safety.seen[1]}
        for name, value in numbers.items():
            self._keep(name, value)
        for name, network in (("actor", program.actor), *((f"critic{k}", one) for k, one in enumerate(program.critics))):
            for number, layer in enumerate(network.layers):
                for part, value in vars(layer).items():
                    self._keep(f"{name}_{number}_{part}", value)
        self._keep("place", program.place)

    def _keep(self, name: str, value: Floats | None) -> None:
        if value is not None:
            self.register_buffer(name, torch.from_numpy(value.copy()))

    def forward(self, observation: Tensor, last_action: Tensor | None = None) -> Tensor | tuple[Tensor, Tensor]:
        """Return the actions of a batch."""
        limit, buffers = self._program.limit, dict(self.named_buffers())
        good = (observation.abs() <= self._program.safety.largest).all(-1, keepdim=True)
        seen = (torch.where(good, observation, buffers["mean"]) - buffers["mean"]) / buffers["std"]
        unit = self._unit(seen.clamp(-limit, limit), buffers) @ buffers["place"]
        low, high = buffers["low"], buffers["high"]
        action = unit * buffers["half_range"] + buffers["middle"]
        good, action = good & action.isfinite().all(-1, keepdim=True), action.clamp(low, high)
        if last_action is not None:
            last_action = torch.where(last_action.isfinite(), last_action, torch.nan)
        otherwise = buffers["fallback"] if last_action is None or "fallback" in buffers else last_action
        action = torch.where(good, action, otherwise)
        if last_action is not None and "change" in buffers:
            held = action.clamp(last_action - buffers["change"], last_action + buffers["change"])
            action = torch.where(last_action.isnan(), action, held)
        action = action.clamp(low, high)
        if "seen_low" not in buffers:
            return action
        inside = (observation >= buffers["seen_low"]) & (observation <= buffers["seen_high"])
        return action, (~inside).sum(-1)

    def _unit(self, seen: Tensor, buffers: dict[str, Tensor]) -> Tensor:
        """Actions in [-1, 1] of normalised observations."""
        program = self._program
        if program.candidates is None:
            return self._squashed(self._network("actor", program.actor, seen, buffers))
        noise = buffers["candidates"].expand(seen.shape[0], -1, -1)
        seen = seen.unsqueeze(1).expand(-1, len(program.candidates), -1)
        actions = self._squashed(self._network("actor", program.actor, torch.cat((seen, noise), -1), buffers))
        pairs = torch.cat((seen, actions), -1)
        values = [self._network(f"critic{k}", one, pairs, buffers) for k, one in enumerate(program.critics)]
        best = torch.cat(values, -1).amin(-1).argmax(1)
        return actions.gather(1, best[:, None, None].expand(-1, 1, actions.shape[-1])).squeeze(1)

    def _squashed(self, outputs: Tensor) -> Tensor:
        outputs = outputs[..., : int(self._program.free.sum())]
        return outputs.tanh() if self._program.squashed else outputs.clamp(-1.0, 1.0)

    def _network(self, name: str, network: Network, hidden: Tensor, buffers: dict[str, Tensor]) -> Tensor:
        last = len(network.layers) - 1
        for number in range(last + 1):
            own = f"{name}_{number}_"
            hidden = hidden @ buffers[f"{own}weight"] + buffers[f"{own}bias"]
            if number == last:
                break
            hidden = self._active(hidden) if network.norm == "after" else hidden
            if network.norm != "none":
                hidden = layer_norm(
                    hidden, hidden.shape[-1:], buffers[f"{own}scale"], buffers[f"{own}offset"], LAYER_NORM_EPS
                )
            hidden = hidden if network.norm == "after" else self._active(hidden)
        return hidden

    def _active(self, values: Tensor) -> Tensor:
        kind = self._program.activation
        if kind == "relu":
            return values.relu()
        if kind == "silu":
            return silu(values)
        return values.tanh() if kind == "tanh" else gelu(values, approximate="tanh")
