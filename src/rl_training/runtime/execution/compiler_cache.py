"""The compiler behind torch: whether there is one, and where it keeps what it compiled.

That is a folder which nobody else can write, since what lies there is executed. By itself torch uses one in the temporary
directory whose name anybody can guess, and take first.
"""

import atexit
import os
import shutil
import stat
import sys
import tempfile
from pathlib import Path

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def cpp_compiler_available() -> bool:
    """Return whether the C++ compiler that torch would call for the CPU is there."""
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    return shutil.which(os.environ.get("CXX", usual)) is not None


def use_private_cache() -> None:
    """Have torch's compiler keep its files in a folder of the user's own, unless the user has named one."""
    if _VARIABLE not in os.environ:
        folder = _user_folder()
        os.environ[_VARIABLE] = str(folder if folder is not None and _is_private(folder) else _temporary_folder())


def _user_folder() -> Path | None:
    """The folder in the user's cache, made if need be; None where there is no such place."""
    try:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "rl_training" / "compiled"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder


def _is_private(folder: Path) -> bool:
    """Whether a folder is the user's, and only the user can write there."""
    found = folder.lstat()
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK)
    return mine and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _temporary_folder() -> str:
    """A new folder for this process alone."""
    folder = tempfile.mkdtemp(prefix="rl_training-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
