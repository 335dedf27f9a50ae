"""Record a reference from the REDQ authors' code: `python -m tools.references.redq CHECKOUT`, of watchernyu/REDQ.

Two rounds of five updates: the policy and the temperature are updated with the last of each round.
"""

from math import exp
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, STEPS, WIDTH, Recording, Source, main
from tools.references.torch_code import Run, View, ensemble, perceptron, redraw, small_networks

CRITICS, SUBSET, ROUND = 5, 2, 5
GAMMA, TAU, RATE = 0.9, 0.05, 4e-3
BATCH_FIELDS = ("observations", "next_observations", "actions", "rewards", "terminals")


def redq(source: Source) -> Recording:
    """REDQ: all losses at the parameters from before the step."""
    file = "redq/algos/redq_sac.py"
    rates = {f"{group}_learning_rate": RATE for group in ("actor", "critic", "temperature")}
    knobs = {"gamma": GAMMA, "tau": TAU, "subset_size": SUBSET, **rates}
    recording = Recording(
        *("redq", "official", source, file, knobs, {"hidden_sizes": [WIDTH, WIDTH], "num_critics": CRITICS}),
        alignment={"round": ROUND, "squash_epsilon": 1e-6},
        notes="its temperature before the first policy update, an argument, is set to that of its log temperature",
    )
    agent = _agent(source.module(file))
    redraw(recording, agent.policy_net, *agent.q_net_list, *agent.q_target_net_list, agent.log_alpha)
    agent.alpha = exp(agent.log_alpha.item())

    def layers(network: Any, last: Any) -> list[Any]:
        return [*network.hidden_layers, last]

    def critics(networks: list[Any], view: View) -> dict[str, torch.Tensor]:
        return ensemble("critic", [layers(network, network.last_fc_layer) for network in networks], view)

    def parameters(view: View) -> dict[str, torch.Tensor]:
        policy = agent.policy_net
        actor = perceptron("actor", layers(policy, (policy.last_fc_layer, policy.last_fc_log_std)), view)
        return critics(agent.q_net_list, view) | actor | {"temperature/log_alpha": view(agent.log_alpha)}

    run = Run(
        *(recording, [agent.policy_optimizer, *agent.q_optimizer_list, agent.alpha_optim]),
        *(["critic_loss", "actor_loss", "alpha_loss"], parameters),
        lambda view: critics(agent.q_target_net_list, view),
    )
    steps = iter(range(STEPS))
    subsets: list[Any] = []

    def sample(_size: int) -> tuple[torch.Tensor, ...]:
        step = next(steps)
        run.begin(step)
        subsets.append(recording.uniforms(step, "critic_subset", CRITICS).argsort()[:SUBSET])
        run.noise.give(recording.normals(step, "next_actions", 1, ROWS, ACTION_DIM)[0])
        actions = recording.normals(step, "actions", ROWS, ACTION_DIM)
        if (step + 1) % ROUND == 0:
            run.noise.give(actions)
        batch = run.batch(step)
        return tuple(batch[name] for name in BATCH_FIELDS)

    agent.sample_data = sample
    with patch.object(np.random, "choice", lambda *_args, **_kwargs: subsets.pop(0)):
        return run(lambda _step: agent.train(SimpleNamespace(store=lambda **_values: None)))


def _agent(module: Any) -> Any:
    """An agent that has seen enough rows to learn, with rounds of `ROUND` updates."""
    with small_networks():
        agent = module.REDQSACAgent(
            *("", OBSERVATION_DIM, ACTION_DIM, 1.0, "cpu", (WIDTH, WIDTH)),
            **{"replay_size": 1, "lr": RATE, "gamma": GAMMA, "polyak": 1.0 - TAU, "target_entropy": "auto"},
            **{"delay_update_steps": 0, "utd_ratio": ROUND, "num_Q": CRITICS, "num_min": SUBSET},
        )
    agent.replay_buffer.size = 1
    return agent


if __name__ == "__main__":
    main("watchernyu/REDQ", [redq], {"torch": torch.__version__})
