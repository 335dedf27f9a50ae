"""IQL from ikostrikov/implicit_q_learning: `python -m tools.references.implicit_q_learning CHECKOUT`."""

from collections.abc import Mapping
from typing import Any

import flax
import numpy as np

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, WIDTH, Array, Recording, Source, main
from tools.references.jax_code import VERSIONS, Noise, View, ensemble, perceptron, redraw, run

MODELS = ("actor", "critic", "value", "target_critic")
SETTINGS = {"actor_lr": 1e-3, "value_lr": 2e-3, "critic_lr": 3e-3, "discount": 0.9, "tau": 0.1, "temperature": 2.0}
KNOBS = {
    "actor_learning_rate": SETTINGS["actor_lr"],
    "value_learning_rate": SETTINGS["value_lr"],
    "critic_learning_rate": SETTINGS["critic_lr"],
    "gamma": SETTINGS["discount"],
    "tau": SETTINGS["tau"],
    "beta": SETTINGS["temperature"],
}
NETWORKS = {"hidden_sizes": [WIDTH, WIDTH]}
ORDER = [["value"], ["actor"], ["critic"]]  # each at the parameters that the one before it has left


def run_learner(recording: Recording, code: Any, learner: Any) -> Recording:
    """Record ten updates of a `Learner`, from new parameters; XQL's is a copy of IQL's."""
    for name in MODELS:
        model = getattr(learner, name)
        params = redraw(recording, model.params)
        setattr(learner, name, model.replace(params=params, opt_state=model.tx and model.tx.init(params)))

    def update(_: Any, step: int, __: Noise) -> tuple[Any, Mapping[str, Any]]:
        info = learner.update(batch_of(code, recording.batch(step)))
        return learner, {name: info[name] for name in ("value_loss", "critic_loss", "actor_loss")}

    return run(recording, learner, update, trained, lambda found: critics(found.target_critic.params))


def batch_of(code: Any, fields: Mapping[str, Array]) -> Any:
    """Return a batch as the project has it: masks are 0 at a true end."""
    names = ("observations", "actions", "rewards", "next_observations")
    return code.Batch(**{name: fields[name] for name in names}, masks=1.0 - fields["terminals"])


def new_learner(code: Any, **settings: Any) -> Any:
    """Return a learner with small networks; it expects frozen dictionaries of parameters, as older versions of Flax have."""
    flax.config.update("flax_return_frozendict", True)
    shapes = (np.zeros((ROWS, OBSERVATION_DIM)), np.zeros((ROWS, ACTION_DIM)))
    return code.Learner(0, *shapes, hidden_dims=(WIDTH, WIDTH), opt_decay_schedule="none", **SETTINGS, **settings)


def critics(tree: Any) -> dict[str, Any]:
    """Return the two critics by our names."""
    return ensemble([perceptron("critic", tree[f"Critic_{number}"]["MLP_0"]) for number in range(2)])


def trained(learner: Any, view: View) -> dict[str, Any]:
    """Return the trained parameters by our names."""
    policy = view(learner.actor)
    return {
        **critics(view(learner.critic)),
        **perceptron("value", view(learner.value)["MLP_0"]),
        **perceptron("actor", policy["MLP_0"], {"Dense_0": policy["Dense_0"]}),
        "actor/log_std": policy["log_stds"],
    }


def iql(source: Source) -> Recording:
    """Record IQL in the order of the official code."""
    code = source.module("learner.py")
    expectile = 0.8
    recording = Recording(
        "iql", "official", source, "learner.py", {**KNOBS, "expectile": expectile}, NETWORKS, {"order": ORDER}
    )
    return run_learner(recording, code, new_learner(code, expectile=expectile))


if __name__ == "__main__":
    main("ikostrikov/implicit_q_learning", [iql], VERSIONS)
