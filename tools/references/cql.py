"""Record references from the CQL authors' code: `python -m tools.references.cql CHECKOUT`, of aviralkumar2907/CQL.

The code updates the critics and differentiates the policy's loss, computed with the critics from before, afterwards. That was
possible with the torch of its time, which then mixed old activations with new weights; today's refuses it. Here the critics
are updated together with the policy, by the gradients that the code computed.
"""

import sys
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import numpy as np
import torch
from torch.optim import Optimizer

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, WIDTH, Recording, Source, main
from tools.references.torch_code import Run, View, ensemble, perceptron, redraw, small_networks

STUBS = ("gtimer", "gym", "gym.spaces")
FILE = "d4rl/rlkit/torch/sac/cql.py"
SAMPLES = 10  # fixed in the code where the target takes the best of several actions
RATES = {"actor": 3e-3, "critic": 5e-3}
NETWORKS = {"hidden_sizes": [WIDTH, WIDTH], "log_std_range": [-5.0, 2.0]}


def cql(source: Source) -> Recording:
    """Learned temperature, updated first; the target is the smaller of the critics' best values; at first, cloning."""
    knobs = {"cql_alpha": 2.0, "max_target_backup": True, "max_backup_form": "min_of_max", "bc_steps": 3}
    knobs |= {"temperature_learning_rate": RATES["actor"]}
    settings = {"min_q_weight": 2.0, "max_q_backup": True, "policy_eval_start": 4}
    return _record(source, "official", knobs, settings, [["temperature"], ["critic", "actor"]])


def cql_lagrange(source: Source) -> Recording:
    """Learned weight of the penalty, and a fixed temperature of 1."""
    knobs = {"cql_alpha": 0.7, "alpha": 1.0, "lagrange_gap": 0.6, "lagrange_form": "authors", "cql_temperature": 0.8}
    knobs |= {"multiplier_learning_rate": RATES["critic"]}
    settings = {"min_q_weight": 0.7, "with_lagrange": True, "lagrange_thresh": 0.6, "temp": 0.8}
    settings |= {"use_automatic_entropy_tuning": False}
    return _record(source, "official_lagrange", knobs, settings, [["critic", "actor", "multiplier"]])


def _record(
    source: Source, variant: str, knobs: dict[str, Any], settings: dict[str, Any], order: list[list[str]]
) -> Recording:
    rates = {f"{group}_learning_rate": rate for group, rate in RATES.items()}
    knobs = {"gamma": 0.9, "tau": 0.05, "num_cql_samples": SAMPLES, **knobs, **rates}
    recording = Recording(
        *("cql", variant, source, FILE, knobs, NETWORKS),
        alignment={"order": order, "squash_epsilon": 1e-6},
        notes="the critics' updates are postponed to the policy's, as torch requires",
    )
    learner = _learner(source, settings)
    critics, targets = [learner.qf1, learner.qf2], [learner.target_qf1, learner.target_qf2]
    duals = {"log_alpha": "log_alpha", "log_multiplier": "log_alpha_prime"}
    scalars = {ours: getattr(learner, theirs) for ours, theirs in duals.items() if hasattr(learner, theirs)}
    redraw(recording, learner.policy, *critics, *targets, *scalars.values())

    def layers(network: Any) -> list[Any]:
        return [*network.fcs, network.last_fc]

    def parameters(view: View) -> dict[str, torch.Tensor]:
        policy = learner.policy
        found = ensemble("critic", [layers(critic) for critic in critics], view)
        found |= perceptron("actor", [*policy.fcs, (policy.last_fc, policy.last_fc_log_std)], view)
        return found | {f"temperature/{name}": view(scalar) for name, scalar in scalars.items()}

    optimizers = {name: value for name, value in vars(learner).items() if isinstance(value, Optimizer)}
    _postpone([learner.qf1_optimizer, learner.qf2_optimizer], learner.policy_optimizer)
    losses = ["", "critic_loss", "critic_loss", "actor_loss"]  # first that of a dual variable
    run = Run(
        *(recording, list(optimizers.values()), losses, parameters),
        lambda view: ensemble("critic", [layers(target) for target in targets], view),
    )

    def update(step: int) -> None:
        _give_noise(run, step, best_of_several=learner.max_q_backup)
        learner.train_from_torch(run.batch(step))

    with patch.object(torch, "FloatTensor", torch.DoubleTensor):
        run(update)
    if "log_multiplier" in scalars:
        for kind in ("initial", "final"):
            recording.arrays[f"{kind}/temperature/log_multiplier"] += 1.0  # our parameter is that of a multiplier of e
    return recording


def _learner(source: Source, settings: dict[str, Any]) -> Any:
    sys.path.insert(0, str(source.checkout / "d4rl"))
    module = source.module(FILE, STUBS)
    policies = source.module("d4rl/rlkit/torch/sac/policies.py", STUBS)
    networks = source.module("d4rl/rlkit/torch/networks.py", STUBS)
    sizes = [WIDTH, WIDTH]
    with small_networks():
        policy = policies.TanhGaussianPolicy(sizes, OBSERVATION_DIM, ACTION_DIM)
        critics = [networks.FlattenMlp(sizes, 1, OBSERVATION_DIM + ACTION_DIM) for _ in range(4)]
        env = SimpleNamespace(action_space=SimpleNamespace(shape=(ACTION_DIM,)))
        common = {"discount": 0.9, "soft_target_tau": 0.05, "num_random": SAMPLES}
        common |= {"policy_lr": RATES["actor"], "qf_lr": RATES["critic"]}
        learner = module.CQLTrainer(env, policy, *critics, **common, **settings)
    learner._need_to_update_eval_statistics = False
    return learner


def _postpone(early: Sequence[Any], last: Any) -> None:
    """Make the steps of some optimizers wait for that of the last, each with the gradients it had."""
    waiting: list[tuple[Any, list[tuple[torch.Tensor, Any]]]] = []

    def keep(optimizer: Any, step: Any) -> Any:
        parameters = optimizer.param_groups[0]["params"]
        return lambda: waiting.append((step, [(parameter, parameter.grad.clone()) for parameter in parameters]))

    def flush(step: Any = last.step) -> None:
        for early_step, gradients in waiting:
            for parameter, gradient in gradients:
                parameter.grad = gradient
            early_step()
        waiting.clear()
        step()

    for optimizer in early:
        optimizer.step = keep(optimizer, optimizer.step)
    last.step = flush


def _give_noise(run: Run, step: int, *, best_of_several: bool) -> None:
    """Queue the noise of a step; what the code draws and does not use is zero."""
    recording, unused = run.recording, np.zeros((ROWS, ACTION_DIM))

    def several(values: Any) -> Any:
        return values.swapaxes(0, 1).reshape(-1, ACTION_DIM)

    shape = (SAMPLES, ROWS, ACTION_DIM)
    run.normals(step, "actions", ROWS, ACTION_DIM)
    if best_of_several:
        run.noise.give(unused, unused, several(recording.normals(step, "next_actions", *shape)))
    else:
        run.noise.give(recording.normals(step, "next_actions", 1, ROWS, ACTION_DIM)[0], unused)
    run.noise.give(several(recording.uniforms(step, "cql/uniform", *shape)))
    for stream in ("cql/here", "cql/there"):
        run.noise.give(several(recording.normals(step, stream, *shape)))


if __name__ == "__main__":
    main("aviralkumar2907/CQL", [cql, cql_lagrange], {"torch": torch.__version__})
