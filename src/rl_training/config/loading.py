"""Configurations from values, packaged names and YAML files, fully validated; free of torch."""

from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from rl_training.config.base import describe_faults
from rl_training.config.blocks import dataset_parts
from rl_training.config.run import RunConfig
from rl_training.config.yaml_loader import parse_scalar, parse_yaml
from rl_training.errors import ConfigError, did_you_mean
from rl_training.registry import REGISTRY, get_spec

Lines = Mapping[Any, int | str]
"""Where a key path was set: a line of the file, or an option of the command line."""


def make_config(values: Mapping[str, Any], where: str = "config", lines: Lines | None = None) -> RunConfig[Any]:
    """Return the checked configuration, or one ConfigError with a line for every fault."""
    if not isinstance(values, Mapping):
        raise ConfigError(f"{where}: must be a mapping of settings")
    raw = dict(values)
    if not isinstance(raw.get("algo"), str):
        raise ConfigError(f"{where}: `algo` is required: the id of an algorithm, such as iql")
    try:
        spec = get_spec(raw["algo"])
    except ConfigError as error:
        raise ConfigError(f"{_location(where, lines, ('algo',))}: {error}") from None
    raw.setdefault("algo_kwargs", {})
    if raw["algo_kwargs"] is None:
        raw["algo_kwargs"] = {}
    if not spec.takes_data and isinstance(raw["algo_kwargs"], Mapping) and raw["algo_kwargs"].get("dataset"):
        location = _location(where, lines, ("algo_kwargs", "dataset"))
        raise ConfigError(f"{location}: `algo_kwargs.dataset`: {spec.id} learns online and takes no dataset; try rlpd")
    schema = RunConfig[spec.config]  # type: ignore[name-defined]
    try:
        return schema.model_validate(raw)
    except ValidationError as error:
        faults = describe_faults(schema, error)
        text = dict.fromkeys(f"{_location(where, lines, path)}: {fault}" for path, fault in faults)
        raise ConfigError("\n".join(text)) from None


def _location(where: str, lines: Lines | None, path: Sequence[int | str]) -> str:
    """`file:line` of a key path, or of its nearest parent in the file; or the option that set it."""
    for length in range(len(path), 0, -1):
        if lines and tuple(path[:length]) in lines:
            found = lines[tuple(path[:length])]
            return found if isinstance(found, str) else f"{where}:{found}"
    return where


def packaged_configs() -> dict[str, str]:
    """Return the YAML texts of the packaged configs by name, such as `iql/pendulum`."""
    root = resources.files("rl_training") / "assets" / "configs"
    found: dict[str, str] = {}
    for folder in sorted(root.iterdir(), key=lambda entry: entry.name):
        texts = {file.name.removesuffix(".yaml"): file for file in folder.iterdir() if file.name.endswith(".yaml")}
        found |= {f"{folder.name}/{name}": texts[name].read_text(encoding="utf-8") for name in sorted(texts)}
    return found


def load_config(
    name: str,
    overrides: Sequence[str] = (),
    extra: Mapping[str, Any] | None = None,
    paths: Sequence[str] = (),
    reading: Mapping[str, Any] | None = None,
) -> RunConfig[Any]:
    """Return the config of an algorithm id, a packaged name or a YAML file.

    `paths` replace the dataset, `reading` says how its files are read; `key.path=value` overrides are applied in order, then
    `extra`.
    """
    text, where = config_text(name)
    values, lines = parse_yaml(text, where)
    if not isinstance(values, dict):
        raise ConfigError(f"{where}: must be a mapping of settings")
    if paths:
        _set_dataset(values, list(paths), dict(reading or {}))
    places: dict[Any, int | str] = dict(lines)
    for override in overrides:
        apply_override(values, override)
        places[tuple(override.partition("=")[0].split("."))] = f"--set {override}"
    if reading and not paths:  # about files that the config or an override names
        _set_dataset(values, [], dict(reading))
    values.update(extra or {})
    return make_config(values, where, places)


def config_text(name: str) -> tuple[str, str]:
    """Return the YAML of an algorithm alone, of a packaged name or of a file, and what to call it in messages."""
    if name in REGISTRY and not Path(name).is_file():
        return f"algo: {name}", name
    packaged = packaged_configs()
    if name in packaged:
        return packaged[name], f"{name} (packaged)"
    path = Path(name)
    if not path.is_file():
        hint = did_you_mean(name, [*packaged, *REGISTRY])
        raise ConfigError(f"{name}: neither an algorithm, a packaged config nor a file.{hint} See `rl-training list`")
    try:
        return path.read_text(encoding="utf-8"), name
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{name}: cannot be read: {error}") from error


def _set_dataset(values: dict[str, Any], paths: list[str], reading: dict[str, Any]) -> None:
    """Name the files of the dataset, or change how the files that are named already are read."""
    kwargs = values.get("algo_kwargs") or {}
    if not isinstance(kwargs, Mapping):
        return  # refused by the schema
    kwargs = dict(kwargs)
    if (limit := reading.pop("max_bytes", None)) is not None:
        kwargs["max_dataset_bytes"] = limit
    parts = [{"path": paths[0] if len(paths) == 1 else paths}] if paths else dataset_parts(kwargs.get("dataset"))
    if not isinstance(parts, list) or not all(isinstance(part, Mapping) for part in parts):
        return
    if reading and not any(part.get("path") for part in parts):
        option = next(iter(reading)).replace("_", "-")
        raise ConfigError(f"--{option} says how to read files, and the dataset names none: pass --dataset too")
    parts = [{**part, **reading} if part.get("path") else dict(part) for part in parts]
    kwargs["dataset"] = parts[0] if len(parts) == 1 else parts
    values["algo_kwargs"] = kwargs


def apply_override(values: dict[str, Any], override: str) -> None:
    """Set `key.path=value` in nested settings, the value read like YAML."""
    key, sign, text = override.partition("=")
    if not sign or not all(key.split(".")):
        raise ConfigError(f"--set {override!r}: must look like key.path=value")
    *parents, last = key.split(".")
    group = values
    for parent in parents:
        child = group.setdefault(parent, {})
        if not isinstance(child, dict):
            raise ConfigError(f"--set {override!r}: `{parent}` is {child!r}, not a group of settings")
        group = child
    group[last] = parse_scalar(text)
