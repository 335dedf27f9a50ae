"""The compiler behind torch: whether there is one, and where it caches what it compiled.

The cache must be a folder that only the user can write to, because its contents are executed. By default torch uses one in
the temporary directory, whose name is predictable, so that another user could create it first.
"""

import atexit
import hashlib
import os
import shutil
import stat
import sys
import tempfile
from functools import cache
from pathlib import Path

import torch

_VARIABLE = "TORCHINDUCTOR_CACHE_DIR"


def cpp_compiler_available() -> bool:
    """Return whether the C++ compiler that torch would call for the CPU is installed."""
    return _cpp_compiler() is not None


def _cpp_compiler() -> str | None:
    usual = {"darwin": "clang++", "win32": "cl"}.get(sys.platform, "g++")
    return shutil.which(os.environ.get("CXX", usual))


def use_private_cache() -> None:
    """Make torch's compiler cache its files in a private folder of the user, unless the user has chosen one."""
    if _VARIABLE not in os.environ:
        folder = _user_folder()
        os.environ[_VARIABLE] = str(folder if folder is not None and _is_private(folder) else _temporary_folder())


@cache
def remember_vector_probes() -> None:
    """Make torch's compiler remember, in its cache, for which vector instructions it can build code.

    It would load a small library for each of them in a new process at every start, a second in all. Whether the processor
    has the instructions is still looked up, and a failure is not remembered.
    """
    from torch._inductor.cpu_vec_isa import VecISA

    probe, compiler, folder = VecISA.check_build, _cpp_compiler(), os.environ.get(_VARIABLE)
    if compiler is None or folder is None:
        return
    found = os.stat(compiler)
    machinery = (torch.__version__, sys.executable, compiler, found.st_size, found.st_mtime_ns)

    def check_build(isa: VecISA, code: str) -> bool:
        what = repr((*machinery, isa.build_arch_flags(), code))
        stamp = Path(folder, f"probed-{hashlib.sha256(what.encode()).hexdigest()[:32]}")
        if not stamp.exists():
            if not probe(isa, code):
                return False
            stamp.touch()
        return True

    VecISA.check_build = check_build  # type: ignore[method-assign, assignment]


def _user_folder() -> Path | None:
    """The folder in the user's cache directory, created if needed; None where that is not possible."""
    try:
        base = os.environ.get("XDG_CACHE_HOME")
        folder = (Path(base) if base else Path.home() / ".cache") / "rl_training" / "compiled"
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except (OSError, RuntimeError):
        return None
    return folder


def _is_private(folder: Path) -> bool:
    """Whether a folder belongs to the user and only the user can write to it."""
    found = folder.lstat()
    mine = stat.S_ISDIR(found.st_mode) and found.st_uid == os.getuid() and os.access(folder, os.W_OK | os.X_OK)
    return mine and not found.st_mode & (stat.S_IWGRP | stat.S_IWOTH)


def _temporary_folder() -> str:
    """A new folder for this process, removed when it exits."""
    folder = tempfile.mkdtemp(prefix="rl_training-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder
