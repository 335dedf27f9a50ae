"""Exported policies, read back: verified, and nothing in them is executed."""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.api.inputs import RowsLike, is_named, rows_of
from rl_training.deploy.card import KIND, VERSION
from rl_training.deploy.formats import c_header, numpy_file, onnx_file, torch_file
from rl_training.deploy.standalone import Policy as Standalone
from rl_training.deploy.verify import MOST_BYTES, numpy_policy, onnx_policy
from rl_training.errors import CheckpointError, ConfigError
from rl_training.storage import parse_json, read_files

_FILES = {"numpy": numpy_file.FILES, "onnx": onnx_file.FILES, "torch": torch_file.FILES, "c": c_header.FILES}


class ExportedPolicy:
    """An export that was read back: verified, and nothing in it is executed."""

    def __init__(self, path: str | Path) -> None:
        """Read an export; one that was changed or cut is refused with a CheckpointError."""
        self.path = Path(path)
        files = read_files(self.path, VERSION, KIND, MOST_BYTES)
        self.card = parse_json(files.get("card.json", b""), str(self.path / "card.json"))
        try:
            self.format = str(self.card["format"])
            face = self.card["interface"]
            self._names = tuple(str(one["name"]) for one in face["observations"])
            self._uses_last = "last_action" in face["inputs"]
            expected = {*_FILES[self.format], "card.json", "card.md"}
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{self.path}: its card does not describe an export: {error}") from None
        if set(files) != expected:
            raise CheckpointError(f"{self.path}: a {self.format} export has {sorted(expected)}, not {sorted(files)}")
        self._run = self._loaded(files)

    def _loaded(self, files: Mapping[str, bytes]) -> Any:
        """The policy at work, where its format is data and not code."""
        if self.format not in ("numpy", "onnx"):
            return None
        name = _FILES[self.format][0]
        load = _standalone if self.format == "numpy" else _session
        try:
            return load(files[name], self.card["interface"])
        except ConfigError:
            raise
        except Exception as error:  # whatever the libraries raise on what is not a policy
            told = " ".join(str(error).split())[:100]
            raise CheckpointError(f"{self.path / name}: is not a policy of this package ({told})") from None

    def predict(self, observations: RowsLike, last_action: Any = None) -> Any:
        """Return actions for one observation or a batch, or (actions, columns outside); as a mapping by name, too."""
        if self._run is None:
            raise ConfigError(
                f"{self.path}: a {self.format} export is verified, but never executed here; its card.md says how to use it"
            )
        if last_action is not None and not self._uses_last:
            raise ConfigError(f"{self.path}: was exported without limits, so it takes no last action")
        named = is_named(observations) or (isinstance(observations, list | tuple) and any(map(is_named, observations)))
        rows: Any = observations
        if named:  # NaN is what an export has a rule for
            rows = rows_of(observations, "observation", len(self._names), self._names, finite=False)
        try:
            return self._run(np.asarray(rows, dtype=np.float32), last_action)
        except (TypeError, ValueError) as error:
            raise ConfigError(f"{self.path}: {error}") from None


def load_export(path: str | Path) -> ExportedPolicy:
    """Return an exported policy, verified; what was changed or cut is refused, and nothing in it is executed."""
    return ExportedPolicy(path)


def _standalone(content: bytes, face: Mapping[str, Any]) -> Standalone:
    numpy_policy(content, face)
    policy = Standalone(io.BytesIO(content))
    policy(np.zeros(len(face["observations"])), np.zeros(len(face["actions"])))
    return policy


def _session(content: bytes, face: Mapping[str, Any]) -> Any:
    onnx_policy(content, face)
    try:
        import onnxruntime
    except ImportError:
        raise ConfigError(f"an ONNX file needs onnx and onnxruntime: {onnx_file.INSTALL}") from None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads, options.log_severity_level = 1, 4
    session = onnxruntime.InferenceSession(content, options, providers=["CPUExecutionProvider"])
    inputs, width, uses_last = len(face["observations"]), len(face["actions"]), "last_action" in face["inputs"]

    def run(rows: NDArray[np.float32], last_action: Any) -> Any:
        if rows.shape[-1:] != (inputs,):
            raise ValueError(f"an observation has {inputs} numbers, got an array of shape {rows.shape}")
        if last_action is None and uses_last:
            raise ValueError("pass last_action, too: what was really applied before, or NaN if that is not known")
        flat = rows.reshape(-1, inputs)
        given = {"observation": flat}
        if uses_last:
            known = np.broadcast_to(np.asarray(last_action, dtype=np.float32), (*rows.shape[:-1], width))
            given["last_action"] = known.reshape(-1, width).copy()
        action, *outside = session.run(None, given)
        action = action.reshape(*rows.shape[:-1], width)
        return (action, outside[0].reshape(rows.shape[:-1])) if outside else action

    return run
