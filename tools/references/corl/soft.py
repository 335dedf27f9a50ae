"""CORL's SAC family: SAC-N, which with two critics is SAC, EDAC, CQL and Cal-QL."""

from typing import Any

import torch

from tools.references.common import ACTION_DIM, ROWS, WIDTH, Recording, Source
from tools.references.corl import DIMS, GAMMA, RATES, STUBS, TAU, adam, named, rates, transitions
from tools.references.torch_code import Run, View, linears, perceptron, redraw, small_networks

GROUPS = ("actor", "critic", "temperature")
SAMPLES = 3  # actions per source in CQL's penalty


def sac(source: Source) -> Recording:
    """SAC: SAC-N with two critics."""
    return _ensemble(source, "sac", "sac_n", 2, {})


def sac_n(source: Source) -> Recording:
    """SAC-N."""
    return _ensemble(source, "sac_n", "sac_n", 4, {})


def edac(source: Source) -> Recording:
    """EDAC."""
    return _ensemble(source, "edac", "edac", 4, {"eta": 0.7})


def _ensemble(source: Source, algorithm: str, name: str, critics: int, more: dict[str, float]) -> Recording:
    """Temperature, then policy, then critics, each with what came before it updated."""
    file = f"algorithms/offline/{name}.py"
    networks = {"hidden_sizes": [WIDTH] * 3, "num_critics": critics, "log_std_range": [-5.0, 2.0]}
    recording = Recording(
        *(algorithm, "corl", source, file, {"gamma": GAMMA, "tau": TAU} | more | rates(*GROUPS), networks),
        alignment={"order": [["temperature"], ["actor"], ["critic"]], "squash_epsilon": 1e-6},
    )
    module = source.module(file, STUBS)
    with small_networks():
        actor, critic = module.Actor(*DIMS, WIDTH), module.VectorizedCritic(*DIMS, WIDTH, critics)
    optimizers = [adam("actor", actor), adam("critic", critic)]
    learner_type = {"sac_n": "SACN", "edac": "EDAC"}[name]
    learner = getattr(module, learner_type)(
        *(actor, optimizers[0], critic, optimizers[1]),
        **{"gamma": GAMMA, "tau": TAU, "alpha_learning_rate": RATES["temperature"], **more},
    )
    redraw(recording, actor, critic, learner.target_critic, learner.log_alpha)
    learner.alpha = learner.log_alpha.exp().detach()

    def critic_parameters(network: Any, view: View) -> dict[str, torch.Tensor]:
        return perceptron("critic", network.critic[::2], view)

    def parameters(view: View) -> dict[str, torch.Tensor]:
        policy = perceptron("actor", [*linears(actor.trunk), (actor.mu, actor.log_sigma)], view)
        return critic_parameters(critic, view) | policy | {"temperature/log_alpha": view(learner.log_alpha)}

    run = Run(
        *(recording, [*optimizers, learner.alpha_optimizer], ["alpha_loss", "actor_loss", "critic_loss"], parameters),
        lambda view: critic_parameters(learner.target_critic, view),
    )

    def update(step: int) -> None:
        actions = run.normals(step, "actions", ROWS, ACTION_DIM)  # for the temperature
        run.noise.give(actions)  # and for the policy
        run.noise.give(recording.normals(step, "next_actions", 1, ROWS, ACTION_DIM)[0])
        learner.update(transitions(run, step))

    return run(update)


def cql(source: Source) -> Recording:
    """CQL with a fixed weight."""
    return _cql(source, "cql", "corl", {"cql_temperature": 0.8})


def cql_lagrange(source: Source) -> Recording:
    """CQL with a learned weight, entropy in the target and a clipped difference."""
    more = {"lagrange_gap": 0.6, "backup_entropy": True, "cql_clip_diff_min": 3.6, "cql_clip_diff_max": 4.5}
    return _cql(source, "cql", "corl_lagrange", more)


def cql_max_backup(source: Source) -> Recording:
    """CQL whose target takes the best of several next actions, with their entropy and a fixed temperature."""
    return _cql(source, "cql", "corl_max_backup", {"max_target_backup": True, "backup_entropy": True, "alpha": 0.3})


def cql_version_2(source: Source) -> Recording:
    """CQL without importance sampling, the data's values in the log-sum-exp."""
    return _cql(source, "cql", "corl_version_2", {"min_q_version": 2})


def cal_ql(source: Source) -> Recording:
    """Cal-QL."""
    return _cql(source, "cal_ql", "corl", {})


