"""Record references from CORL: `python -m tools.references.corl CHECKOUT [NAME ...]`, a checkout of tinkoff-ai/CORL.

CORL's files import environments and loggers at the top; those are replaced by stubs, since an update needs none of them.
"""

from typing import Any

import torch

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, WIDTH, Recording, Source, main
from tools.references.torch_code import Run, View, ensemble, linears, perceptron, redraw, small_networks

REPOSITORY = "tinkoff-ai/CORL"
STUBS = ("d4rl", "gym", "pyrallis", "wandb", "tqdm")
DIMS = (OBSERVATION_DIM, ACTION_DIM)
GAMMA, TAU = 0.9, 0.05
RATES = {"actor": 2e-3, "critic": 5e-3, "value": 4e-3, "temperature": 3e-3}


def adam(group: str, network: Any) -> torch.optim.Adam:
    """Return the optimizer of a network or of a list of parameters."""
    parameters = network if isinstance(network, list) else network.parameters()
    return torch.optim.Adam(parameters, lr=RATES[group])


def rates(*groups: str) -> dict[str, float]:
    """Return our knobs for the learning rates of some groups."""
    return {f"{group}_learning_rate": RATES[group] for group in groups}


def transitions(run: Run, step: int, *more: str) -> list[torch.Tensor]:
    """Return a step's batch in CORL's order."""
    batch = run.batch(step)
    return [batch[name] for name in ("observations", "actions", "rewards", "next_observations", "terminals", *more)]


def bc(source: Source) -> Recording:
    """Behaviour cloning with a deterministic policy."""
    file = "algorithms/offline/any_percent_bc.py"
    networks = {"hidden_sizes": [WIDTH, WIDTH], "policy": "deterministic"}
    recording = Recording("bc", "corl", source, file, rates("actor"), networks)
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
    alignment = {"order": [["critic"], ["actor"]]}
    recording = Recording(
        *("td3_bc", "corl", source, file, knobs | rates("actor", "critic")), {"hidden_sizes": [WIDTH, WIDTH]}, alignment
    )
    module = source.module(file, STUBS)
    with small_networks():
        actor, *critics = module.Actor(*DIMS, 1.0), module.Critic(*DIMS), module.Critic(*DIMS)
    optimizers = [adam("actor", actor), *(adam("critic", critic) for critic in critics)]
    trained = [actor, optimizers[0], critics[0], optimizers[1], critics[1], optimizers[2]]
    learner = module.TD3_BC(1.0, *trained, GAMMA, TAU, knobs["target_noise"], knobs["target_noise_clip"], 2, knobs["alpha"])
    targets = [learner.actor_target, learner.critic_1_target, learner.critic_2_target]
    redraw(recording, actor, *critics, *targets)

    def named(actor: Any, *critics: Any) -> Any:
        def parameters(view: View) -> dict[str, torch.Tensor]:
            found = ensemble("critic", [linears(critic) for critic in critics], view)
            return found | perceptron("actor", linears(actor), view)

        return parameters

    run = Run(recording, optimizers, ["critic_loss", "actor_loss"], named(actor, *critics), named(*targets))

    def update(step: int) -> None:
        run.normals(step, "target_noise", ROWS, ACTION_DIM)
        learner.train(transitions(run, step))

    return run(update)


def iql(source: Source) -> Recording:
    """IQL; the loss of its critics is their mean instead of their sum."""
    file = "algorithms/offline/iql.py"
    knobs = {"gamma": GAMMA, "tau": TAU, "expectile": 0.8, "beta": 2.0, "max_advantage_weight": 3.0}
    recording = Recording(
        *("iql", "corl", source, file, knobs | rates("actor", "critic", "value"), {"hidden_sizes": [WIDTH, WIDTH]}),
        alignment={"scale": {"critic": 0.5}},
        notes="the cosine schedule of the policy is made so long that it stays at 1",
    )
    module = source.module(file, STUBS)
    module.EXP_ADV_MAX = knobs["max_advantage_weight"]
    with small_networks():
        actor = module.GaussianPolicy(*DIMS, 1.0, hidden_dim=WIDTH)
        critic, value = module.TwinQ(*DIMS, hidden_dim=WIDTH), module.ValueFunction(OBSERVATION_DIM, hidden_dim=WIDTH)
    redraw(recording, actor, critic, value)
    optimizers = [adam("actor", actor), adam("critic", critic), adam("value", value)]
    trained = [actor, optimizers[0], critic, optimizers[1], value, optimizers[2]]
    learner = module.ImplicitQLearning(1.0, *trained, knobs["expectile"], knobs["beta"], 10**12, GAMMA, TAU)
    redraw(recording, learner.q_target)

    def critics(twin: Any, view: View) -> dict[str, torch.Tensor]:
        return ensemble("critic", [linears(twin.q1), linears(twin.q2)], view)

    def parameters(view: View) -> dict[str, torch.Tensor]:
        found = critics(critic, view) | perceptron("value", linears(value), view)
        return found | perceptron("actor", linears(actor), view) | {"actor/log_std": view(actor.log_std)}

    losses = ["value_loss", "critic_loss", "actor_loss"]
    run = Run(recording, optimizers, losses, parameters, lambda view: critics(learner.q_target, view))
    return run(lambda step: learner.train(transitions(run, step)))


if __name__ == "__main__":
    main(REPOSITORY, [bc, td3_bc, iql], {"torch": torch.__version__})
