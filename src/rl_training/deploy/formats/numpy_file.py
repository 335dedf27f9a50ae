"""`numpy`: the numbers in policy.npz, and policy.py, a few lines that need numpy alone."""

import io
from pathlib import Path

import numpy as np

from rl_training.deploy import standalone
from rl_training.deploy.program import Program

FILES = ("policy.npz", "policy.py")


def write(program: Program, directory: Path) -> None:
    """Write the files of a policy."""
    data = io.BytesIO()
    np.savez(data, allow_pickle=False, **program.arrays())
    (directory / "policy.npz").write_bytes(data.getvalue())
    (directory / "policy.py").write_bytes(Path(standalone.__file__).read_bytes())
