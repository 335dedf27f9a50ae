"""XQL from Div99/XQL: `python -m tools.references.xql CHECKOUT`."""

from typing import Any

from tools.references.common import Recording, Source, main
from tools.references.implicit_q_learning import KNOBS, NETWORKS, ORDER, new_learner, run_learner
from tools.references.jax_code import VERSIONS

FOLDER = "offline"
PUBLISHED_CLIP = 7.0  # also our default


class Options:
    """The settings that the project's training script passes on, at its defaults except for the clip."""

    sample_random_times, num_v_updates = 0, 1
    noise = grad_pen = log_loss = False

    def __init__(self, max_clip: float) -> None:
        self.max_clip = max_clip


def _record(source: Source, variant: str, *, layer_norm: bool, max_clip: float) -> Recording:
    folder = Source(source.repository, source.checkout / FOLDER)
    code: Any = folder.module("learner.py")
    temperature = 0.8
    knobs = {**KNOBS, "loss_temperature": temperature, "critic_loss": "huber"}
    if max_clip != PUBLISHED_CLIP:
        knobs["max_value_diff_exp"] = max_clip
    networks = {**NETWORKS, "value_layer_norm": layer_norm}
    alignment = {"order": ORDER, "layer_norm_epsilon": 1e-6}
    recording = Recording("xql", variant, source, f"{FOLDER}/learner.py", knobs, networks, alignment)
    settings = {"loss_temp": temperature, "vanilla": False, "layernorm": layer_norm, "args": Options(max_clip)}
    return run_learner(recording, code, new_learner(code, **settings))


def xql(source: Source) -> Recording:
    """Record XQL as published: LayerNorm in the value network, and no residual that reaches the clip."""
    return _record(source, "official", layer_norm=True, max_clip=PUBLISHED_CLIP)


def xql_clipped(source: Source) -> Recording:
    """Record XQL with a clip low enough to matter, and a plain value network."""
    return _record(source, "official_clipped", layer_norm=False, max_clip=0.5)


if __name__ == "__main__":
    main("Div99/XQL", [xql, xql_clipped], VERSIONS)
