"""Edits of the JSON of checkpoints whose hashes are made right again, and what the package makes of them."""

import copy
import json
import shutil
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest

from rl_training import Policy
from rl_training.data import load_dataset
from rl_training.errors import RLTrainingError
from rl_training.experiment.manager import ExperimentManager
from rl_training.runtime.callbacks import Callback
from rl_training.storage import canonical_json, sha256
from tests.faults.watchdog import Hang, watchdog
from tests.helpers import Cut, CutAt, checkpoints, generator, small_arrays, tiny_run

SHORT = {"total_timesteps": 40, "log_interval": 10, "eval_interval": 10, "eval_episodes": 1, "checkpoint_interval": 10}
SHORT |= {"max_episode_steps": 7, "learning_rate_schedule": "constant", "workers": 0}
ROWS = {"dataset": {"kind": "random", "size": 80, "seed": 3}}
OFFLINE, ONLINE = {"hidden_sizes": [4], "batch_size": 8, **ROWS}, {"hidden_sizes": [4], "batch_size": 8, "learning_starts": 9}
NO_ENV = {"env_id": None, "max_episode_steps": None}
KINDS = {
    "solo": ("iql", {"algo_kwargs": OFFLINE, "early_stopping": {"patience": 50}}),
    "population": (
        "td3_bc",
        {"algo_kwargs": OFFLINE, "seeds": [0, 7], "sweep": {"alpha": [1.0, 2.5]}, "pruning": {"kind": "median"}},
    ),
    "online": ("sac", {"algo_kwargs": ONLINE, "seeds": [0, 7]}),
    "finetune": ("iql", {"algo_kwargs": OFFLINE, "finetune": {"from_step": 20, "env_steps": 20, "learning_starts": 3}}),
    "beside": ("iql", {"algo_kwargs": OFFLINE, "eval_mode": "beside"}),
    "held_out": ("td3_bc", {"algo_kwargs": {**OFFLINE, "validation": {"fraction": 0.2}}, **NO_ENV, "select_by": "td_error"}),
}
DEEP, INFINITE = "@deep", "@infinite"  # what `json` cannot write
RAW = {DEEP: "[" * 3000 + "]" * 3000, INFINITE: "1e999"}
MISSING, EXTRA, TWICE = object(), object(), object()
VALUES = [
    *(None, True, -1, 0, 3, 2**31, 2**63, 10**30, 10**400, -1.5, 0.5, 1e308, "", "x", "../../x", "\x00", "9" * 5000),
    *([], {}, [[]], [None], {"a": {"b": [1]}}, DEEP, INFINITE, MISSING, EXTRA, TWICE),
]


class Counting(Callback):
    """A callback of a user, with a state of its own."""

    def __init__(self):
        self.seen = 0

    def on_log(self, step, rows):
        self.seen += len(rows)

    def state_dict(self):
        return {"seen": self.seen, "by": {"day": [1, 2.5, None]}}

    def load_state_dict(self, state):
        self.seen = int(state["seen"]) + len(state["by"]["day"])


def interrupted_run(folder, kind):
    """A run that died between two checkpoints, with the callback above."""
    algo, changes = KINDS[kind]
    values = {**SHORT, **changes}
    if kind == "held_out":
        data = folder.with_suffix(".npz")
        np.savez(data, **small_arrays())
        values["algo_kwargs"] = {**values["algo_kwargs"], "dataset": {"path": str(data)}}
    cut = FinetuneCut() if kind == "finetune" else CutAt("log", 30)
    with pytest.raises(Cut):
        tiny_run(folder, algo, callbacks=[Counting(), cut], **values)
    return folder


class FinetuneCut(Callback):
    """Dies at the second checkpoint of an online phase that follows an offline one."""

    def on_checkpoint(self, step, path):
        if Path(path).name.startswith("env-000000010"):
            raise Cut


@dataclass(frozen=True)
class Edit:
    """One changed place of one file."""

    kind: str
    file: str  # state.json or manifest.json
    path: tuple
    number: int  # of the value

    def __str__(self):
        value = VALUES[self.number]
        names = {id(MISSING): "missing", id(EXTRA): "an extra key", id(TWICE): "twice"}
        shown = names.get(id(value), repr(value)[:30])
        return f"{self.kind}: {self.file} {'.'.join(map(str, self.path))} = {shown}"


def places(value, path=()):
    """Every place in a JSON value, the whole not counted."""
    children = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, child in children:
        yield (*path, key)
        yield from places(child, (*path, key))


def all_edits(runs):
    """Every edit of the last checkpoint of each run."""
    for kind, run in runs.items():
        for file in ("state.json", "manifest.json"):
            for path in places(json.loads((checkpoints(run)[-1] / file).read_text())):
                yield from (Edit(kind, file, path, number) for number in range(len(VALUES)))


