"""Observations as they are typed: JSON, checked before a policy is loaded."""

import json
from typing import Any

from rl_training.errors import ConfigError


def parse_observation(text: str) -> Any:
    """Return one observation or a list of them, each a list of numbers or a mapping from names to numbers, also nested."""
    try:
        value = json.loads(text, object_pairs_hook=_unique)
    except ConfigError:
        raise
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, list | dict) or not value:
        shapes = """'[1.0, 0.0, 0.0]', or a mapping by name, such as '{"T1": 60}'"""
        raise ConfigError(f"--obs {text[:60]!r}: must be a JSON list of numbers, such as {shapes}")
    rows = value if isinstance(value, list) and isinstance(value[0], list | dict) else [value]
    for row in rows:
        alike = type(row) is type(rows[0]) and (isinstance(row, dict) or len(row) == len(rows[0]))
        if not alike or not (_holds_numbers(row) if isinstance(row, dict) else all(map(_is_number, row))):
            raise ConfigError(f"--obs {text[:60]!r}: must hold numbers only, in rows of one length")
    return value


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _holds_numbers(value: Any) -> bool:
    """Whether a value is a number, or nested lists and mappings of numbers alone, as some environments return them."""
    parts = value.values() if isinstance(value, dict) else value if isinstance(value, list) else None
    return _is_number(value) if parts is None else all(map(_holds_numbers, parts))


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """A JSON object; a name that appears twice is refused."""
    found = dict(pairs)
    if len(found) < len(pairs):
        raise ConfigError("--obs: has the same name twice in one observation")
    return found
