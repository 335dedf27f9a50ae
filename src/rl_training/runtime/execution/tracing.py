"""A gradient step as one graph of operations: traced from the learner's own code, its networks merged into few launches.

The algorithms are not aware of this. Their loss and its backward pass are traced once; the result is a pure function of
parameters, targets, packed rows, knobs that move and random numbers. Independent networks are then merged: each call of
the operators in `models.mlp.operators` takes a list of networks, and lists can be concatenated. On the CPU there are no
such calls, and nothing is merged.
"""

import threading
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice, pairwise
from typing import Any, Final

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from rl_training.algorithms.learner import Learner, Step, summarize
from rl_training.data.batch import Batch
from rl_training.models.base import StackedModel
from rl_training.models.mlp import operators as mlp_ops
from rl_training.models.mlp.layout import MLPLayout
from rl_training.models.mlp.tiles import updates_at_once
from rl_training.rng import DrawKey, Draws

COMPILING: Final = threading.RLock()
"""Held while a step is traced and compiled: torch keeps what it is doing in variables of the process."""
MakeBatch = Callable[[Tensor, Tensor | None], Batch]
"""A batch from packed rows (members, batch, width) and, where fresh and prior data mix, which rows are prior."""


@dataclass(frozen=True)
class Variant:
    """What may differ between gradient steps: groups trained, whether targets move, whether they report, and the stage."""

    due: tuple[str, ...]
    targets: bool
    report: bool
    stage: str


@dataclass(frozen=True)
class Wanted:
    """What a traced step returns: the gradients of the due groups, its metrics, or both."""

    due: tuple[str, ...]
    gradients: bool = True
    metrics: bool = False
    stage: str = ""

    def step(self, draws: Draws) -> Step:
        """Return what a loss needs to know."""
        return Step(draws, self.due, self.metrics, self.stage)


@dataclass(frozen=True)
class Postponed:
    """Gradients of networks that a step leaves to the optimizer; in their place it returns what they are computed from."""

    segments: tuple[str, ...]  # one for each job
    second_widths: tuple[int, ...]
    layouts: tuple[MLPLayout, ...]
    precision: str

    def backward(self, results: Iterator[Tensor]) -> mlp_ops.Backward:
        """Return what the gradients are computed from, of which the next results are the tensors."""
        count = len(self.segments)
        firsts, seconds, gradients, saved, hidden = (list(islice(results, count)) for _ in range(5))
        rest = (gradients, saved, hidden, self.layouts, self.precision)
        return mlp_ops.Backward(firsts, seconds, self.second_widths, *rest)


@dataclass(frozen=True)
class TracedStep:
    """One step as a graph.

    Its inputs are trained and target buffers, rows, prior flags if any, rounded parameters, moving knobs, and draws.
    """

    graph: fx.GraphModule
    segments: tuple[str, ...]  # segments whose gradients are the first results
    metrics: tuple[str, ...]  # names of the next results
    postponed: tuple[Postponed, ...]  # gradients that the other results are for
    streams: tuple[DrawKey, ...]  # random streams of the last inputs
    example: tuple[Tensor | None, ...]  # example values of all inputs


def variant_at(learner: Learner[Any, Any], step: int, *, report: bool) -> Variant:
    """Return the variant of a step."""
    due = learner.due_groups(step)
    names = tuple(name for name in learner.model.trained.groups if name in due)
    return Variant(names, learner.targets_due(step), report, learner.stage(step))


