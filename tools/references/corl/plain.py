"""CORL's behaviour cloning, TD3+BC, IQL and AWAC."""

from typing import Any

import torch

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, WIDTH, Recording, Source
from tools.references.corl import DIMS, GAMMA, STUBS, TAU, adam, named, rates, transitions
from tools.references.torch_code import Run, View, ensemble, linears, perceptron, redraw, small_networks

TWO, THREE = {"hidden_sizes": [WIDTH] * 2}, {"hidden_sizes": [WIDTH] * 3}


def bc(source: Source) -> Recording:
    """Behaviour cloning with a deterministic policy."""
    file = "algorithms/offline/any_percent_bc.py"
    recording = Recording("bc", "corl", source, file, rates("actor"), TWO | {"policy": "deterministic"})
    module = source.module(file, STUBS)
    with small_networks():
        actor = module.Actor(*DIMS, 1.0)
    redraw(recording, actor)
    optimizer = adam("actor", actor)
    learner = module.BC(1.0, actor, optimizer)
    run = Run(recording, [optimizer], ["actor_loss"], lambda view: perceptron("actor", linears(actor), view))
    return run(lambda step: learner.train(transitions(run, step)))


def td3_bc(source: Source) -> Recording:
    """TD3+BC: the policy's loss uses the critics after their update."""
    file = "algorithms/offline/td3_bc.py"
    knobs = {"gamma": GAMMA, "tau": TAU, "alpha": 2.5, "target_noise": 0.4, "target_noise_clip": 0.5, "actor_interval": 2}
    recording = Recording(
        *("td3_bc", "corl", source, file, knobs | rates("actor", "critic"), TWO), alignment={"order": [["critic"], ["actor"]]}
    )
    module = source.module(file, STUBS)
    with small_networks():
        actor, *critics = module.Actor(*DIMS, 1.0), module.Critic(*DIMS), module.Critic(*DIMS)
    optimizers = [adam("actor", actor), *(adam("critic", critic) for critic in critics)]
    trained = [actor, optimizers[0], critics[0], optimizers[1], critics[1], optimizers[2]]
    learner = module.TD3_BC(1.0, *trained, GAMMA, TAU, knobs["target_noise"], knobs["target_noise_clip"], 2, knobs["alpha"])
    targets = [learner.critic_1_target, learner.critic_2_target]
    redraw(recording, actor, *critics, *targets, learner.actor_target)
    losses = ["critic_loss", "actor_loss"]
    run = Run(recording, optimizers, losses, named(critics, actor), named(targets, learner.actor_target))

    def update(step: int) -> None:
        run.normals(step, "target_noise", ROWS, ACTION_DIM)
        learner.train(transitions(run, step))

    return run(update)


def iql(source: Source) -> Recording:
    """IQL; the loss of its critics is their mean instead of their sum."""
    return _iql(source, "corl", "gaussian")


def iql_deterministic(source: Source) -> Recording:
    """IQL with a deterministic policy."""
    return _iql(source, "corl_deterministic", "deterministic")


def _iql(source: Source, variant: str, policy: str) -> Recording:
    file = "algorithms/offline/iql.py"
    knobs = {"gamma": GAMMA, "tau": TAU, "expectile": 0.8, "beta": 2.0, "max_advantage_weight": 3.0}
    recording = Recording(
        *("iql", variant, source, file, knobs | rates("actor", "critic", "value"), TWO | {"policy": policy}),
        alignment={"scale": {"critic": 0.5}},
        notes="the cosine schedule of the policy is made so long that it stays at 1; the cap of the weights is set to 3",
    )
    module = source.module(file, STUBS)
    module.EXP_ADV_MAX = knobs["max_advantage_weight"]
    policies = {"gaussian": module.GaussianPolicy, "deterministic": module.DeterministicPolicy}
    with small_networks():
        actor = policies[policy](*DIMS, 1.0, hidden_dim=WIDTH)
        critic, value = module.TwinQ(*DIMS, hidden_dim=WIDTH), module.ValueFunction(OBSERVATION_DIM, hidden_dim=WIDTH)
    redraw(recording, actor, critic, value)
    optimizers = [adam("actor", actor), adam("critic", critic), adam("value", value)]
    trained = [actor, optimizers[0], critic, optimizers[1], value, optimizers[2]]
    learner = module.ImplicitQLearning(1.0, *trained, knobs["expectile"], knobs["beta"], 10**12, GAMMA, TAU)
    redraw(recording, learner.q_target)

    def critics(twin: Any, view: View) -> dict[str, torch.Tensor]:
        return ensemble("critic", [linears(twin.q1), linears(twin.q2)], view)

    def parameters(view: View) -> dict[str, torch.Tensor]:
        log_std = {"actor/log_std": view(actor.log_std)} if policy == "gaussian" else {}
        found = critics(critic, view) | perceptron("value", linears(value), view)
        return found | perceptron("actor", linears(actor), view) | log_std

    losses = ["value_loss", "critic_loss", "actor_loss"]
    run = Run(recording, optimizers, losses, parameters, lambda view: critics(learner.q_target, view))
    return run(lambda step: learner.train(transitions(run, step)))


def awac(source: Source) -> Recording:
    """AWAC: the policy's loss uses the critics after their update, and the same policy samples for both."""
    file = "algorithms/offline/awac.py"
    knobs = {"gamma": GAMMA, "tau": TAU, "awac_lambda": 0.4, "max_advantage_weight": 1.2}
    recording = Recording(
        *("awac", "corl", source, file, knobs | rates("actor", "critic"), THREE), alignment={"order": [["critic"], ["actor"]]}
    )
    module = source.module(file, STUBS)
    with small_networks():
        actor, *critics = module.Actor(*DIMS, WIDTH), module.Critic(*DIMS, WIDTH), module.Critic(*DIMS, WIDTH)
    optimizers = [adam("actor", actor), *(adam("critic", critic) for critic in critics)]
    trained = [actor, optimizers[0], critics[0], optimizers[1], critics[1], optimizers[2]]
    learner = module.AdvantageWeightedActorCritic(*trained, *knobs.values())
    targets = [learner._target_critic_1, learner._target_critic_2]
    redraw(recording, actor, *critics, *targets)
    networks = named(critics, actor)

    def parameters(view: View) -> dict[str, torch.Tensor]:
        return networks(view) | {"actor/log_std": view(actor._log_std)}

    run = Run(recording, optimizers, ["critic_loss", "actor_loss"], parameters, named(targets))

    def update(step: int) -> None:
        run.normals(step, "next_actions", ROWS, ACTION_DIM)
        run.normals(step, "actions", ROWS, ACTION_DIM)
        learner.update(transitions(run, step))

    return run(update)
