"""Golden values: the SHA-256 of what short training runs leave behind, to be the same before and after a change of the code.

`make golden-record` writes `values.json`, `make golden-check` runs everything again and compares. The values are exact on one
machine, processor and version of torch; elsewhere they differ in last digits. Where a change moves numbers on purpose, record
them anew in one commit that lists each changed run and why.
"""

import argparse
import hashlib
import json
import platform
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
from safetensors import safe_open

import rl_training
from rl_training.data import TransitionDataset, save_dataset

VALUES = Path(__file__).parent / "values.json"
OFFLINE = ("IQL", "XQL", "AWAC", "TD3BC", "ReBRAC", "CQL", "CalQL", "SACN", "EDAC", "FQL", "BC")
WITHOUT_CRITICS = ("BC",)  # nothing to finetune, and rewards that are not transformed
ONLINE = ("TD3", "SAC", "REDQ", "RLPD")
WITHOUT_DATA = ("TD3", "SAC", "REDQ")
ENGINES = ("eager", "compile")
STEPS = 200
SETTINGS = {
    "device": "cpu",
    "hidden_sizes": [32, 32],
    "batch_size": 32,
    "log_interval": 20,
    "eval_interval": 100,
    "eval_episodes": 2,
    "checkpoint_interval": 70,
}
OWN = {
    "CQL": {"num_cql_samples": 3},
    "CalQL": {"num_cql_samples": 3, "lagrange_gap": 1.0},
    "FQL": {"flow_steps": 3},
    "XQL": {"critic_loss": "huber", "value_layer_norm": True},
    "SACN": {"num_critics": 3},
    "EDAC": {"num_critics": 3},
    "TD3": {"learning_starts": 50},
    "SAC": {"learning_starts": 50},
    "REDQ": {"learning_starts": 50, "num_critics": 3, "gradient_updates_per_step": 2, "actor_interval": 2},
    "RLPD": {
        "learning_starts": 20,
        "num_critics": 3,
        "critic_layer_norm": True,
        "gradient_updates_per_step": 2,
        "offline_pretrain_updates": 60,
    },
}
SWEPT = {
    "IQL": ("expectile", [0.6, 0.9]),
    "AWAC": ("awac_lambda", [0.1, 1.0]),
    "XQL": ("loss_temperature", [1.0, 2.0]),
    "TD3BC": ("alpha", [1.0, 2.5]),
    "ReBRAC": ("critic_bc_coef", [0.01, 0.1]),
    "CQL": ("cql_alpha", [1.0, 5.0]),
    "CalQL": ("cql_alpha", [1.0, 5.0]),
    "EDAC": ("eta", [0.5, 5.0]),
    "FQL": ("alpha", [1.0, 10.0]),
    "BC": ("max_grad_norm", [0.1, 1.0]),
}
RECIPE = {"kind": "random", "size": 1000, "seed": 3}


def rows(count: int, seed: int = 0) -> TransitionDataset:
    """Synthetic transitions in the shapes of Pendulum-v1, episodes of 200 rows that all end by a time limit."""
    draw = np.random.Generator(np.random.Philox(seed))
    observations = draw.normal(size=(count, 3)).astype(np.float32)
    last = np.arange(count) % 200 == 199
    return TransitionDataset.from_dict(
        {
            "observations": observations,
            "actions": draw.uniform(-2.0, 2.0, (count, 1)).astype(np.float32),
            "rewards": draw.normal(size=count).astype(np.float32),
            "next_observations": np.concatenate((observations[1:], observations[:1])),
            "terminals": np.zeros(count, dtype=bool),
            "timeouts": last,
        },
        action_low=[-2.0],
        action_high=[2.0],
    )


def train(name: str, run_dir: Path, engine: str, steps: int = STEPS, *, env_id: str | None = "Pendulum-v1", **changes):
    """Train one algorithm by its managed class and return it."""
    data = {} if name in WITHOUT_DATA else {"dataset": RECIPE}
    settings = {**SETTINGS, **OWN.get(name, {}), **data, "engine": engine, **changes}
    return getattr(rl_training, name)(env_id, run_dir=run_dir, **settings).learn(steps)


def solo(name: str, run_dir: Path, engine: str, _data: Path) -> None:
    train(name, run_dir, engine, learning_rate_schedule={"actor": "cosine"}, max_grad_norm=1.0)


def population(name: str, run_dir: Path, engine: str, _data: Path) -> None:
    knob, values = SWEPT.get(name, ("critic_learning_rate", [1e-3, 3e-4]))
    train(name, run_dir, engine, seeds=[0, 7], sweep={knob: values, "actor_learning_rate": [1e-3, 3e-4]})


