"""A policy of a run as files that run without this package, checked before they are there."""

import contextlib
import platform
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np

from rl_training.api.data_report import TRAINED_ON, data_report, dataset_of
from rl_training.api.policy import Policy
from rl_training.data.offline_dataset import TransitionDataset
from rl_training.data.row_blocks import column_range
from rl_training.deploy import card as cards
from rl_training.deploy import ope as opes
from rl_training.deploy import usage
from rl_training.deploy.card import KIND, VERSION
from rl_training.deploy.check import Check, Runner, compare, latency, probes
from rl_training.deploy.compiled import CompiledHeader
from rl_training.deploy.formats import c_header, numpy_file, onnx_file, torch_file
from rl_training.deploy.options import ExportOptions
from rl_training.deploy.program import Floats, Program, program_of
from rl_training.deploy.running import numpy_runner, onnx_runner, torch_runner
from rl_training.errors import ConfigError, DatasetError
from rl_training.models.threads import one_thread
from rl_training.storage import canonical_json, staged_directory, storage_error, write_files

_LIBRARIES = {"numpy": ("numpy",), "onnx": ("onnx", "onnxruntime"), "torch": ("torch",), "c": ()}
WRITERS = {"numpy": numpy_file, "onnx": onnx_file, "torch": torch_file, "c": c_header}


@dataclass(frozen=True)
class Export:
    """An export on disk: its directory and its card."""

    path: Path
    card: Mapping[str, Any]


def export_policy(
    run: str | Path | Policy,
    out: str | Path,
    *,
    format: str = "numpy",
    member: int | None = None,
    which: str = "latest",
    data: Any = None,
    ope: Mapping[str, Any] | None = None,
    **limits: Any,
) -> Export:
    """Write the deterministic policy of a run, checked against `predict`, with a model card: completely or not at all.

    By default it is the best member by its last evaluation. `data` gives the range of the observations and figures for the
    card, by default the data of the run, if that can be read or made again. `ope` is an off-policy evaluation for the card:
    the report of this policy, or one whose `policies` have it. `limits` are the fields of `ExportOptions`.
    """
    options, target = ExportOptions.of(limits), Path(out)
    if format not in WRITERS:
        raise ConfigError(f"--format {format}: must be one of {', '.join(WRITERS)}")
    if not str(out) or target.exists() or target.is_symlink():
        raise ConfigError(f"{target}: already exists; choose another --out")
    policy = run if isinstance(run, Policy) else Policy.load(run, device="cpu", which=which)
    chosen = policy.chosen_member(member)
    where = None if policy.checkpoint is None else policy.checkpoint.path
    evaluated = None if ope is None else opes.entry_of(ope, where, policy.learner.step, chosen)
    dataset, origin = dataset_of(policy, data)
    seen = policy.recorded_range if dataset is None else _range(policy, dataset)
    if dataset is None and seen is not None:
        origin = f"the checkpoint, since {origin}"
    safety = options.safety(policy.spaces, seen)
    program = program_of(policy.learner.model, chosen, policy.spaces, policy.transforms, safety)
    files, checked = _made(policy, chosen, program, format, seen)
    card = {
        "format": format,
        "files": list(files),
        "usage": usage.sentence(program, format),
        "example": usage.example(program, format),
        **_origin(policy, chosen, member, dataset, origin, evaluated),
        "ope": evaluated,
        "limits": options.texts(),
        "interface": cards.interface(program, seen, _computed(policy)),
        "check": checked,
        "machine": f"{_processor()}, one thread",
        "versions": {name: metadata.version(name) for name in ("rl-training", *_LIBRARIES[format])},
    }
    files |= {"card.json": canonical_json(card), "card.md": cards.markdown(card).encode()}
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise storage_error(target, 0, error) from error
    with staged_directory(target) as stage:
        write_files(stage, files, VERSION, KIND)
    return Export(target, card)


