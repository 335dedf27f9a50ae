"""FQL from seohongpark/fql: `python -m tools.references.fql CHECKOUT`."""

from collections.abc import Mapping
from typing import Any

import numpy as np

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, WIDTH, Recording, Source, main
from tools.references.jax_code import VERSIONS, Noise, View, parameters, perceptron, redraw, run

FILE = "agents/fql.py"
RATE, GAMMA, TAU, ALPHA, FLOW_STEPS = 3e-3, 0.9, 0.1, 3.0, 4
TARGET = "modules_target_critic"
LOSSES = {
    "critic_loss": "critic/critic_loss",
    "actor_loss": "actor/actor_loss",
    "flow_loss": "actor/bc_flow_loss",
    "distill_loss": "actor/distill_loss",
}
NOTES = "One learning rate for all networks."


def _record(source: Source, variant: str, *, q_aggregation: str, normalize_q: bool, layer_norm: bool) -> Recording:
    code = source.module(FILE)
    knobs = {
        "actor_learning_rate": RATE,
        "critic_learning_rate": RATE,
        "gamma": GAMMA,
        "tau": TAU,
        "alpha": ALPHA,
        "flow_steps": FLOW_STEPS,
        "q_aggregation": q_aggregation,
        "normalize_q": normalize_q,
    }
    networks = {
        "hidden_sizes": [WIDTH, WIDTH],
        "activation": "gelu",
        "critic_layer_norm": True,
        "actor_layer_norm": layer_norm,
        "layer_norm_position": "after",
    }
    alignment = {"targets": "early", "layer_norm_epsilon": 1e-6}
    recording = Recording("fql", variant, source, FILE, knobs, networks, alignment, NOTES)
    config = code.get_config()
    config.update(lr=RATE, discount=GAMMA, tau=TAU, alpha=ALPHA, flow_steps=FLOW_STEPS, actor_layer_norm=layer_norm)
    config.update(q_agg=q_aggregation, normalize_q_loss=normalize_q)
    config.update(actor_hidden_dims=(WIDTH, WIDTH), value_hidden_dims=(WIDTH, WIDTH))
    shapes = np.zeros((ROWS, OBSERVATION_DIM)), np.zeros((ROWS, ACTION_DIM))
    agent = code.FQLAgent.create(0, *shapes, config)
    params = redraw(recording, agent.network.params)
    agent = agent.replace(network=agent.network.replace(params=params, opt_state=agent.network.tx.init(params)))

    def update(agent: Any, step: int, noise: Noise) -> tuple[Any, Mapping[str, Any]]:
        fields = recording.batch(step)
        noise.give(recording.normals(step, "next_noise", ROWS, ACTION_DIM))
        noise.give(recording.normals(step, "flow_noise", ROWS, ACTION_DIM))
        noise.give(recording.uniforms(step, "flow_times", ROWS, 1))
        noise.give(recording.normals(step, "policy_noise", ROWS, ACTION_DIM))
        noise.give(np.zeros((ROWS, ACTION_DIM)))  # actions that are only logged
        agent, info = agent.update({**fields, "masks": 1.0 - fields["terminals"]})
        return agent, {ours: info[theirs] for ours, theirs in LOSSES.items()}

    return run(recording, agent, update, _trained, _targets)


def _trained(agent: Any, view: View) -> dict[str, Any]:
    tree = view(agent.network)
    return {
        **perceptron("critic", tree["modules_critic"]["value_net"]),
        **perceptron("flow", tree["modules_actor_bc_flow"]["mlp"]),
        **perceptron("actor", tree["modules_actor_onestep_flow"]["mlp"]),
    }


def _targets(agent: Any) -> dict[str, Any]:
    return perceptron("critic", parameters(agent.network)[TARGET]["value_net"])


def fql(source: Source) -> Recording:
    """Record FQL as published: the mean of the target critics, and plain values."""
    return _record(source, "official", q_aggregation="mean", normalize_q=False, layer_norm=False)


def fql_min(source: Source) -> Recording:
    """Record FQL with the smaller target critic, values scaled by their mean, and LayerNorm in every network."""
    return _record(source, "official_min", q_aggregation="min", normalize_q=True, layer_norm=True)


if __name__ == "__main__":
    main("seohongpark/fql", [fql, fql_min], VERSIONS)
