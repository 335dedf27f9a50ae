"""Extracts one member of a population's checkpoint as a solo checkpoint."""

from collections.abc import Mapping
from typing import Any

from rl_training.errors import ConfigError
from rl_training.runtime.callbacks import EarlyStopping
from rl_training.runtime.checkpoints.checkpoint import Checkpoint
from rl_training.runtime.pruning import Pruning
from rl_training.storage import sha256

BEST_SCORE = "best_score"  # in the state of held-out data: of all members together, so it says nothing of one
_ALONE = {"seeds": None, "sweep": None, "trials": None, "pruning": None}  # of a config with one member
_PRUNING = Pruning.__name__  # the rule compares members


def member_of(checkpoint: Checkpoint, member: int) -> Checkpoint:
    """Return one member of a population as a solo checkpoint, with its exact state."""
    state = checkpoint.state
    if type(member) is not int or not 0 <= member < len(state["seeds"]):
        raise ConfigError(f"member {member} not found: the checkpoint has members 0 to {len(state['seeds']) - 1}")
    shared = {name: value for name, value in checkpoint.tensors.items() if name.startswith("transforms/")}
    own = {name: value[member : member + 1].clone() for name, value in checkpoint.learner_tensors.items()}
    seed, record = state["seeds"][member], state["members"][member]
    kwargs = {**(state["config"].get("algo_kwargs") or {}), **record.get("knobs", {})}
    alone = {
        "config": {**state["config"], "seed": seed, **_ALONE, "algo_kwargs": kwargs},
        "seeds": [seed],
        "members": [{**record, "knobs": {}}],
        "best_mean": record["best_return"],
        "recent_metrics": {name: [values[member]] for name, values in state.get("recent_metrics", {}).items()},
        "callbacks": [EarlyStopping.of_member(entry, member) for entry in state["callbacks"] if entry["name"] != _PRUNING],
        "stopping": [0] if member in state.get("stopping", ()) else [],
        "metrics_bytes": 0,
        "metrics_sha256": sha256(b""),
        "held_out": {name: value for name, value in state.get("held_out", {}).items() if name != BEST_SCORE},
    }
    if checkpoint.env_step is not None:
        alone |= {"episodes": [state["episodes"][member]], "replay_ready": [state["replay_ready"][member]]}
        for name in ("online/observations", "online/pending"):
            own[name] = checkpoint.tensors[name][member : member + 1].clone()
        own["online/actions/0"] = checkpoint.tensors[f"online/actions/{member}"]
    path = checkpoint.path / f"member-{member}"
    solo = Checkpoint(path, {**own, **shared}, {**state, **alone}, checkpoint.source, member)
    if "evaluating" in state:
        solo.state.pop("evaluating")
        solo.state.update(_evaluating(state, member))
    return solo


def _evaluating(state: Mapping[str, Any], member: int) -> dict[str, Any]:
    """The evaluation of this very step, if it was under way and concerns the member; one of another step is left out."""
    record = state["evaluating"]
    own = all(state[name] == count for name, count in record["counters"].items()) and member in record["members"]
    return {"evaluating": {**record, "members": [0]}} if own else {}
