"""Running a project written in PyTorch: small networks in float64, given noise, and a look at its losses and gradients."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch import Tensor, nn

from tools.references.common import STEPS, WIDTH, Array, Recording, coarse

View = Callable[[Tensor], Tensor]
"""What to read of a parameter: its value, or its gradient."""
Named = Callable[[View], dict[str, Tensor]]
"""Returns the parameters of the other project by our names, as a view shows them."""
Layers = Sequence[Any]
"""The linear layers of a network; several in place of one are heads, joined along the outputs."""


class _NarrowLinear(nn.Linear):
    """A linear layer with `WIDTH` units where 256 are asked for, as some projects fix the widths of their networks."""

    def __init__(self, inputs: int, outputs: int, *args: Any, **kwargs: Any) -> None:
        inputs, outputs = (WIDTH if size == 256 else size for size in (inputs, outputs))
        super().__init__(inputs, outputs, *args, **kwargs)


@contextmanager
def small_networks() -> Iterator[None]:
    """Make the linear layers inside the block narrow and in float64."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        with patch.object(nn, "Linear", _NarrowLinear):
            yield
    finally:
        torch.set_default_dtype(before)


def redraw(recording: Recording, *modules: nn.Module | Tensor) -> None:
    """Give every parameter a new value, targets one of their own, so that no two that a formula could confuse are equal."""
    for module in modules:
        for parameter in [module] if isinstance(module, Tensor) else module.parameters():
            parameter.data = parameter.data.double()
            bias = parameter.ndim < 2 or (parameter.ndim == 3 and parameter.shape[1] == 1)
            bound = 0.3 if bias else 2.0 / max(parameter.shape[-2:]) ** 0.5
            parameter.data.copy_(torch.from_numpy(coarse(recording.rng.uniform(-bound, bound, tuple(parameter.shape)))))


def linears(network: nn.Module) -> list[nn.Linear]:
    """Return the linear layers of a network, in order."""
    return [module for module in network.modules() if isinstance(module, nn.Linear)]


def _affine(layer: Any, view: View) -> tuple[Tensor, Tensor]:
    """The weight (in, out) and bias of a layer or of several heads; those of a vectorised layer have an ensemble axis."""
    if isinstance(layer, tuple):
        weights, biases = zip(*(_affine(head, view) for head in layer), strict=True)
        return torch.cat(weights, dim=-1), torch.cat(biases, dim=-1)
    weight, bias = view(layer.weight), view(layer.bias)
    return (weight, bias.squeeze(-2)) if weight.ndim == 3 else (weight.T, bias)


def perceptron(name: str, layers: Layers, view: View) -> dict[str, Tensor]:
    """Return the parameters of a network, or of a vectorised ensemble, by our names."""
    found = {}
    for number, layer in enumerate(layers):
        found[f"{name}/{number}/weight"], found[f"{name}/{number}/bias"] = _affine(layer, view)
    return found


def ensemble(name: str, networks: Sequence[Layers], view: View) -> dict[str, Tensor]:
    """Return the parameters of separate critics by our names, with an ensemble axis."""
    each = [perceptron(name, layers, view) for layers in networks]
    return {key: torch.stack([critic[key] for critic in each]) for key in each[0]}


class Noise:
    """The random numbers that the other code is given, in the order in which it asks for them."""

    def __init__(self) -> None:
        self._waiting: list[Array] = []

    def give(self, *arrays: Array) -> None:
        """Queue arrays in the shapes that the other code asks for."""
        self._waiting += arrays

    def take(self, shape: Sequence[int], *_args: object, **_kwargs: object) -> Tensor:
        """Return the next array; its shape must be the one asked for."""
        values = self._waiting.pop(0)
        if values.shape != tuple(shape):
            raise ValueError(f"the code draws {tuple(shape)} where {values.shape} was prepared")
        return torch.from_numpy(values)

    def check_used(self) -> None:
        """Raise a ValueError if numbers are left over."""
        if self._waiting:
            raise ValueError(f"the code left {len(self._waiting)} prepared arrays unused")

    @contextmanager
    def replacing_samplers(self) -> Iterator[None]:
        """Replace torch's samplers: normals by name or distribution, and `uniform_`, which is given uniforms in [0, 1)."""

        def uniform_(tensor: Tensor, low: float = 0.0, high: float = 1.0) -> Tensor:
            return tensor.copy_(low + (high - low) * self.take(tensor.shape))

        with ExitStack() as stack:
            stack.enter_context(patch("torch.distributions.normal._standard_normal", self.take))
            stack.enter_context(patch("torch.randn_like", lambda like: self.take(like.shape)))
            stack.enter_context(patch("torch.normal", lambda mean, std: mean + std * self.take(mean.shape)))
            stack.enter_context(patch.object(Tensor, "uniform_", uniform_))
            yield


