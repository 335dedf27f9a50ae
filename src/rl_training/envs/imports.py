"""Modules that a user asks to import, so that the environments they register exist; never read from a file."""

import importlib
import importlib.util
import sys
from pathlib import Path

from rl_training.errors import ConfigError

_imported: list[str] = []


def imported() -> tuple[str, ...]:
    """Return what has been imported by request, in order."""
    return tuple(_imported)


def import_requested(name: str) -> None:
    """Import a module by its name, as seen from the current directory, or a Python file by its path."""
    try:
        if name.endswith(".py"):
            _import_file(Path(name))
        else:
            if "" not in sys.path and str(Path.cwd()) not in sys.path:
                sys.path.insert(0, str(Path.cwd()))
            importlib.import_module(name)
    except Exception as error:  # the user's own code
        text = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
        raise ConfigError(f"--import {name}: {reason}") from error
    if name not in _imported:
        _imported.append(name)


def _import_file(path: Path) -> None:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[path.stem] = module
    spec.loader.exec_module(module)
