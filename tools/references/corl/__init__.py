"""Record references from CORL: `python -m tools.references.corl CHECKOUT [NAME ...]`, a checkout of tinkoff-ai/CORL.

CORL's files import environments and loggers at the top; those are replaced by stubs, since an update needs none of them.
"""

from typing import Any

import torch

from tools.references.common import ACTION_DIM, OBSERVATION_DIM
from tools.references.torch_code import Named, Run, View, ensemble, linears, perceptron

REPOSITORY = "tinkoff-ai/CORL"
STUBS = ("d4rl", "gym", "pyrallis", "wandb", "tqdm")
DIMS = (OBSERVATION_DIM, ACTION_DIM)
GAMMA, TAU = 0.9, 0.05
RATES = {"actor": 2e-3, "critic": 5e-3, "value": 4e-3, "temperature": 3e-3}


def adam(group: str, network: Any) -> torch.optim.Adam:
    """Return the optimizer of a network."""
    return torch.optim.Adam(network.parameters(), lr=RATES[group])


def rates(*groups: str) -> dict[str, float]:
    """Return our knobs for the learning rates of some groups."""
    return {f"{group}_learning_rate": RATES[group] for group in groups}


def transitions(run: Run, step: int, *more: str) -> list[torch.Tensor]:
    """Return a step's batch in CORL's order."""
    batch = run.batch(step)
    return [batch[name] for name in ("observations", "actions", "rewards", "next_observations", "terminals", *more)]


def named(critics: list[Any], actor: Any = None, **scalars: torch.Tensor) -> Named:
    """Return the parameters of separate critics and of a policy by our names; `scalars` are those of `temperature`."""

    def parameters(view: View) -> dict[str, torch.Tensor]:
        found = ensemble("critic", [linears(critic) for critic in critics], view)
        found |= perceptron("actor", linears(actor), view) if actor is not None else {}
        return found | {f"temperature/{name}": view(scalar).reshape(1) for name, scalar in scalars.items()}

    return parameters