def drawn(runs, count, seed=0):
    """So many different edits: half of them of what is not the config, whose keys are many and alike."""
    everything = list(all_edits(runs))
    draw = generator(seed)
    own = [edit for edit in everything if edit.path[0] != "config"]
    config = [edit for edit in everything if edit.path[0] == "config"]
    rest = min(count - count // 2, len(own))
    chosen = [own[k] for k in draw.choice(len(own), rest, replace=False)]
    return chosen + [config[k] for k in draw.choice(len(config), count - rest, replace=False)]


def apply(edit, checkpoint):
    """Make the edit, and all hashes right."""
    document = json.loads((checkpoint / edit.file).read_text())
    parent = document
    for key in edit.path[:-1]:
        parent = parent[key]
    key, value = edit.path[-1], VALUES[edit.number]
    if value is MISSING:
        del parent[key]
    elif value is EXTRA or value is TWICE:
        inside = parent[key]
        if isinstance(inside, dict):
            inside["extra"] = 1
        elif isinstance(inside, list) and inside and value is TWICE:
            inside.append(copy.deepcopy(inside[-1]))
        elif isinstance(inside, list):
            inside.append("extra")
        elif isinstance(parent, dict):
            parent[f"{key}_"] = inside
        else:
            parent.insert(key, inside)
    else:
        parent[key] = value
    if edit.file == "manifest.json":
        document.pop("sha256", None) if edit.path != ("sha256",) else None
        seal(checkpoint, document)
        return
    text = json.dumps(document, indent=1, sort_keys=True) + "\n"
    for token, raw in RAW.items():
        text = text.replace(json.dumps(token), raw)
    (checkpoint / edit.file).write_text(text)
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    manifest["files"]["state.json"] = {"bytes": len(text.encode()), "sha256": sha256(text.encode())}
    del manifest["sha256"]
    seal(checkpoint, manifest)


def seal(checkpoint, manifest):
    """Write a manifest with the hash of itself."""
    if "sha256" not in manifest:
        manifest = {**manifest, "sha256": sha256(canonical_json(manifest))}
    (checkpoint / "manifest.json").write_bytes(canonical_json(manifest))


def resume_in_place(run):
    manager, checkpoint = ExperimentManager.resuming(run)
    manager.train(resume=True, checkpoint=checkpoint, callbacks=[Counting()])


def resume_elsewhere(run):
    class Stop(Callback):
        def on_start(self, learner):
            return False  # an edited budget may be legal and long

    manager, checkpoint = ExperimentManager.resuming(checkpoints(run)[-1], run / "elsewhere")
    if has_short_episodes(manager.config):
        manager.train(resume=True, checkpoint=checkpoint, callbacks=[Counting(), Stop()])


def use_the_policy(run):
    policy = Policy.load(checkpoints(run)[-1], device="cpu")
    policy.predict([[0.1] * policy.spaces.observation_dim])
    if policy.config.final_env_id is not None and has_short_episodes(policy.config):
        policy.evaluate(1)


def read_the_replay(run):
    if checkpoints(run)[-1].name.startswith("env-"):
        load_dataset(run)


def has_short_episodes(config):
    """Whether an evaluation is over soon: an edited limit may be legal and long too."""
    return config.final_environment is None or (config.final_environment.max_episode_steps or 0) <= 1000


USES = [use_the_policy, resume_elsewhere, read_the_replay, resume_in_place]


def answer(use, run, edit, seconds=30):
    """What a use says to an edit: `refused`, `harmless`, or what went wrong."""
    try:
        with watchdog(seconds):
            use(run)
    except RLTrainingError as error:
        if "\n" in str(error) or len(str(error)) > 2000:
            return f"not one line: {error}"
        legal = edit.path[0] == "config" or edit.path[:2] in (("spaces", "action_low"), ("spaces", "action_high"))
        usual = error.exit_code == 4 or (legal and error.exit_code in (2, 3, 5, 6))  # a legal value that does not fit
        return "refused" if usual else f"exit {error.exit_code}: {error}"
    except Hang:
        return "hang"
    except BaseException as error:
        return f"traceback: {type(error).__name__}: {str(error)[:200]}"
    return "harmless"


def try_edits(edits, runs, folder, uses=USES):
    """Return how many edits were refused or harmless in every use, and a line for each answer that is neither."""
    good, bad = 0, []
    for edit in edits:
        answers = {}
        for use in uses:
            apply(edit, copied(runs[edit.kind], folder))
            answers[use.__name__] = answer(use, folder, edit)
        wrong = [f"{edit}: {use}: {text}" for use, text in answers.items() if text not in ("refused", "harmless")]
        good += not wrong
        bad += wrong
    return good, bad


def copied(run, folder):
    """Copy a run without its older checkpoints, so that there is none to fall back to; return the one that is left."""
    shutil.rmtree(folder, ignore_errors=True)
    *older, last = (path.name for path in checkpoints(run))
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns(*older, "elsewhere"))
    return folder / "checkpoints" / last
