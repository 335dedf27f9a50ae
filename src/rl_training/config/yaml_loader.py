"""Safe YAML with line numbers: plain values only, `3e-4` is a float, duplicates, anchors and tags are refused."""

import re
from collections.abc import Hashable
from typing import Any

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from rl_training.errors import ConfigError

MAX_BYTES = 2**20
MAX_DEPTH = 30

Path = tuple[int | str, ...]

_INTEGER = re.compile(r"[-+]?(0|[1-9][0-9]{0,30}(_[0-9]{1,9}){0,9})")
_FLOAT = re.compile(r"[-+]?((0|[1-9][0-9]*(_[0-9]+)*)(\.[0-9]*)?|\.[0-9]+)([eE][-+]?[0-9]+)?")
_PLAIN_TAGS = tuple(
    f"tag:yaml.org,2002:{name}" for name in ("map", "seq", "str", "int", "float", "bool", "null", "timestamp")
)


class _Loader(yaml.SafeLoader):
    """Composes nodes without aliases; scalars are read by `scalar_value`, not by YAML 1.1's rules."""

    def compose_node(self, parent: Node | None, index: Any) -> Node | None:
        event = self.peek_event()  # type: ignore[no-untyped-call]
        if getattr(event, "anchor", None) is not None:  # an alias names an anchor too
            raise ConfigError(f"line {event.start_mark.line + 1}: anchors and aliases are not allowed")
        return super().compose_node(parent, index)


def parse_yaml(text: str, where: str) -> tuple[Any, dict[Path, int]]:
    """Return the value of a YAML text and the line of each key path; refuse anything but plain data."""
    if len(text.encode()) > MAX_BYTES:
        raise ConfigError(f"{where}: is larger than {MAX_BYTES:,} bytes")
    try:
        loader = _Loader(text.removeprefix("\ufeff"))
        node = loader.get_single_node()
        lines: dict[Path, int] = {}
        return (_value(node, (), lines, where) if node is not None else {}), lines
    except ConfigError as error:
        raise ConfigError(str(error) if str(error).startswith(where) else f"{where}: {error}") from None
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = f":{mark.line + 1}" if mark else ""
        raise ConfigError(f"{where}{line}: is not valid YAML: {getattr(error, 'problem', None) or error}") from None
    except RecursionError:
        raise ConfigError(f"{where}: is nested too deeply") from None


def parse_scalar(text: str) -> Any:
    """Return the value of a command-line override, read like a YAML value."""
    return parse_yaml(text, "override")[0] if text.strip() else ""


def _value(node: Node, path: Path, lines: dict[Path, int], where: str) -> Any:
    line = node.start_mark.line + 1
    lines.setdefault(path, line)
    if len(path) > MAX_DEPTH:
        raise ConfigError(f"{where}:{line}: is nested too deeply")
    if node.tag not in _PLAIN_TAGS:
        raise ConfigError(f"{where}:{line}: tags are not allowed")
    if isinstance(node, MappingNode):
        result: dict[Hashable, Any] = {}
        for key_node, value_node in node.value:
            key = key_node.value if isinstance(key_node, ScalarNode) else None
            key_line = key_node.start_mark.line + 1
            if key is None or key in result:
                fault = "keys must be plain words" if key is None else f"duplicate key `{key}`"
                raise ConfigError(f"{where}:{key_line}: {fault}")
            lines[(*path, key)] = key_line
            result[key] = _value(value_node, (*path, key), lines, where)
        return result
    if isinstance(node, SequenceNode):
        return [_value(item, (*path, index), lines, where) for index, item in enumerate(node.value)]
    quoted = isinstance(node, ScalarNode) and node.style in ("'", '"', "|", ">")
    return node.value if quoted else scalar_value(node.value)


def scalar_value(text: str) -> Any:
    """Return the value of an unquoted scalar; ambiguous ones (`on`, `010`, `12:30`) stay text."""
    if text in ("", "null", "~"):
        return None
    if text in ("true", "false"):
        return text == "true"
    if _INTEGER.fullmatch(text):
        return int(text)
    if _FLOAT.fullmatch(text):
        return float(text)
    if text in (".inf", "-.inf", ".nan"):
        return float(text.replace(".", ""))
    return text


def dump_yaml(values: Any) -> str:
    """Return plain values as YAML that `parse_yaml` reads back unchanged."""
    return yaml.dump(values, Dumper=_Dumper, sort_keys=False)


class _Dumper(yaml.SafeDumper):
    """Quotes every string that `scalar_value` would not read back unchanged."""


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=None if scalar_value(text) == text else "'")


_Dumper.add_representer(str, _represent_text)
