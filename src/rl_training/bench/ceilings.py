"""Two measured ceilings for the updates of an algorithm: their matrix products, and the optimizer's memory traffic."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from math import prod
from typing import Any

import torch
from torch import Tensor

from rl_training.algorithms.learner import Learner
from rl_training.bench.passes import Pass, Update

Product = tuple[Tensor, Tensor, Tensor]

_COPY_BYTES = {"cpu": 2**27, "cuda": 2**30}  # larger than the caches
_GRAPH_STEPS = 20  # updates in one CUDA graph, so that its launch time is negligible
_ADAM_MOVES = 7  # reads parameter, gradient and both moments; writes parameter and both moments
_POLYAK_MOVES = 2  # reads and writes the target; Adam has already read the parameter


def products(updates: Sequence[Update], device: torch.device, precision: str) -> tuple[Callable[[], None], int]:
    """Return a function that runs only the matrix products of one or more whole patterns of updates, and its steps.

    They have the shapes and the order of the updates, with preallocated outputs. On CUDA they are a single graph.
    """
    draw = torch.Generator(device).manual_seed(0)
    dtype = torch.bfloat16 if precision == "bf16" else torch.float32
    known = {update: _work(update, draw, dtype) for update in set(updates)}
    repeats = max(1, _GRAPH_STEPS // len(updates)) if device.type == "cuda" else 1
    work = [product for update in updates for product in known[update]] * repeats

    def run() -> None:
        for left, right, out in work:
            torch.bmm(left, right, out=out)

    with _tf32(precision == "tf32"):
        return (run if device.type == "cpu" else _captured(run, device)), repeats * len(updates)


def _work(update: Update, draw: torch.Generator, dtype: torch.dtype) -> list[Product]:
    parts = [_pass_products(one, draw, dtype) for one in update]
    forward_products = [product for forward, _ in parts for product in forward]
    return forward_products + [product for _, backward in reversed(parts) for product in backward]


def _pass_products(network: Pass, draw: torch.Generator, dtype: torch.dtype) -> tuple[list[Product], list[Product]]:
    """The forward and the backward products of a pass, each in order."""

    def values(*shape: int) -> Tensor:
        return torch.randn(network.stack, *shape, generator=draw, device=draw.device, dtype=dtype)

    activations = [values(network.rows, width) for width in network.widths]
    forward: list[Product] = []
    backward: list[Product] = []
    for layer, (fan_in, fan_out) in enumerate(pairwise(network.widths)):
        x, y = activations[layer : layer + 2]
        w = values(fan_in, fan_out) * 0.05
        forward.append((x, w, y))
        twice = network.gradient == "twice"
        if network.gradient == "none" or (twice and layer == len(network.widths) - 2):
            continue
        gradient = values(network.rows, fan_out)
        if twice:
            backward.append((x, w, torch.empty_like(y)))
        if layer > 0 or network.wanted:
            wanted = fan_in if layer > 0 else network.wanted
            backward.append((gradient, w[:, -wanted:].mT, values(network.rows, wanted)))
        if network.gradient != "inputs":
            few = fan_out < fan_in  # then the transposed product is faster, and the package uses it
            backward.append((gradient.mT, x, torch.empty_like(w.mT)) if few else (x.mT, gradient, torch.empty_like(w)))
    return forward, backward[::-1]  # built from the first layer to the last, run from the last to the first


@contextlib.contextmanager
def _tf32(allowed: bool) -> Iterator[None]:
    before = torch.backends.cuda.matmul.allow_tf32
    torch.backends.cuda.matmul.allow_tf32 = allowed
    try:
        yield
    finally:
        torch.backends.cuda.matmul.allow_tf32 = before


def _captured(run: Callable[[], None], device: torch.device) -> Callable[[], None]:
    """The function as a CUDA graph; it must not allocate memory."""
    with torch.cuda.device(device):
        stream: Any = torch.cuda.Stream()  # type: ignore[no-untyped-call]
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            run()
        torch.cuda.current_stream().wait_stream(stream)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            run()

    def replay(held: Callable[[], None] = run) -> None:  # holds `run`, because a graph does not keep its tensors alive
        del held
        graph.replay()

    return replay


def traffic_bytes(learner: Learner[Any, Any], steps: int) -> float:
    """Return the bytes that Adam and polyak averaging must move per update, the mean over the first `steps` updates."""
    model = learner.model
    trained = _group_sizes(model.trained.segments)
    followed = sum(_group_sizes(model.targets.segments).values())
    moves, members = 0, int(model.members)
    for step in range(steps):
        moves += _ADAM_MOVES * sum(trained[group] for group in learner.due_groups(step))
        moves += _POLYAK_MOVES * followed * learner.targets_due(step)
    return 4.0 * members * moves / steps


def _group_sizes(segments: Sequence[Any]) -> dict[str, int]:
    sizes: dict[str, int] = {}
    for segment in segments:
        sizes[segment.group] = sizes.get(segment.group, 0) + sum(prod(spec.shape) for spec in segment.specs)
    return sizes


def copying(device: torch.device) -> tuple[Callable[[], None], int]:
    """Return a function that copies a large tensor, and the bytes it reads plus those it writes."""
    source = torch.zeros(_COPY_BYTES[device.type] // 4, device=device)
    target = torch.zeros_like(source)

    def run() -> None:
        target.copy_(source)

    return run, 2 * source.numel() * source.element_size()
