"""A gradient step as one graph of operations: traced from the learner's own code, its networks merged into few launches.

The algorithms know nothing of this. Their loss and its backward pass are run once with recording tensors; what comes out is
a pure function of parameters, targets, packed rows and random numbers. Networks that wait for the same things are then
joined: each call of the operators of `models.mlp_ops` takes a list of networks, and lists can be put together. (On the CPU
there are no such calls, and nothing is joined.)
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import torch
from torch import Tensor, fx
from torch.fx.experimental.proxy_tensor import make_fx

from rl_training.algorithms.learner import Learner, Step, summarize
from rl_training.data.batch import Batch
from rl_training.models.mlp import operators as mlp_ops
from rl_training.models.mlp.eager import MLPLayout
from rl_training.rng import DrawKey, Draws

MakeBatch = Callable[[Tensor, Tensor | None], Batch]
"""A batch from packed rows (members, batch, width) and, where fresh and prior data mix, which rows are prior."""


@dataclass(frozen=True)
class Variant:
    """What may differ from one gradient step to another: the groups trained, whether targets follow, whether it reports."""

    due: tuple[str, ...]
    targets: bool
    report: bool


@dataclass(frozen=True)
class Wanted:
    """What a traced step gives: the gradients of the due groups, its metrics, or both."""

    due: tuple[str, ...]
    gradients: bool = True
    metrics: bool = False


@dataclass(frozen=True)
class TracedStep:
    """One step's results as a graph of trained and target buffers, rows, prior flags if any, and draws."""

    graph: fx.GraphModule
    segments: tuple[str, ...]  # whose gradients are the first results
    metrics: tuple[str, ...]  # the others
    streams: tuple[DrawKey, ...]  # of the last inputs
    example: tuple[Tensor | None, ...]  # of all inputs


def variant_at(learner: Learner[Any, Any], step: int, *, report: bool) -> Variant:
    """Return the variant of a step."""
    due = learner.due_groups(step)
    names = tuple(name for name in learner.model.trained.groups if name in due)
    return Variant(names, learner.targets_due(step), report)


def trace_step(
    learner: Learner[Any, Any], wanted: Wanted, rows: Tensor, prior: Tensor | None, make_batch: MakeBatch, precision: str
) -> TracedStep:
    """Return the wanted results of a step as a graph; nothing of the learner changes."""
    model = learner.model
    learner.buffers()  # has its optimizer made now, not while recording
    draws = Draws.of_steps(model.seed_tensor, 0)
    with mlp_ops.fused_networks(precision):
        learner.loss(make_batch(rows, prior), Step(draws, wanted.due, wanted.metrics))  # to learn what it draws
        streams, segments, names = draws.streams, list[str](), list[str]()

        def step(trained: Tensor, targets: Tensor, rows: Tensor, prior: Tensor | None, *drawn: Tensor) -> list[Tensor]:
            with model.on_buffers(trained, targets):
                given = Step(Draws.given(model.seed_tensor, streams, drawn), wanted.due, wanted.metrics)
                loss, metrics = learner.loss(make_batch(rows, prior), given)
                gradients = learner.gradients(loss, wanted.due) if wanted.gradients else {}
                told = summarize(metrics) if wanted.metrics else {}
            segments[:], names[:] = gradients, told
            return [*gradients.values(), *told.values()]

        example = (model.trained.flat, model.targets.flat, rows, prior, *draws.values_of_step(streams))
        recorded = make_fx(step)(*example)
        graph = make_fx(torch.func.functionalize(recorded))(*example)  # without writes in place its order can be changed
    merge_networks(graph)
    return TracedStep(graph, tuple(segments), tuple(names), streams, example)


_FORWARD = torch.ops.rl_training.mlp_forward.default
_SLOPES = torch.ops.rl_training.mlp_hidden_slopes.default
_GRADIENTS = torch.ops.rl_training.mlp_gradients.default
_RESULTS = {_FORWARD: 2, _SLOPES: 2, _GRADIENTS: 1}  # tensors that one job gives


def merge_networks(module: fx.GraphModule) -> None:
    """Join the networks of a graph that do not wait for one another, in place.

    A network's depth is the number of networks on the longest way to it; those of one kind, depth and shape are independent.
    Gradients of parameters, for which nobody waits, are all put at the end.
    """
    graph = module.graph
    graph.eliminate_dead_code()
    groups: dict[Any, list[fx.Node]] = {}
    for node, depth in _depths(graph).items():
        if node.target in _RESULTS:
            layouts = MLPLayout.decode(_encoded(node))
            level = -1 if node.target is _GRADIENTS else depth
            groups.setdefault((node.target, level, layouts[0].hidden, layouts[0].layer_norm), []).append(node)
    for nodes in groups.values():
        if len(nodes) > 1:
            _merge(graph, nodes)
    _sort(graph)
    graph.eliminate_dead_code()
    module.recompile()


def _encoded(node: fx.Node) -> Sequence[int]:
    encoded: Any = node.args[-2]
    return list(encoded)


def _depths(graph: fx.Graph) -> dict[fx.Node, int]:
    """For each node the number of networks before it on the longest way."""
    depths: dict[fx.Node, int] = {}
    for node in graph.nodes:
        ways = [depths[source] + (source.target in _RESULTS) for source in node.all_input_nodes]
        depths[node] = max(ways, default=0)
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
    """Put the nodes into an order in which each comes after what it needs, and otherwise as they were."""
    order: list[fx.Node] = []
    placed: set[fx.Node] = set()

    def place(node: fx.Node) -> None:
        stack = [node]
        while stack:
            top = stack[-1]
            missing = [source for source in top.all_input_nodes if source not in placed]
            if missing:
                stack.extend(reversed(missing))
                continue
            stack.pop()
            if top not in placed:
                placed.add(top)
                order.append(top)

    for node in list(graph.nodes):
        place(node)
    for before, after in pairwise(order):
        before.append(after)


def launches(module: fx.GraphModule) -> dict[str, int]:
    """Return how many calls of each operator of the networks a graph makes."""
    found: list[Any] = [node.target for node in module.graph.nodes if node.target in _RESULTS]
    names = {_FORWARD: "mlp_forward", _SLOPES: "mlp_hidden_slopes", _GRADIENTS: "mlp_gradients"}
    return {name: sum(target is wanted for target in found) for wanted, name in names.items()}