def finetune(name: str, run_dir: Path, engine: str, _data: Path) -> None:
    replay = {"replay": "append"} if name == "XQL" else {"prior_ratio": 0.5, "prior_ratio_end": 0.25}
    train(name, run_dir, engine, seeds=[0, 1]).finetune(250, **replay)


def streamed(name: str, run_dir: Path, engine: str, data: Path) -> None:
    block = {"dataset": {"path": str(data / "streamed")}, "max_dataset_bytes": 2**20}
    reward = {} if name in WITHOUT_CRITICS else {"reward": {"normalize": True}}
    train(name, run_dir, engine, normalize_observations=True, **reward, **block)


def held_out(name: str, run_dir: Path, engine: str, data: Path) -> None:
    train(name, run_dir, engine, env_id=None, dataset={"path": str(data / "held_out.npz")}, seeds=[0, 1])


SAYS_NOTHING = {"transforms/observation_range"}  # no step reads it, and the values are older
Case = tuple[str, Callable[[str, Path, str, Path], None], str, str]


def cases() -> list[Case]:
    """Every run: name, how it is made, algorithm and engine."""
    kinds = [(solo, (*OFFLINE, *ONLINE)), (population, (*OFFLINE, *ONLINE))]
    with_critics = [name for name in OFFLINE if name not in WITHOUT_CRITICS]
    kinds += [(finetune, with_critics), (streamed, OFFLINE), (held_out, OFFLINE)]
    return [
        (f"{algorithm}/{make.__name__}/{engine}", make, algorithm, engine)
        for make, algorithms in kinds
        for algorithm in algorithms
        for engine in ENGINES
    ]


def digest(run_dir: Path) -> dict[str, str]:
    """The hashes of the newest checkpoint's tensors and of the metrics."""
    latest = json.loads((run_dir / "checkpoints" / "latest.json").read_bytes())["checkpoint"]
    path = run_dir / "checkpoints" / latest / "state.safetensors"
    found = hashlib.sha256()
    with safe_open(path, framework="np") as tensors:
        for name in sorted(set(tensors.keys()) - SAYS_NOTHING):
            value = tensors.get_tensor(name)
            found.update(f"{name} {value.dtype} {value.shape} ".encode() + value.tobytes())
    return {
        "checkpoint": latest,
        "tensors": found.hexdigest(),
        "metrics": hashlib.sha256((run_dir / "metrics.jsonl").read_bytes()).hexdigest(),
    }


def machine() -> dict[str, str]:
    """What the values depend on beside the code."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").exists() else []
    processor = next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor())
    return {"torch": torch.__version__, "numpy": np.__version__, "machine": platform.machine(), "processor": processor}


def run_all(pattern: str) -> dict[str, dict[str, str]]:
    """Train every case whose name holds the pattern and return the hashes."""
    torch.set_num_threads(1)
    found = {}
    with tempfile.TemporaryDirectory(prefix="golden-") as folder:
        home = Path(folder)
        save_dataset(rows(40_000), home / "streamed")
        save_dataset(rows(1_000, seed=1), home / "held_out.npz")
        for name, make, algorithm, engine in cases():
            if pattern in name:
                run_dir = home / name.replace("/", "-")
                make(algorithm, run_dir, engine, home)
                found[name] = digest(run_dir)
                print(name, found[name]["tensors"][:12], found[name]["metrics"][:12], flush=True)
    return found


def main() -> int:
    """Record or check; the exit code is 1 where anything differs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("mode", choices=("record", "check"))
    parser.add_argument("--only", default="", help="part of the names of the runs to check")
    arguments = parser.parse_args()
    found = run_all(arguments.only)
    if arguments.mode == "record":
        known = json.loads(VALUES.read_text())["runs"] if arguments.only and VALUES.exists() else {}
        VALUES.write_text(json.dumps({"made_on": machine(), "runs": {**known, **found}}, indent=1) + "\n")
        return 0
    stored = json.loads(VALUES.read_text())
    wanted = {name: value for name, value in stored["runs"].items() if arguments.only in name}
    different = [name for name in {**wanted, **found} if wanted.get(name) != found.get(name)]
    for name in different:
        print(f"differs: {name}: {wanted.get(name)} recorded, {found.get(name)} now", file=sys.stderr)
    if different and stored["made_on"] != machine():
        print(f"the values were made on {stored['made_on']}, this is {machine()}: last digits may differ", file=sys.stderr)
    print(f"{len(wanted) - len([n for n in different if n in wanted])} of {len(wanted)} runs are as recorded")
    return 1 if different else 0


if __name__ == "__main__":
    sys.exit(main())