def _cql(source: Source, algorithm: str, variant: str, more: dict[str, Any]) -> Recording:
    """All losses at the parameters from before the step."""
    file = {"cql": "algorithms/offline/cql.py", "cal_ql": "algorithms/finetune/cal_ql.py"}[algorithm]
    multiplier = {"multiplier_learning_rate": 6e-3} if "lagrange_gap" in more else {}
    knobs = {"gamma": GAMMA, "tau": TAU, "cql_alpha": 2.0, "num_cql_samples": SAMPLES} | more | multiplier
    groups = GROUPS[:2] if "alpha" in more else GROUPS
    networks = {"actor_hidden_sizes": [WIDTH] * 3, "critic_hidden_sizes": [WIDTH] * 2, "log_std_offset": -1.0}
    fields = ("returns_to_go",) if algorithm == "cal_ql" else ()
    recording = Recording(
        *(algorithm, variant, source, file, knobs | rates(*groups), networks),
        notes="multiplier and offset of the policy's log std, which CORL trains, are constants",
        fields=fields,
    )
    module = source.module(file, STUBS)
    with small_networks():
        actor = module.TanhGaussianPolicy(*DIMS, 1.0, log_std_offset=-1.0)
        critics = [module.FullyConnectedQFunction(*DIMS, n_hidden_layers=2) for _ in range(2)]
    optimizers = [adam("actor", actor.base_network), *(adam("critic", critic) for critic in critics)]
    learner_type = {"cql": "ContinuousCQL", "cal_ql": "CalQL"}[algorithm]
    learner = getattr(module, learner_type)(
        *(critics[0], optimizers[1], critics[1], optimizers[2], actor, optimizers[0], -float(ACTION_DIM)), **_settings(knobs)
    )
    targets = [learner.target_critic_1, learner.target_critic_2]
    redraw(recording, actor.base_network, *critics, *targets)
    actor.double()
    scalars = _scalars(learner, recording)
    optimizers += [learner.alpha_optimizer] if learner.log_alpha else []
    optimizers += [learner.alpha_prime_optimizer]
    losses = [*([""] if "lagrange_gap" in more else []), *(["alpha_loss"] if learner.log_alpha else [])]
    run = Run(
        *(recording, optimizers, [*losses, "actor_loss", "critic_loss"]),
        *(named(critics, actor.base_network, **scalars), named(targets)),
    )

    def update(step: int) -> None:
        run.normals(step, "actions", ROWS, ACTION_DIM)
        many = (SAMPLES, ROWS, ACTION_DIM)
        if learner.cql_max_target_backup:
            run.noise.give(recording.normals(step, "next_actions", *many).swapaxes(0, 1))
        else:
            run.noise.give(recording.normals(step, "next_actions", 1, ROWS, ACTION_DIM)[0])
        run.noise.give(recording.uniforms(step, "cql/uniform", *many).swapaxes(0, 1))
        for stream in ("cql/here", "cql/there"):
            run.noise.give(recording.normals(step, stream, *many).swapaxes(0, 1))
        learner.train(transitions(run, step, *fields))

    return run(update)


def _settings(knobs: dict[str, Any]) -> dict[str, Any]:
    """CORL's settings for our knobs; its limits of the difference are infinite where ours are not set."""
    infinity = float("inf")
    return {
        "discount": GAMMA,
        "soft_target_update_rate": TAU,
        "use_automatic_entropy_tuning": "alpha" not in knobs,
        "alpha_multiplier": knobs.get("alpha", 1.0),
        "backup_entropy": knobs.get("backup_entropy", False),
        "policy_lr": RATES["temperature"],  # of the temperature; the policy's optimizer is given
        "qf_lr": knobs.get("multiplier_learning_rate", 1.0),
        "bc_steps": 0,
        "cql_n_actions": knobs["num_cql_samples"],
        "cql_importance_sample": knobs.get("min_q_version", 3) == 3,
        "cql_lagrange": "lagrange_gap" in knobs,
        "cql_target_action_gap": knobs.get("lagrange_gap", -1.0),
        "cql_temp": knobs.get("cql_temperature", 1.0),
        "cql_alpha": knobs["cql_alpha"],
        "cql_max_target_backup": knobs.get("max_target_backup", False),
        "cql_clip_diff_min": knobs.get("cql_clip_diff_min", -infinity),
        "cql_clip_diff_max": knobs.get("cql_clip_diff_max", infinity),
    }


def _scalars(learner: Any, recording: Recording) -> dict[str, torch.Tensor]:
    """The dual variables that are trained, in float64."""
    found = {"log_alpha": learner.log_alpha} if learner.log_alpha else {}
    found |= {"log_multiplier": learner.log_alpha_prime} if learner.cql_lagrange else {}
    for scalar in found.values():
        redraw(recording, scalar)
    return {name: scalar.constant for name, scalar in found.items()}