def trace_step(
    learner: Learner[Any, Any],
    wanted: Wanted,
    rows: Tensor,
    prior: Tensor | None,
    make_batch: MakeBatch,
    precision: str,
    rounded: Sequence[Tensor] = (),
) -> TracedStep:
    """Return the wanted results of a step as a graph; the learner is not changed.

    `rounded` are the trained and the target parameters in bfloat16, or none.
    """
    model = learner.model
    learner.buffers()  # creates the optimizer now, not while tracing
    draws = Draws.of_steps(model.seed_tensor, 0)
    with mlp_ops.fused_networks(precision):
        learner.training_loss(make_batch(rows, prior), wanted.step(draws))  # records the streams it draws
        streams, segments, names = draws.streams, list[str](), list[str]()

        def step(trained: Tensor, targets: Tensor, rows: Tensor, prior: Tensor | None, *others: Tensor) -> list[Tensor]:
            own, others = others[: len(rounded)] or (None, None), others[len(rounded) :]
            columns, drawn = others[: len(learner.moving)], others[len(learner.moving) :]
            with model.on_buffers(trained, targets, own), learner.on_columns(columns):
                given = wanted.step(Draws.given(model.seed_tensor, streams, drawn))
                loss, metrics = learner.training_loss(make_batch(rows, prior), given)
                gradients = learner.gradients(loss, wanted.due) if wanted.gradients else {}
                reported = summarize(metrics) if wanted.metrics else {}
            segments[:], names[:] = gradients, reported
            return [*gradients.values(), *reported.values()]

        others = (*rounded, *learner.moving.values(), *draws.values_of_step(streams))
        example = (model.trained.flat, model.targets.flat, rows, prior, *others)
        graph = _recorded(step, example)
    merge_networks(graph)
    postponed = postpone_gradients(graph, segments) if rows.is_cuda else []
    later = {name for own in postponed for name in own.segments}
    left = tuple(name for name in segments if name not in later)
    return TracedStep(graph, left, tuple(names), tuple(postponed), streams, example)


def trace_acting(model: StackedModel, observations: Tensor, noise: Tensor, precision: str) -> fx.GraphModule:
    """Return what a policy does, with everything left out that its actions do not need: (trained, observations, noise)."""

    def act(trained: Tensor, observations: Tensor, noise: Tensor) -> Tensor:
        with model.on_buffers(trained, model.targets.flat):
            return model.act(observations, noise)

    with COMPILING, mlp_ops.fused_networks(precision):
        graph = _recorded(act, (model.trained.flat, observations, noise))
    graph.graph.eliminate_dead_code()
    graph.recompile()
    return graph


def _recorded(function: Callable[..., Any], example: tuple[Tensor | None, ...]) -> fx.GraphModule:
    """A function as a graph without in-place writes, so that nodes can be reordered and left out."""
    return make_fx(torch.func.functionalize(make_fx(function)(*example)))(*example)


_FORWARD = torch.ops.rl_training.mlp_forward.default
_HIDDEN_GRADIENTS = torch.ops.rl_training.mlp_hidden_gradients.default
_GRADIENTS = torch.ops.rl_training.mlp_gradients.default
_RESULTS = {_FORWARD: 2, _HIDDEN_GRADIENTS: 2, _GRADIENTS: 1}  # tensors that one job returns


def merge_networks(module: fx.GraphModule) -> None:
    """Merge the calls of independent networks in a graph, in place.

    A network's depth is the number of networks on the longest path to it; networks of one kind, depth and shape are
    independent. One that would be alone joins a deeper launch if nothing waits for it. Parameter gradients, which no network
    depends on, are merged regardless of depth.
    """
    graph = module.graph
    graph.eliminate_dead_code()
    groups: dict[Any, list[fx.Node]] = {}
    for node, level in _levels(graph).items():
        groups.setdefault((*_kind(node), level), []).append(node)
    for nodes in groups.values():
        if len(nodes) > 1:
            _merge(graph, nodes)
    _sort(graph)
    graph.eliminate_dead_code()
    module.recompile()


def postpone_gradients(module: fx.GraphModule, segments: Sequence[str]) -> list[Postponed]:
    """Let a graph whose first results are gradients of segments return what they are computed from, in place.

    That is done for the gradients of networks which nothing else needs, where the optimizer is faster with them.
    """
    output = module.graph.output_node()
    results: Any = output.args[0]
    names, found = dict(zip(results, segments, strict=False)), list[Postponed]()
    for node in [node for node in module.graph.nodes if node.target is _GRADIENTS]:
        firsts, seconds, widths, gradients, saved, hidden, encoded, precision = node.args
        jobs = sorted(node.users, key=lambda user: user.args[1])
        alone = len(jobs) == len(firsts) and all(job in names and list(job.users) == [output] for job in jobs)
        layouts = tuple(MLPLayout.decode(encoded))
        if alone and _applied_at_once(gradients, layouts, precision):
            results = [result for result in results if result not in jobs]
            results += [*firsts, *seconds, *gradients, *saved, *hidden]
            found.append(Postponed(tuple(names[job] for job in jobs), tuple(widths), layouts, precision))
    output.args = (results,)
    module.graph.eliminate_dead_code()
    module.recompile()
    return found


