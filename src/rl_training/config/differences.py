"""In which settings configs differ, and a setting as text."""

from collections.abc import Mapping, Sequence
from typing import Any

from rl_training.config.base import flat


def differing(records: Sequence[Mapping[str, Any]]) -> dict[str, list[Any]]:
    """Return the settings in which configs differ, each with the value of every config; None where it has none."""
    configs = [flat(record) for record in records]
    keys = dict.fromkeys(key for config in configs for key in config)
    rows = {key: [config.get(key) for config in configs] for key in keys}
    return {key: _distinct_parts(values) for key, values in rows.items() if any(value != values[0] for value in values)}


def _distinct_parts(values: list[Any]) -> list[Any]:
    """Values of a setting; of lists of groups, such as the sources of data, only the keys in which any two groups differ."""
    groups = [group for value in values if _is_list_of_groups(value) for group in value]
    keys = dict.fromkeys(key for group in groups for key in group)
    told = [key for key in keys if any(group.get(key) != groups[0].get(key) for group in groups)] or list(keys)
    return [
        [{key: group[key] for key in told if group.get(key) is not None} for group in value]
        if _is_list_of_groups(value)
        else value
        for value in values
    ]


def _is_list_of_groups(value: Any) -> bool:
    return isinstance(value, list) and bool(value) and all(isinstance(one, Mapping) for one in value)


def setting_text(value: Any) -> str:
    """Return a setting as it is written in a config, a list of groups without brackets."""
    if _is_list_of_groups(value):
        return "; ".join(_as_yaml(group)[1:-1] for group in value)
    return _as_yaml(value)


def _as_yaml(value: Any) -> str:
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{key}: {_as_yaml(one)}" for key, one in value.items()) + "}"
    if isinstance(value, list | tuple):
        return "[" + ", ".join(map(_as_yaml, value)) + "]"
    return {None: "null", True: "true", False: "false"}[value] if value is None or isinstance(value, bool) else str(value)
