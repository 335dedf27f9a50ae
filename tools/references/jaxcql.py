"""CQL from young-geng/JaxCQL: `python -m tools.references.jaxcql CHECKOUT`."""

import sys
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any
from unittest.mock import MagicMock

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, WIDTH, Recording, Source, main
from tools.references.jax_code import VERSIONS, Noise, View, ensemble, perceptron, redraw, run

FILE = "JaxCQL/conservative_sac.py"
UNUSED = ("cloudpickle", "gcsfs", "wandb")  # what the project's logging needs
SAMPLES, LOG_STD_OFFSET = 4, -0.5
SETTINGS = {
    "discount": 0.9,
    "policy_lr": 1e-3,
    "qf_lr": 3e-3,
    "soft_target_update_rate": 0.1,
    "target_entropy": -1.5,
    "cql_n_actions": SAMPLES,
}
KNOBS = {
    "gamma": SETTINGS["discount"],
    "actor_learning_rate": SETTINGS["policy_lr"],
    "temperature_learning_rate": SETTINGS["policy_lr"],
    "critic_learning_rate": SETTINGS["qf_lr"],
    "tau": SETTINGS["soft_target_update_rate"],
    "target_entropy": SETTINGS["target_entropy"],
    "num_cql_samples": SAMPLES,
}
NETWORKS = {"hidden_sizes": [WIDTH, WIDTH], "log_std_offset": LOG_STD_OFFSET}
NOTES = "The factor and the offset of the log standard deviation, which this code trains, are held at 1 and -0.5."
LOSSES = {
    "critic_loss": ("qf1_loss", "qf2_loss"),
    "conservative_loss": ("cql/cql_min_qf1_loss", "cql/cql_min_qf2_loss"),
    "actor_loss": ("policy_loss",),
    "alpha_loss": ("alpha_loss",),
}


class Trained:
    """A `ConservativeSAC` with small networks, new parameters and given noise; Cal-QL's is a copy of CQL's."""

    def __init__(self, recording: Recording, **settings: Any) -> None:
        for name in UNUSED:
            sys.modules.setdefault(name, MagicMock())
        sys.path.insert(0, str(recording.source.checkout))
        import_module("JaxCQL.jax_utils").init_rng(0)
        networks, code = import_module("JaxCQL.model"), import_module("JaxCQL.conservative_sac")
        shape = (OBSERVATION_DIM, ACTION_DIM, f"{WIDTH}-{WIDTH}")
        policy = networks.TanhGaussianPolicy(*shape, log_std_offset=LOG_STD_OFFSET)
        self.recording = recording
        self.sac = code.ConservativeSAC({**SETTINGS, **settings}, policy, networks.FullyConnectedQFunction(*shape))
        for name, state in self.sac.train_states.items():
            params = redraw(recording, state.params)
            if name == "policy":
                params = self._with_held_scalars(params, state.params)
            self.sac.train_states[name] = state.replace(params=params, opt_state=state.tx.init(params))
        self.sac._target_qf_params = redraw(recording, self.sac._target_qf_params)

    @staticmethod
    def _with_held_scalars(params: Any, before: Any) -> Any:
        held = {name: value for name, value in before["params"].items() if name.startswith("log_std")}
        return {"params": {**params["params"], **held}}

    def give_noise(self, step: int, noise: Noise) -> None:
        """Queue a step's noise as often as the losses are computed, once for each network."""
        recording, config = self.recording, self.sac.config
        backups = SAMPLES if config.cql_max_target_backup else 1
        here = recording.normals(step, "actions", ROWS, ACTION_DIM)
        there = recording.normals(step, "next_actions", backups, ROWS, ACTION_DIM).swapaxes(0, 1)
        shape = (SAMPLES, ROWS, ACTION_DIM)
        samples = [
            recording.uniforms(step, "cql/uniform", *shape).swapaxes(0, 1),
            recording.normals(step, "cql/here", *shape).swapaxes(0, 1)[None],
            recording.normals(step, "cql/there", *shape).swapaxes(0, 1)[None],
        ]
        for _ in self.sac.model_keys:
            noise.give(here[None], there[None] if config.cql_max_target_backup else there.swapaxes(0, 1), *samples)

    def update(self, step: int, noise: Noise, options: Mapping[str, Any]) -> Mapping[str, Any]:
        """Take one update and return its losses."""
        fields = self.recording.batch(step)
        batch = {**fields, "dones": fields["terminals"], "mc_returns": fields.get("returns_to_go")}
        self.give_noise(step, noise)
        before = self.sac.train_states["policy"].params
        metrics = self.sac.train(batch, **options)
        policy = self.sac.train_states["policy"]
        self.sac.train_states["policy"] = policy.replace(params=self._with_held_scalars(policy.params, before))
        return {name: sum(metrics[part] for part in parts) for name, parts in LOSSES.items()}

    def record(self, options: Callable[[int], Mapping[str, Any]]) -> Recording:
        """Record ten updates; `options(step)` are those of `train`."""

        def update(_: Any, step: int, noise: Noise) -> tuple[Any, Mapping[str, Any]]:
            return self.sac, self.update(step, noise, options(step))

        return run(self.recording, self.sac, update, _named, _targets)


def _critics(trees: Mapping[str, Any]) -> dict[str, Any]:
    return ensemble([perceptron("critic", trees[name]["params"]["FullyConnectedNetwork_0"]) for name in ("qf1", "qf2")])


def _targets(sac: Any) -> dict[str, Any]:
    return _critics(sac._target_qf_params)


def _named(sac: Any, view: View) -> dict[str, Any]:
    trees = {name: view(state) for name, state in sac.train_states.items()}
    duals = {"log_alpha": "log_alpha", "log_alpha_prime": "log_multiplier"}
    return {
        **_critics(trees),
        **perceptron("actor", trees["policy"]["params"]["base_network"]),
        **{f"temperature/{ours}": trees[name]["params"]["value"][None] for name, ours in duals.items() if name in trees},
    }


def _cql(source: Source, variant: str, knobs: dict[str, Any], **settings: Any) -> Recording:
    recording = Recording("cql", variant, source, FILE, {**KNOBS, **knobs}, NETWORKS, notes=NOTES)
    return Trained(recording, **settings).record(lambda step: {"bc": step < knobs.get("bc_steps", 0)})


def cql(source: Source) -> Recording:
    """Record CQL with a fixed weight, another temperature, and the entropy in the target."""
    knobs = {"cql_alpha": 4.0, "cql_temperature": 0.7, "backup_entropy": True}
    return _cql(source, "jaxcql", knobs, cql_min_q_weight=4.0, cql_temp=0.7, backup_entropy=True)


def cql_lagrange(source: Source) -> Recording:
    """Record CQL with a learned weight, clipped differences and the best of several next actions."""
    clip = {"cql_clip_diff_min": 3.4, "cql_clip_diff_max": 4.0}
    knobs = {"cql_alpha": 2.0, "lagrange_gap": 0.8, "max_target_backup": True, **clip}
    knobs["multiplier_learning_rate"] = SETTINGS["qf_lr"]
    settings = {"cql_lagrange": True, "cql_target_action_gap": 0.8, "cql_min_q_weight": 2.0, "cql_max_target_backup": True}
    return _cql(source, "jaxcql_lagrange", knobs, **settings, **clip)


def cql_cloning(source: Source) -> Recording:
    """Record CQL whose policy is cloned for the first steps."""
    return _cql(source, "jaxcql_cloning", {"bc_steps": 4})


if __name__ == "__main__":
    main("young-geng/JaxCQL", [cql, cql_lagrange, cql_cloning], VERSIONS)