def _processor() -> str:
    """The name of the processor, where the system tells it."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.machine()


def _made(
    policy: Policy, member: int, program: Program, format: str, seen: tuple[Floats, Floats] | None
) -> tuple[dict[str, bytes], dict[str, Any] | None]:
    """The files of a format, and what their check found; None without a compiler."""
    with tempfile.TemporaryDirectory(prefix="rl-training-export-") as name:
        folder = Path(name)
        WRITERS[format].write(program, folder)
        check, took = _checked(policy, member, program, folder / WRITERS[format].FILES[0], seen)
        files = {name: (folder / name).read_bytes() for name in WRITERS[format].FILES}
    return files, None if check is None else cards.checked(check, took)


def _range(policy: Policy, dataset: TransitionDataset) -> tuple[Floats, Floats]:
    """The smallest and the largest value of each observation; data in other units than those of the training is refused."""
    spaces, transforms = policy.spaces, policy.transforms
    if dataset.observation_dim != spaces.observation_dim:
        raise DatasetError(
            f"the data has {dataset.observation_dim} observations, the policy {spaces.observation_dim}; name its own"
        )
    low, high = (np.asarray(end, dtype=np.float32) for end in column_range(dataset.observations))
    if np.isfinite(transforms.observation_limit):
        mean, slack = transforms.observation_mean, 1e-3 * np.abs(transforms.observation_mean)
        for column in np.flatnonzero((mean < low - slack) | (mean > high + slack)):
            name = spaces.observation_names[column] if spaces.observation_names else f"observation {column}"
            raise DatasetError(
                f"`{name}` is {low[column]:g} to {high[column]:g} in the data, and was {mean[column]:g} on average in the "
                "training; check the units and the order"
            )
    return low, high


def _checked(
    policy: Policy, member: int, program: Program, file: Path, seen: tuple[Floats, Floats] | None
) -> tuple[Check | None, dict[str, float] | None]:
    """What a check of the files found, and how long one observation takes; None without a compiler."""
    compared = partial(
        compare, predict=partial(policy.predict, member=member), value=partial(policy.q, member=member), seen=seen
    )
    if file.suffix == ".h":
        try:
            compiled = CompiledHeader(file, program)
        except FileNotFoundError:
            return None, None
        return compared(program, compiled), compiled.latency(*probes(program, seen))
    makers = {".npz": numpy_runner, ".onnx": onnx_runner, ".pt2": torch_runner}
    runner: Runner = makers[file.suffix](file, program.safety)
    found = compared(program, runner)
    with one_thread():
        return found, latency(runner, program)


def _computed(policy: Policy) -> dict[str, str]:
    """The columns that a column map computes and names, with what they are computed from."""
    maps = [part.columns for part in getattr(policy.config.algo_kwargs, "dataset", None) or () if part.columns is not None]
    entries = [entry for one in maps for entry in (*one.observations, *one.actions)]
    return {name: text for entry in entries if not isinstance(entry, str) for name, text in entry.items()}


def _source(policy: Policy) -> str | None:
    """Where the data of the run came from."""
    parts = getattr(policy.config.algo_kwargs, "dataset", None) or ()
    return ", ".join(str(part.path or part.run or f"a recipe, {part.kind}") for part in parts) or None


def _origin(
    policy: Policy,
    member: int,
    asked: int | None,
    dataset: TransitionDataset | None,
    origin: str,
    ope: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """What the card says of the policy, its data, and how good it is."""
    record, checkpoint = policy.members[member], policy.checkpoint
    facts = {"algo": policy.config.algo, "step": policy.learner.step, "member": member, "seed": record.seed}
    facts["members"] = len(policy.members)
    if len(policy.members) > 1:
        why = f"the best by its {policy.best_by}" if policy.best_by else "the first, since none was evaluated"
        facts["chosen"] = why if asked is None else "asked for"
    facts |= {f"knob {name}": value for name, value in record.knobs.items()}
    if checkpoint is not None and checkpoint.env_step is not None:
        facts["environment steps"] = checkpoint.env_step
    environment = policy.config.final_environment
    data: dict[str, Any] = {"environment": None if environment is None else str(environment)}
    data["data"] = _source(policy)
    data["fingerprint of the data"] = None if checkpoint is None else checkpoint.state.get("dataset_fingerprint")
    data["ranges and figures from"] = origin
    figures = []
    if record.last_return is not None:
        figures.append(f"Its last evaluation in {data['environment']}: a return of {record.last_return:.5g}.")
    else:
        figures.append("It was never evaluated in an environment.")
    concerns: list[str] = []
    if dataset is not None:
        data |= {"rows": len(dataset), "episodes": len(dataset.episode_spans[0])}
        report = data_report(policy, dataset)
        row = report["members"][member]
        own = " (those it learned from included)" if origin == TRAINED_ON else ""
        where = f"{report['rows']:,} rows of {origin}{own}"
        concerns = [f"on {where}: {one['text']}" for one in row["concerns"]]  # training had figures of held-out rows
        if "action_distance" in row["figures"]:
            away = f"{row['figures']['action_distance']:.1%} of the range from the logged actions on average"
            figures.append(f"On {where} it is {away}.")
    return {"policy": facts, "data": data, "figures": [*figures, *opes.lines(ope)], "concerns": concerns}
