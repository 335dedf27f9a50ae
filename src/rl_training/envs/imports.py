"""Modules that a user asks to import, so that the environments they register exist; never read from a file."""

import importlib
import sys
from collections.abc import Iterable
from pathlib import Path

from rl_training.errors import ConfigError

_imported: list[str] = []


def imported() -> tuple[str, ...]:
    """Return what has been imported by request, in order."""
    return tuple(_imported)


def import_flags(modules: Iterable[str]) -> str:
    """Return the options that import modules, each after a space, for a command that is suggested."""
    return "".join(f" --import {module}" for module in modules)


def import_requested(name: str) -> None:
    """Import a module by its name, as seen from the current directory, or a Python file by its path."""
    before = list(sys.path)
    try:
        if name.endswith(".py"):
            _import_file(Path(name))
        else:
            _find_first(Path.cwd())
            importlib.import_module(name)
    except Exception as error:  # the user's own code
        sys.path[:] = before  # the folder of a refused file must not hide modules from what is imported later
        text = str(error).strip().splitlines()
        reason = f"{type(error).__name__}: {text[0]}" if text else type(error).__name__
        raise ConfigError(f"--import {name}: {reason}") from error
    if name not in _imported:
        _imported.append(name)


def _import_file(path: Path) -> None:
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}")
    _find_first(path.resolve().parent)
    module = importlib.import_module(path.stem)
    found = getattr(module, "__file__", None)
    if found is None or not Path(found).samefile(path):
        raise ImportError(f"another module is called {path.stem!r}; rename the file")


def _find_first(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