class _FirstGradients:
    """The gradient of each parameter when its optimizer steps for the first time."""

    def __init__(self, optimizers: Sequence[torch.optim.Optimizer]) -> None:
        self._found: dict[int, Tensor] = {}
        for optimizer in optimizers:
            optimizer.register_step_pre_hook(self._keep)

    def _keep(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._found.setdefault(id(parameter), parameter.grad.clone())

    def __call__(self, parameter: Tensor) -> Tensor:
        return self._found[id(parameter)]


class Run:
    """Ten updates of the other code, recorded.

    `losses` names the values that it differentiates in a step, in order; those of one name are added, those without a name
    are not recorded.
    """

    def __init__(
        self,
        recording: Recording,
        optimizers: Sequence[torch.optim.Optimizer],
        losses: Sequence[str],
        trained: Named,
        targets: Named | None = None,
    ) -> None:
        self.recording, self.noise = recording, Noise()
        self._losses, self._trained, self._targets = losses, trained, targets
        self._gradients = _FirstGradients(optimizers)
        self._seen: list[float] = []
        self._step = -1

    def batch(self, step: int) -> dict[str, Tensor]:
        """Return a step's batch as tensors; numbers per row are columns (rows, 1), as the projects have them."""
        arrays = {name: torch.from_numpy(values) for name, values in self.recording.batch(step).items()}
        return {name: values.unsqueeze(1) if values.ndim == 1 else values for name, values in arrays.items()}

    def normals(self, step: int, stream: str, *shape: int) -> Array:
        """Draw and record normals, and queue them for the other code."""
        values = self.recording.normals(step, stream, *shape)
        self.noise.give(values)
        return values

    def __call__(self, update: Callable[[int], object]) -> Recording:
        """Call `update(step)` for each step; one call may take several steps if it calls `begin` for each."""
        self.recording.initial(self._values())
        backward = Tensor.backward

        def noted(loss: Tensor, *args: Any, **kwargs: Any) -> None:
            self._seen.append(loss.detach().sum().item())
            backward(loss, *args, **kwargs)  # type: ignore[no-untyped-call]

        with patch.object(Tensor, "backward", noted), self.noise.replacing_samplers():
            for step in range(STEPS):
                if step > self._step:
                    self.begin(step)
                    update(step)
            self._end()
        self.noise.check_used()
        self.recording.gradients(self._trained(self._gradients))
        self.recording.final(self._values())
        return self.recording

    def begin(self, step: int) -> None:
        """Begin a step: what is differentiated from here on are its losses."""
        if step != self._step:
            self._end()
            self._step = step

    def _end(self) -> None:
        losses: dict[str, float] = {}
        for name, value in zip(self._losses, self._seen, strict=False):
            losses[name] = losses.get(name, 0.0) + value
        losses.pop("", None)
        self.recording.losses(self._step, losses)
        self._seen.clear()

    def _values(self) -> dict[str, Any]:
        def value(parameter: Tensor) -> Tensor:
            return parameter.detach().clone()

        targets = self._targets(value) if self._targets else {}
        found = {**self._trained(value), **{f"target/{name}": tensor for name, tensor in targets.items()}}
        return {name: np.asarray(tensor) for name, tensor in found.items()}
