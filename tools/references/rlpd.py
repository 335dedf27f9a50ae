"""RLPD from ikostrikov/rlpd: `python -m tools.references.rlpd CHECKOUT`."""

from collections.abc import Mapping
from typing import Any

import flax
import numpy as np
import tensorflow_probability.substrates.jax  # noqa: F401  # the project finds it loaded

from tools.references.common import ACTION_DIM, OBSERVATION_DIM, ROWS, WIDTH, Recording, Source, main
from tools.references.jax_code import VERSIONS, Noise, View, joined, perceptron, redraw, run

FILE = "rlpd/agents/sac/sac_learner.py"
UNUSED = ("gym", "gym.spaces", "gym.utils", "gym.wrappers", "gym.wrappers.pixel_observation", "d4rl")
CRITICS, SUBSET, ROUND = 5, 2, 2


class Space:
    """A space of the given size, as far as the learner asks."""

    def __init__(self, size: int) -> None:
        self.shape = (size,)

    def sample(self) -> Any:
        """Return a point."""
        return np.zeros(self.shape)


def _record(
    source: Source,
    variant: str,
    knobs: dict[str, Any],
    alignment: dict[str, Any],
    *,
    layer_norm: bool = True,
    **settings: Any,
) -> Recording:
    flax.config.update("flax_return_frozendict", True)  # as older versions do, which the mask of weight decay expects
    code = source.module(FILE, UNUSED)
    shared = {
        "actor_learning_rate": 1e-3,
        "critic_learning_rate": 3e-3,
        "gamma": 0.9,
        "tau": 0.1,
        "subset_size": SUBSET,
        **knobs,
    }
    networks = {"hidden_sizes": [WIDTH, WIDTH], "num_critics": CRITICS, "critic_layer_norm": layer_norm}
    order = {"order": [["critic"], ["actor", "temperature"]], "layer_norm_epsilon": 1e-6, "round": ROUND}
    notes = f"Rounds of {ROUND} updates; policy and temperature are updated after the last one of a round."
    recording = Recording("rlpd", variant, source, FILE, shared, networks, order | alignment, notes)
    agent = code.SACLearner.create(
        0,
        Space(OBSERVATION_DIM),
        Space(ACTION_DIM),
        actor_lr=1e-3,
        critic_lr=3e-3,
        discount=0.9,
        tau=0.1,
        hidden_dims=(WIDTH, WIDTH),
        num_qs=CRITICS,
        num_min_qs=SUBSET,
        critic_layer_norm=layer_norm,
        **settings,
    )
    states = {name: _redrawn(recording, getattr(agent, name)) for name in ("actor", "critic", "target_critic")}
    agent = agent.replace(**states, temp=_doubled(agent.temp))

    def update(agent: Any, step: int, noise: Noise) -> tuple[Any, Mapping[str, Any]]:
        fields = recording.batch(step)
        batch = {**fields, "masks": 1.0 - fields["terminals"]}
        noise.give(recording.normals(step, "next_actions", 1, ROWS, ACTION_DIM)[0].T)
        noise.give(recording.uniforms(step, "critic_subset", CRITICS))
        here = recording.normals(step, "actions", ROWS, ACTION_DIM)  # ours reports the policy's loss at every step
        if (step + 1) % ROUND:
            agent, info = agent.update_critic(batch)
            return agent, {"critic_loss": info["critic_loss"]}
        noise.give(here.T)
        agent, info = agent.update(batch, utd_ratio=1)
        return agent, {name: info[name] for name in ("critic_loss", "actor_loss")}

    def trained(agent: Any, view: View) -> dict[str, Any]:
        temperature = {"temperature/log_alpha": view(agent.temp)["log_temp"][None]} if knobs["alpha"] == "auto" else {}
        return {**_critics(view(agent.critic)), **_policy(view(agent.actor)), **temperature}

    return run(recording, agent, update, trained, lambda found: _critics(found.target_critic.params))


def _redrawn(recording: Recording, state: Any) -> Any:
    params = redraw(recording, state.params)
    return state.replace(params=params, opt_state=state.tx.init(params))


def _doubled(state: Any) -> Any:
    params = {"log_temp": np.asarray(state.params["log_temp"], np.float64)}
    return state.replace(params=params, opt_state=state.tx.init(params))


def _critics(tree: Any) -> dict[str, Any]:
    (critic,) = tree.values()
    return perceptron("critic", critic["MLP_0"], {"Dense_0": critic["Dense_0"]})


def _policy(tree: Any) -> dict[str, Any]:
    heads = joined([tree["OutputDenseMean"], tree["OutputDenseLogStd"]])
    return perceptron("actor", tree["MLP_0"], {"Dense_0": heads})


def rlpd(source: Source) -> Recording:
    """Record RLPD as in its paper, with a learned temperature."""
    knobs = {"alpha": "auto", "temperature_learning_rate": 2e-3, "target_entropy": -0.5 * ACTION_DIM}
    alignment = {"scale": {"critic": 1.0 / CRITICS, "temperature": "alpha"}}
    return _record(source, "official", knobs, alignment, temp_lr=2e-3)


def rlpd_fixed(source: Source) -> Recording:
    """Record RLPD with a fixed temperature, and without the entropy in the target."""
    knobs = {"alpha": 0.2, "backup_entropy": False}
    alignment = {"scale": {"critic": 1.0 / CRITICS}}
    return _record(source, "official_fixed", knobs, alignment, temp_lr=0.0, init_temperature=0.2, backup_entropy=False)


def rlpd_decay(source: Source) -> Recording:
    """Record RLPD with weight decay, which in this code includes the scales of LayerNorm and in ours does not; so without."""
    knobs = {"alpha": 0.2, "critic_weight_decay": 0.5}
    settings: dict[str, Any] = {"temp_lr": 0.0, "init_temperature": 0.2, "critic_weight_decay": 0.5, "layer_norm": False}
    return _record(source, "official_decay", knobs, {"scale": {"critic": 1.0 / CRITICS}}, **settings)


if __name__ == "__main__":
    main("ikostrikov/rlpd", [rlpd, rlpd_fixed, rlpd_decay], VERSIONS)
