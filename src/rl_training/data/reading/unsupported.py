"""Arrays that are refused by name: labels of discrete actions, and images."""

from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.errors import DatasetError

_MOST_LABELS = 32  # different whole numbers, counted from 0, that are taken as labels of actions


def image_fault(name: str, array: NDArray[Any]) -> str:
    """Return why an array is refused as images; empty if it is not."""
    if array.ndim not in (3, 4):
        return ""
    kind = f"`{name}` has shape {array.shape} and dtype {array.dtype}"
    return f"images are not supported: {kind}; flat vectors (rows, dims) are needed, such as features of the images"


def label_fault(columns: Mapping[str, NDArray[Any]]) -> str:
    """Return why action columns are refused as labels of discrete actions; empty if they are not.

    Labels are truth values, words, or in every column whole numbers that count from 0 and are stored as integers.
    """
    for name, values in columns.items():
        if values.dtype.kind in "bUS" or (values.dtype == object and len(values) and all(map(_is_word, values.tolist()))):
            kind = "truth values" if values.dtype.kind == "b" else f"words such as {str(values.reshape(-1)[0])[:30]!r}"
            return _discrete(f"`{name}` holds {kind}")
    if columns and all(values.dtype.kind in "iu" and _counts_from_zero(values) for values in columns.values()):
        name, values = next(iter(columns.items()))
        return _discrete(f"`{name}` holds whole numbers from 0 to {int(values.max())}, stored as {values.dtype}")
    return ""


def _discrete(evidence: str) -> str:
    return f"discrete actions are not supported: {evidence}; continuous float actions are needed"


def _is_word(value: Any) -> bool:
    if not isinstance(value, str):
        return False
    try:
        float(value.replace(",", "."))
    except ValueError:
        return bool(value.strip())
    return False


def _counts_from_zero(values: NDArray[Any]) -> bool:
    if not values.size or values.min() < 0 or values.max() >= _MOST_LABELS:
        return False
    return len(np.unique(values)) == int(values.max()) + 1


def refuse_labels(columns: Mapping[str, NDArray[Any]], source: str) -> None:
    """Raise a DatasetError if action columns are labels of discrete actions."""
    if fault := label_fault(columns):
        raise DatasetError(f"{source}: {fault}")


def refuse_unsupported(arrays: Mapping[str, NDArray[Any]], source: str) -> None:
    """Raise a DatasetError if fields hold images, or labels of discrete actions."""
    for name in ("observations", "next_observations"):
        if name in arrays and (fault := image_fault(name, arrays[name])):
            raise DatasetError(f"{source}: {fault}")
    refuse_labels({"actions": arrays["actions"]}, source)
