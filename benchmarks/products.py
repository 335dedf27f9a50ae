"""The ceiling of an update: the matrix products it needs, in its own order, and nothing else.

Each algorithm is a list of network passes per gradient step, for as many steps as its delayed updates take to repeat. A pass
that nobody differentiates counts its forward products; one that trains its weights counts them, the weight gradients, and
the input gradients of all layers but the first; one that only carries a gradient to its inputs counts the input gradients.
"""

from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import torch
from torch import Tensor

OBSERVATIONS, ACTIONS, BATCH = 11, 3, 256

Product = tuple[Tensor, Tensor, Tensor]


@dataclass(frozen=True)
class Pass:
    """One network evaluated on a batch of rows."""

    critics: int  # networks side by side
    inputs: int
    outputs: int
    gradient: Literal["none", "weights", "inputs"] = "none"
    rows: int = BATCH


PAIR = OBSERVATIONS + ACTIONS
SAMPLED = (1 + 3 * 10) * BATCH  # the rows of CQL's critics: data, uniform, pi(s), pi(s')


def _sac(critics: int) -> list[Pass]:
    """Next policy, targets and trained critics."""
    return [Pass(1, OBSERVATIONS, 2 * ACTIONS), Pass(critics, PAIR, 1), Pass(critics, PAIR, 1, "weights")]


def _soft_actor(critics: int) -> list[Pass]:
    return [Pass(1, OBSERVATIONS, 2 * ACTIONS, "weights"), Pass(critics, PAIR, 1, "inputs")]


_TD3 = [Pass(1, OBSERVATIONS, ACTIONS), Pass(2, PAIR, 1), Pass(2, PAIR, 1, "weights")]
_TD3_ACTOR = [Pass(1, OBSERVATIONS, ACTIONS, "weights"), Pass(1, PAIR, 1, "inputs")]
_CQL = [*_sac(2)[:2], Pass(2, PAIR, 1, "weights", SAMPLED), *_soft_actor(2)]

_IQL = [
    Pass(2, PAIR, 1),
    Pass(1, OBSERVATIONS, 1),
    Pass(1, OBSERVATIONS, 1, "weights"),
    Pass(2, PAIR, 1, "weights"),
    Pass(1, OBSERVATIONS, ACTIONS, "weights"),
]

UPDATES: dict[str, list[list[Pass]]] = {
    "iql": [_IQL],
    "xql": [_IQL],
    "td3_bc": [_TD3, [*_TD3, *_TD3_ACTOR]],
    "cql": [_CQL],
    "cal_ql": [_CQL],
    "sac": [[*_sac(2), *_soft_actor(2)]],
    "rlpd": [[*_sac(2), *_soft_actor(2)]],
    "redq": [*[_sac(10)] * 19, [*_sac(10), *_soft_actor(10)]],
}


def _products(network: Pass, hidden: int) -> tuple[list[Product], list[Product]]:
    """The products of a pass: forward in order, backward in order."""
    sizes = (network.inputs, hidden, hidden, network.outputs)
    activations = [torch.randn(network.critics, network.rows, size) for size in sizes]
    forward: list[Product] = []
    backward: list[Product] = []
    for layer, (fan_in, fan_out) in enumerate(pairwise(sizes)):
        x, y = activations[layer : layer + 2]
        w = torch.randn(network.critics, fan_in, fan_out) * 0.05
        forward.append((x, w, y))
        if network.gradient == "none":
            continue
        slope = torch.randn_like(y)
        if layer > 0 or network.gradient == "inputs":
            backward.append((slope, w.mT, torch.empty_like(x)))
        if network.gradient == "weights":
            few = fan_out < fan_in  # the faster way round, as the package does it
            backward.append((slope.mT, x, torch.empty_like(w.mT)) if few else (x.mT, slope, torch.empty_like(w)))
    return forward, backward[::-1]  # built from the first layer to the last, run from the last to the first


def products(algo: str, hidden: int, repeats: int) -> Callable[[], None]:
    """Return a function that does the matrix products of an algorithm's updates, `repeats` times its pattern of steps."""
    work: list[Product] = []
    for update in UPDATES[algo]:
        parts = [_products(network, hidden) for network in update]
        work += [product for forward, _ in parts for product in forward]
        work += [product for _, backward in reversed(parts) for product in backward]

    def run() -> None:
        for _ in range(repeats):
            for left, right, out in work:
                torch.bmm(left, right, out=out)

    return run
