"""Exported policies, read back: verified, and nothing in them is executed."""

import io
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.api.inputs import RowsLike, rows_of
from rl_training.deploy.card import KIND, VERSION
from rl_training.deploy.formats import numpy_file, onnx_file
from rl_training.deploy.standalone import Policy as Standalone
from rl_training.errors import CheckpointError, ConfigError
from rl_training.storage import parse_json, read_files

_FILES = {"numpy": numpy_file.FILES[0], "onnx": onnx_file.FILES[0]}  # formats that are data, not code
_MOST_BYTES = 2**30


class ExportedPolicy:
    """An export that was read back: verified, and nothing in it is executed."""

    def __init__(self, path: str | Path) -> None:
        """Read an export; one that was changed or cut is refused with a CheckpointError."""
        self.path = Path(path)
        files = read_files(self.path, VERSION, KIND)
        self.card = parse_json(files.get("card.json", b""), str(self.path / "card.json"))
        try:
            self.format: str = self.card["format"]
            self._names = tuple(str(one["name"]) for one in self.card["interface"]["observations"])
            self._uses_last = "last_action" in self.card["interface"]["inputs"]
            self._actions = len(self.card["interface"]["actions"])
        except (KeyError, TypeError) as error:
            raise CheckpointError(f"{self.path}: its card does not describe an export: {error}") from None
        self._run = self._loaded(files)

    def _loaded(self, files: Mapping[str, bytes]) -> Any:
        if self.format not in ("numpy", "onnx"):
            return None
        name = _FILES[self.format]
        if name not in files:
            raise CheckpointError(f"{self.path / name}: is missing")
        return (
            _standalone(self.path / name, files[name]) if self.format == "numpy" else _session(self.path / name, files[name])
        )

    def predict(self, observations: RowsLike, last_action: Any = None) -> Any:
        """Return actions for one observation or a batch, or (actions, columns outside); as a mapping by name, too."""
        if self._run is None:
            raise ConfigError(
                f"{self.path}: a {self.format} export is verified, but never executed here; its card.md says how to use it"
            )
        if last_action is not None and not self._uses_last:
            raise ConfigError(f"{self.path}: was exported without limits, so it takes no last action")
        try:
            rows: Any = np.asarray(observations, dtype=np.float32)  # NaN is what an export has a rule for
        except (TypeError, ValueError):
            rows = rows_of(observations, "observation", len(self._names), self._names)
        try:
            return self._run(rows, last_action)
        except ValueError as error:
            raise ConfigError(f"{self.path}: {error}") from None


def load_export(path: str | Path) -> ExportedPolicy:
    """Return an exported policy, verified; what was changed or cut is refused, and nothing in it is executed."""
    return ExportedPolicy(path)


def _standalone(path: Path, content: bytes) -> Standalone:
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            size = sum(entry.file_size for entry in archive.infolist())
        if size > _MOST_BYTES:
            raise CheckpointError(f"{path}: holds {size:,} bytes, at most {_MOST_BYTES:,} are allowed")
        policy = Standalone(io.BytesIO(content))
        policy(np.zeros(len(policy.data["mean"]), dtype=np.float32), np.zeros(len(policy.data["low"]), dtype=np.float32))
    except CheckpointError:
        raise
    except Exception as error:
        raise CheckpointError(f"{path}: is not a policy of this package ({type(error).__name__})") from None
    return policy


def _session(path: Path, content: bytes) -> Any:
    import onnxruntime

    try:
        session = onnxruntime.InferenceSession(content, providers=["CPUExecutionProvider"])
        names = [one.name for one in session.get_inputs()]
        inputs, width = session.get_inputs()[0].shape[1], session.get_outputs()[0].shape[1]
    except Exception as error:
        raise CheckpointError(f"{path}: is not an ONNX file ({type(error).__name__})") from None

    def run(rows: NDArray[np.float32], last_action: Any) -> Any:
        if rows.shape[-1:] != (inputs,):
            raise ValueError(f"an observation has {inputs} numbers, got an array of shape {rows.shape}")
        if last_action is None and "last_action" in names:
            raise ValueError("pass last_action, too: what was really applied before, or NaN if that is not known")
        flat = rows.reshape(-1, inputs)
        given = {"observation": flat}
        if "last_action" in names:
            known = np.asarray(last_action, dtype=np.float32).reshape(-1, width)
            given["last_action"] = np.broadcast_to(known, (len(flat), width)).copy()
        action, *outside = session.run(None, given)
        action = action.reshape(*rows.shape[:-1], -1)
        return (action, outside[0].reshape(rows.shape[:-1])) if outside else action

    return run
