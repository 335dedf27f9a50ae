"""Exports at work in Python: what was written is loaded and asked for actions."""

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.deploy.check import Runner
from rl_training.deploy.formats.onnx_file import INSTALL
from rl_training.deploy.program import Floats, Safety
from rl_training.deploy.standalone import Policy as Standalone
from rl_training.errors import ConfigError


def numpy_runner(path: Path, safety: Safety) -> Runner:
    """Return a policy.npz at work."""
    policy = Standalone(path)

    def run(observations: Floats, last: Floats) -> tuple[Floats, NDArray[np.int64] | None]:
        found = policy(observations, last if safety.uses_last else None)
        return found if isinstance(found, tuple) else (found, None)

    return run


def onnx_runner(path: Path | bytes, safety: Safety) -> Runner:
    """Return a policy.onnx at work; a ConfigError without onnxruntime."""
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError(f"an ONNX file needs onnx and onnxruntime: {INSTALL}") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = 1  # more only cost time on networks of this size
    session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(observations: Floats, last: Floats) -> tuple[Floats, NDArray[np.int64] | None]:
        given = {"observation": observations, **({"last_action": last} if safety.uses_last else {})}
        action, *outside = session.run(None, given)
        return action, outside[0] if outside else None

    return run


def torch_runner(path: Path, safety: Safety) -> Runner:
    """Return a policy.pt2 at work, one that was just written: reading a file of others may execute what is in it."""
    import torch

    module: Any = torch.export.load(path).module()

    def run(observations: Floats, last: Floats) -> tuple[Floats, NDArray[np.int64] | None]:
        given = [torch.from_numpy(observations.copy()), *([torch.from_numpy(last.copy())] if safety.uses_last else [])]
        found = module(*given)
        return (found[0].numpy(), found[1].numpy()) if isinstance(found, tuple) else (found.numpy(), None)

    return run
