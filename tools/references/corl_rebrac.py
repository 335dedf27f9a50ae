"""ReBRAC from CORL's JAX file, tinkoff-ai/CORL: `python -m tools.references.corl_rebrac CHECKOUT`."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import optax

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, WIDTH, Recording, Source, main
from tools.references.jax_code import VERSIONS, Noise, View, perceptron, redraw, run

FILE = "algorithms/offline/rebrac.py"
UNUSED = ("d4rl", "gym", "pyrallis", "tqdm", "tqdm.auto", "wandb")
DEPTH, INTERVAL = 3, 2
ACTOR_RATE, CRITIC_RATE, GAMMA, TAU = 1e-3, 3e-3, 0.9, 0.1
ACTOR_COEF, CRITIC_COEF, NOISE, NOISE_CLIP = 0.4, 0.3, 0.3, 0.4
METRICS = ("critic_loss", "q_min", "actor_loss", "bc_mse_policy", "bc_mse_random", "action_mse")
NOTES = "The policy is updated at every second step, beginning with the second; CORL begins with the first."

Agent = tuple[Any, Any]
"""The train states of policy and critics."""


def _record(source: Source, variant: str, *, normalize_q: bool, actor_layer_norm: bool) -> Recording:
    code = source.module(FILE, UNUSED)
    knobs = {
        "actor_learning_rate": ACTOR_RATE,
        "critic_learning_rate": CRITIC_RATE,
        "gamma": GAMMA,
        "tau": TAU,
        "actor_bc_coef": ACTOR_COEF,
        "critic_bc_coef": CRITIC_COEF,
        "target_noise": NOISE,
        "target_noise_clip": NOISE_CLIP,
        "actor_interval": INTERVAL,
        "normalize_q": normalize_q,
    }
    networks = {
        "hidden_sizes": [WIDTH] * DEPTH,
        "critic_layer_norm": True,
        "actor_layer_norm": actor_layer_norm,
        "layer_norm_position": "after",
    }
    alignment = {"order": [["critic"], ["actor"]], "targets": "early", "layer_norm_epsilon": 1e-6}
    recording = Recording("rebrac", variant, source, FILE, knobs, networks, alignment, NOTES, fields=("next_actions",))

    def update(agent: Agent, step: int, noise: Noise) -> tuple[Agent, Mapping[str, Any]]:
        fields, metrics = recording.batch(step), code.Metrics.create(METRICS)
        batch = {**fields, "states": fields["observations"], "next_states": fields["next_observations"]}
        batch["dones"] = fields["terminals"]
        noise.give(recording.normals(step, "target_noise", ROWS, ACTION_DIM))
        shared: dict[str, Any] = {"gamma": GAMMA, "actor_bc_coef": ACTOR_COEF, "critic_bc_coef": CRITIC_COEF, "tau": TAU}
        shared |= {"policy_noise": NOISE, "noise_clip": NOISE_CLIP, "metrics": metrics, "batch": batch}
        key = code.jax.random.PRNGKey(0)
        if (step + 1) % INTERVAL:
            _, *agent_and_metrics = code.update_td3_no_targets(key, *agent, **shared)
            names = ["critic_loss"]
        else:
            noise.give(np.zeros((ROWS, ACTION_DIM)))  # random actions that are only logged
            _, *agent_and_metrics = code.update_td3(key, *agent, normalize_q=normalize_q, **shared)
            names = ["critic_loss", "actor_loss"]
        actor, critic, metrics = agent_and_metrics
        return (actor, critic), {name: metrics.compute()[name].item() for name in names}

    return run(recording, _agent(code, recording, actor_layer_norm), update, _trained, _targets)


def _agent(code: Any, recording: Recording, actor_layer_norm: bool) -> Agent:
    state, action = np.zeros((1, OBSERVATION_DIM)), np.zeros((1, ACTION_DIM))
    policy = code.DetActor(ACTION_DIM, WIDTH, actor_layer_norm, DEPTH)
    critics = code.EnsembleCritic(WIDTH, 2, True, DEPTH)
    key = code.jax.random.PRNGKey(0)
    return (
        _train_state(code.ActorTrainState, recording, policy, policy.init(key, state), ACTOR_RATE),
        _train_state(code.CriticTrainState, recording, critics, critics.init(key, state, action), CRITIC_RATE),
    )


def _train_state(kind: Any, recording: Recording, network: Any, params: Any, rate: float) -> Any:
    values = {"params": redraw(recording, params), "target_params": redraw(recording, params)}
    return kind.create(apply_fn=network.apply, tx=optax.adam(rate), **values)


def _named(policy: Any, critics: Any) -> dict[str, Any]:
    (ensemble,) = critics["params"].values()
    return {**perceptron("critic", ensemble), **perceptron("actor", policy["params"])}


def _trained(agent: Agent, view: View) -> dict[str, Any]:
    return _named(*map(view, agent))


def _targets(agent: Agent) -> dict[str, Any]:
    return _named(*(state.target_params for state in agent))


def rebrac(source: Source) -> Recording:
    """Record ReBRAC as published: LayerNorm in the critics, and values scaled by their mean."""
    return _record(source, "corl", normalize_q=True, actor_layer_norm=False)


def rebrac_plain(source: Source) -> Recording:
    """Record ReBRAC with plain values and LayerNorm in the policy too."""
    return _record(source, "corl_plain", normalize_q=False, actor_layer_norm=True)


if __name__ == "__main__":
    main("tinkoff-ai/CORL", [rebrac, rebrac_plain], VERSIONS)