def _applied_at_once(gradients: Sequence[fx.Node], layouts: Sequence[MLPLayout], precision: str) -> bool:
    """Whether gradients of these shapes, (members, critics, rows, out), are applied where they are computed."""
    shapes = [node.meta["val"].shape for node in gradients]
    members, stacks = shapes[0][0], sum(shape[0] * shape[1] for shape in shapes)
    rows, outputs = (max(shape[axis] for shape in shapes) for axis in (2, 3))
    return len(layouts[0].hidden) > 1 and updates_at_once(stacks, members, rows, outputs, precision)


def _kind(node: fx.Node) -> tuple[Any, ...]:
    """What networks must have in common to share a launch: the operator and the hidden layers."""
    layout = MLPLayout.decode(_encoded(node))[0]
    return node.target, layout.hidden, layout.norm, layout.activation


def _levels(graph: fx.Graph) -> dict[fx.Node, int]:
    """The launch of each network: its depth or, if it is alone there, a later one of its kind before any that needs it."""
    depths, limits = _depths(graph), dict[fx.Node, int]()
    deepest = max(depths.values(), default=0)
    for node in reversed(graph.nodes):
        needed = [depths[user] - 1 if user.target in _RESULTS else limits[user] for user in node.users]
        limits[node] = min(needed, default=deepest)
    networks = [node for node in graph.nodes if node.target in _RESULTS]
    there = Counter((_kind(node), depths[node]) for node in networks)
    levels: dict[fx.Node, int] = {}
    for node in networks:
        kind, depth = _kind(node), depths[node]
        later = range(depth + 1, limits[node] + 1) if there[kind, depth] == 1 else ()
        levels[node] = next((level for level in later if there[kind, level]), depth)
    return levels | {node: -1 for node in networks if node.target is _GRADIENTS}


def _encoded(node: fx.Node) -> Sequence[int]:
    encoded: Any = node.args[-2]
    return list(encoded)


def _depths(graph: fx.Graph) -> dict[fx.Node, int]:
    """For each node the number of networks before it on the longest path."""
    depths: dict[fx.Node, int] = {}
    for node in graph.nodes:
        paths = [depths[source] + (source.target in _RESULTS) for source in node.all_input_nodes]
        depths[node] = max(paths, default=0)
    return depths


def _merge(graph: fx.Graph, nodes: Sequence[fx.Node]) -> None:
    """Replace calls of one operator by a single call with all their jobs."""
    target: Any = nodes[0].target
    per_job = _RESULTS[target]
    arguments: list[Any] = []
    for position, first in enumerate(nodes[0].args):
        several = isinstance(first, list | tuple)
        arguments.append([item for node in nodes for item in node.args[position]] if several else first)  # type: ignore[union-attr]
    with graph.inserting_after(nodes[-1]):
        merged = graph.call_function(target, tuple(arguments))
    for job, node in enumerate(nodes):
        for user in list(node.users):
            user.args = (merged, job * per_job + user.args[1])  # type: ignore[operator]
        graph.erase_node(node)


def _sort(graph: fx.Graph) -> None:
    """Sort the nodes topologically, and otherwise keep their order."""
    order: list[fx.Node] = []
    visited: set[fx.Node] = set()

    def visit(node: fx.Node) -> None:
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [source for source in top.all_input_nodes if source not in visited]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if top not in visited:
                visited.add(top)
                order.append(top)

    for node in list(graph.nodes):
        visit(node)
    for before, after in pairwise(order):
        before.append(after)
