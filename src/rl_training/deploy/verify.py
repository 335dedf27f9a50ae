"""That the files of an export are a policy of this package, found out without running them."""

import io
import json
import math
import zipfile
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.deploy.formats.onnx_file import INSTALL
from rl_training.errors import ConfigError

MOST_BYTES = 2**28  # of all files
_MOST_NUMBERS = 2**24  # in a result of the policy for one observation
_MOST_PARTS = 1000  # arrays, or operations
_OPERATIONS = {
    *(
        "Abs",
        "Add",
        "And",
        "ArgMax",
        "Cast",
        "Concat",
        "Div",
        "GatherElements",
        "Greater",
        "GreaterOrEqual",
        "IsInf",
        "IsNaN",
    ),
    *("LayerNormalization", "LessOrEqual", "MatMul", "Max", "Min", "Mul", "Not", "Or", "Relu", "Sigmoid", "Slice", "Squeeze"),
    *("Sub", "Tanh", "Unsqueeze", "Where"),
}


def numpy_policy(content: bytes, face: Mapping[str, Any]) -> None:
    """Raise a ValueError unless an npz file is the policy that the interface of a card describes."""
    data = _arrays(content)
    names, actions = ([one["name"] for one in face[kind]] for kind in ("observations", "actions"))
    inputs, count, learned = len(names), len(actions), len(data["place"])
    _need(data["observation_names"].tolist() == names and data["action_names"].tolist() == actions, "the names of the card")
    _need(bool(data["uses_last"]) == ("last_action" in face["inputs"]), "the inputs of the card")
    _need(bool(data["flag"]) == ("outside" in face["outputs"]), "the outputs of the card")
    shapes: dict[str, tuple[int, ...]] = dict.fromkeys(("mean", "std", "seen_low", "seen_high"), (inputs,))
    shapes |= dict.fromkeys(("low", "high", "change", "middle", "half_range"), (count,)) | {"place": (learned, count)}
    for name, shape in shapes.items():
        _need(data[name].shape == shape and data[name].dtype == np.float32, f"a legal {name}")
    for name in ("low", "high"):
        told = np.asarray([one[name] for one in face["actions"]], dtype=np.float32)
        _need(np.allclose(data[name], told, rtol=1e-5, atol=0.0), "the ranges of the card")
    candidates = data.get("candidates", np.zeros((1, 0), dtype=np.float32))
    _need(candidates.ndim == 2 and candidates.shape[1] in (0, learned), "legal candidates")
    _network(data, "actor", inputs + candidates.shape[1], learned, len(candidates))
    for number in range(_small(data["critics"])):
        _network(data, f"critic{number}", inputs + learned, 1, len(candidates))


def _arrays(content: bytes) -> dict[str, NDArray[Any]]:
    """The arrays of an npz file as this package writes it: not compressed, each as long as its header says, no objects."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        entries = archive.infolist()
        _need(len(entries) <= _MOST_PARTS, "few arrays")
        for entry in entries:
            _need(entry.compress_type == zipfile.ZIP_STORED and entry.file_size <= len(content), "plain arrays")
            with archive.open(entry) as stream:
                _need(np.lib.format.read_magic(stream) == (1, 0), "plain arrays")
                shape, _, kind = np.lib.format.read_array_header_1_0(stream)
                size = stream.tell() + math.prod(shape) * kind.itemsize
                _need(kind.kind in "fibU" and size == entry.file_size, "arrays of the stated size")
    with np.load(io.BytesIO(content), allow_pickle=False) as file:
        return dict(file)


def _network(data: Mapping[str, NDArray[Any]], name: str, inputs: int, outputs: int, rows: int) -> None:
    """Raise a ValueError unless the layers of a perceptron fit together."""
    layers = _small(data[f"{name}.layers"])
    for number in range(layers):
        weight, bias = data[f"{name}.{number}.weight"], data[f"{name}.{number}.bias"]
        _need(weight.dtype == bias.dtype == np.float32 and weight.shape == (inputs, len(bias)), "layers that fit")
        _need(bool(np.isfinite(weight).all() and np.isfinite(bias).all()), "finite weights")
        inputs = len(bias)
        _need(rows * inputs <= _MOST_NUMBERS, "a size that can be computed")
    _need(layers > 0 and inputs >= outputs, "layers that fit")


def _small(value: NDArray[Any]) -> int:
    """A number of parts."""
    _need(value.shape == () and value.dtype.kind == "i" and 0 <= int(value) <= _MOST_PARTS, "few parts")
    return int(value)


def _need(condition: bool, what: str) -> None:
    if not condition:
        raise ValueError(f"it does not have {what}")


def onnx_policy(content: bytes, face: Mapping[str, Any]) -> None:
    """Raise a ValueError unless an ONNX file is the policy that a card describes: plain operations of bounded size."""
    try:
        import onnx
    except ImportError:
        raise ConfigError(f"an ONNX file needs onnx and onnxruntime: {INSTALL}") from None
    model = onnx.load_model_from_string(content)
    graph, kinds = model.graph, onnx.AttributeProto
    _need(0 < len(graph.node) <= _MOST_PARTS and not model.functions and not graph.sparse_initializer, "few operations")
    for node in graph.node:
        _need(node.op_type in _OPERATIONS and node.domain == "", f"only operations of a policy ({node.op_type[:40]!r})")
        _need(all(one.type in (kinds.INT, kinds.INTS, kinds.FLOAT) for one in node.attribute), "plain attributes")
    for one in graph.initializer:
        _need(one.data_location == onnx.TensorProto.DEFAULT and not one.external_data, "its numbers inside")
    names = {one.key: json.loads(one.value) for one in model.metadata_props}
    for kind in ("observations", "actions"):
        _need(names.get(kind) == [one["name"] for one in face[kind]], "the names of the card")
    widths = {"observation": len(face["observations"]), "last_action": len(face["actions"]), "action": len(face["actions"])}
    for values, told in ((graph.input, face["inputs"]), (graph.output, face["outputs"])):
        wanted = [[name, *([widths[name]] if name in widths else [])] for name in told]
        found = [[one.name, *(size.dim_value for size in one.type.tensor_type.shape.dim[1:])] for one in values]
        _need(found == wanted, "the inputs and outputs of the card")
    inferred = onnx.shape_inference.infer_shapes(model, check_type=True, strict_mode=True).graph
    sizes = {one.name: one.type.tensor_type.shape.dim for one in (*inferred.value_info, *inferred.output)}
    for output in (output for node in graph.node for output in node.output):
        _need(output in sizes and _bounded(sizes[output]), "a size that can be computed")


def _bounded(sizes: Any) -> bool:
    """Whether a result is small for one observation: one axis may be the batch."""
    known = [size.dim_value for size in sizes if size.HasField("dim_value")]
    return len(known) >= len(sizes) - 1 and math.prod(known) <= _MOST_NUMBERS
