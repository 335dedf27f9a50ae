"""Record references from the EDAC authors' code: `python -m tools.references.edac CHECKOUT`, of snu-mllab/EDAC.

Without the diversity term it is their SAC-N. All losses are computed at the parameters from before the step.
"""

from types import SimpleNamespace
from typing import Any

import torch

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, WIDTH, Recording, Source, main
from tools.references.torch_code import Run, View, perceptron, redraw, small_networks

STUBS = ("d4rl", "gtimer", "gym", "tensorboardX")
FILE = "lifelong_rl/trainers/q_learning/sac.py"
CRITICS = 4
KNOBS = {
    "gamma": 0.9,
    "tau": 0.05,
    "actor_learning_rate": 3e-3,
    "temperature_learning_rate": 3e-3,
    "critic_learning_rate": 5e-3,
}
NETWORKS = {"hidden_sizes": [WIDTH, WIDTH], "num_critics": CRITICS, "log_std_range": [-5.0, 2.0]}


def sac_n(source: Source) -> Recording:
    """SAC-N."""
    return _record(source, "sac_n", {})


def edac(source: Source) -> Recording:
    """EDAC."""
    return _record(source, "edac", {"eta": 0.7})


def _record(source: Source, algorithm: str, more: dict[str, float]) -> Recording:
    recording = Recording(*(algorithm, "official", source, FILE, KNOBS | more, NETWORKS), alignment={"squash_epsilon": 1e-6})
    learner = _learner(source, more)
    policy = learner.policy
    redraw(recording, policy, learner.qfs, learner.target_qfs, learner.log_alpha)

    def critics(network: Any, view: View) -> dict[str, torch.Tensor]:
        layers = [SimpleNamespace(weight=layer.W, bias=layer.b) for layer in (*network.fcs, network.last_fc)]
        return perceptron("critic", layers, view)

    def parameters(view: View) -> dict[str, torch.Tensor]:
        actor = perceptron("actor", [*policy.fcs, (policy.last_fc, policy.last_fc_log_std)], view)
        return critics(learner.qfs, view) | actor | {"temperature/log_alpha": view(learner.log_alpha)}

    run = Run(
        *(recording, [learner.alpha_optimizer, learner.policy_optimizer, learner.qfs_optimizer]),
        *(["alpha_loss", "actor_loss", "critic_loss"], parameters),
        lambda view: critics(learner.target_qfs, view),
    )

    def update(step: int) -> None:
        run.normals(step, "actions", ROWS, ACTION_DIM)
        run.noise.give(recording.normals(step, "next_actions", 1, ROWS, ACTION_DIM)[0])
        learner.train_from_torch(run.batch(step), None)

    return run(update)


def _learner(source: Source, more: dict[str, float]) -> Any:
    module = source.module(FILE, STUBS)
    policies = source.module("lifelong_rl/policies/models/tanh_gaussian_policy.py", STUBS)
    networks = source.module("lifelong_rl/models/networks.py", STUBS)
    sizes = [WIDTH, WIDTH]
    with small_networks():
        policy = policies.TanhGaussianPolicy(sizes, OBSERVATION_DIM, ACTION_DIM)
        critics = [networks.ParallelizedEnsembleFlattenMLP(CRITICS, sizes, OBSERVATION_DIM + ACTION_DIM, 1) for _ in range(2)]
        learner = module.SACTrainer(
            *(SimpleNamespace(action_space=SimpleNamespace(shape=(ACTION_DIM,))), policy, *critics),
            **{"discount": KNOBS["gamma"], "soft_target_tau": KNOBS["tau"], "num_qs": CRITICS, **more},
            **{"policy_lr": KNOBS["actor_learning_rate"], "qf_lr": KNOBS["critic_learning_rate"]},
        )
    learner._need_to_update_eval_statistics = False
    return learner


if __name__ == "__main__":
    main("snu-mllab/EDAC", [sac_n, edac], {"torch": torch.__version__})
