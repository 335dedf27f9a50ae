"""`onnx`: policy.onnx, for a batch of any size; its pre- and post-processing is inside."""

import json
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from rl_training.deploy.program import Network, Program
from rl_training.errors import ConfigError
from rl_training.models.mlp.eager import LAYER_NORM_EPS

FILES = ("policy.onnx",)
OPSET, IR_VERSION = 17, 8
INSTALL = 'pip install "rl-training[onnx]"'


def write(program: Program, directory: Path) -> None:
    """Write the file of a policy; a ConfigError without the library."""
    try:
        import onnx
    except ImportError:
        raise ConfigError(f"an ONNX file needs onnx and onnxruntime: {INSTALL}") from None
    model = onnx.helper.make_model(
        _Graph(onnx, program).proto(),
        opset_imports=[onnx.helper.make_opsetid("", OPSET)],
        ir_version=IR_VERSION,
        producer_name="rl-training",
    )
    names = {"observations": program.observation_names, "actions": program.action_names}
    onnx.helper.set_model_props(model, {kind: json.dumps(values) for kind, values in names.items()})
    onnx.checker.check_model(model, full_check=True)
    onnx.save(model, str(directory / "policy.onnx"))


class _Graph:
    """The nodes of a policy; each method appends some and returns the name of its result."""

    def __init__(self, onnx: Any, program: Program) -> None:
        self._onnx, self._program = onnx, program
        self._nodes: list[Any] = []
        self._constants: dict[str, Any] = {}

    def proto(self) -> Any:
        """Return the graph: observation (batch, n)[, last_action] to action (batch, m)[, outside (batch)]."""
        helper, floats, program = self._onnx.helper, self._onnx.TensorProto.FLOAT, self._program
        inputs = [helper.make_tensor_value_info("observation", floats, ["batch", len(program.mean)])]
        if program.safety.uses_last:
            inputs.append(helper.make_tensor_value_info("last_action", floats, ["batch", len(program.middle)]))
        outputs = [helper.make_tensor_value_info("action", floats, ["batch", len(program.middle)])]
        self._policy()
        self._outside()
        if program.safety.seen is not None:
            outputs.append(helper.make_tensor_value_info("outside", self._onnx.TensorProto.INT64, ["batch"]))
        return helper.make_graph(self._nodes, "policy", inputs, outputs, list(self._constants.values()))

    def _add(self, kind: str, *inputs: str | NDArray[Any] | float, name: str | None = None, **attributes: Any) -> str:
        """Append a node; an input that is not a name is a constant."""
        named = [one if isinstance(one, str) else self._constant(one) for one in inputs]
        output = name or f"{kind.lower()}_{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(kind, named, [output], **attributes))
        return output

    def _constant(self, value: NDArray[Any] | float, name: str | None = None) -> str:
        array = np.asarray(value, dtype=np.float32) if not isinstance(value, np.ndarray) else value
        name = name or f"constant_{len(self._constants)}"
        self._constants.setdefault(name, self._onnx.numpy_helper.from_array(np.ascontiguousarray(array), name))
        return name

    def _clipped(self, values: str, low: NDArray[Any] | str, high: NDArray[Any] | str, name: str | None = None) -> str:
        return self._add("Min", self._add("Max", values, low), high, name=name)

    def _finite(self, values: str) -> str:
        return self._add("Not", self._add("Or", self._add("IsNaN", values), self._add("IsInf", values)))

    def _count(self, truths: str, width: int) -> str:
        """How many columns of a row are true, (batch, 1); onnxruntime's ReduceSum has the wrong shape for an empty batch."""
        numbers = self._add("Cast", truths, to=self._onnx.TensorProto.FLOAT)
        return self._add("MatMul", numbers, np.ones((width, 1), dtype=np.float32))

    def _every(self, truths: str, width: int) -> str:
        """Whether every column of a row is true, (batch, 1)."""
        return self._add("Greater", self._count(truths, width), width - 0.5)

    def _policy(self) -> None:
        """The action of an observation, by the rules of `Safety`."""
        program, safety = self._program, self._program.safety
        actions = len(program.middle)
        usable = self._add("LessOrEqual", self._add("Abs", "observation"), safety.largest)
        good = self._every(usable, len(program.mean))
        usable = self._add("Where", good, "observation", program.mean)
        seen = self._add("Div", self._add("Sub", usable, program.mean), program.std)
        if np.isfinite(program.limit):
            limit = np.asarray(program.limit, dtype=np.float32)
            seen = self._clipped(seen, -limit, limit)
        unit = self._add("MatMul", self._unit(seen), program.place)
        action = self._add("Add", self._add("Mul", unit, program.half_range), program.middle)
        kept = self._add("And", good, self._every(self._finite(action), actions))
        action = self._clipped(action, safety.low, safety.high)
        known = self._finite("last_action") if safety.uses_last else ""
        last = self._add("Where", known, "last_action", float("nan")) if known else ""
        action = self._add("Where", kept, action, last if safety.fallback is None else safety.fallback)
        if safety.change is not None:
            least, most = (self._add(kind, last, safety.change) for kind in ("Sub", "Add"))
            action = self._add("Where", known, self._clipped(action, least, most), action)
        # a comparison of NaN is never true, and what Min and Max make of NaN is left open by the standard
        bounded = self._clipped(action, safety.low, safety.high)
        self._add("Where", self._add("IsNaN", action), action, bounded, name="action")

    def _outside(self) -> None:
        """The number of columns that are outside the range of the data, if that is known; NaN is outside, too."""
        seen = self._program.safety.seen
        if seen is None:
            return
        low, high = seen
        enough = self._add("GreaterOrEqual", "observation", low)
        inside = self._add("And", enough, self._add("LessOrEqual", "observation", high))
        counted = self._add("Squeeze", self._count(self._add("Not", inside), len(low)), np.asarray([-1], dtype=np.int64))
        self._add("Cast", counted, name="outside", to=self._onnx.TensorProto.INT64)

    def _unit(self, seen: str) -> str:
        """Actions in [-1, 1] of normalised observations."""
        program = self._program
        if program.candidates is None:
            return self._squashed(self._network("actor", program.actor, seen))
        count, width = program.candidates.shape
        column = self._add("Unsqueeze", seen, np.asarray([1], dtype=np.int64))
        repeated = self._add("Add", column, np.zeros((1, count, len(program.mean)), dtype=np.float32))
        nothing = self._add("MatMul", repeated, np.zeros((len(program.mean), width), dtype=np.float32))
        noise = self._add("Add", nothing, program.candidates[None])
        inputs = self._add("Concat", repeated, noise, axis=-1)
        actions = self._squashed(self._network("actor", program.actor, inputs))
        pairs = self._add("Concat", repeated, actions, axis=-1)
        values = [self._network(f"critic{k}", one, pairs) for k, one in enumerate(program.critics)]
        smallest = self._add("Min", *values)
        best = self._add("ArgMax", smallest, axis=1, keepdims=1)  # (batch, 1, 1)
        index = self._add("Add", best, np.zeros((1, 1, width), dtype=np.int64))
        chosen = self._add("GatherElements", actions, index, axis=1)
        return self._add("Squeeze", chosen, np.asarray([1], dtype=np.int64))

    def _squashed(self, outputs: str) -> str:
        width = int(self._program.free.sum())
        edges = (np.asarray([edge], dtype=np.int64) for edge in (0, width, -1))
        outputs = self._add("Slice", outputs, *edges)
        one = np.ones((), dtype=np.float32)
        return self._add("Tanh", outputs) if self._program.squashed else self._clipped(outputs, -one, one)

    def _network(self, name: str, network: Network, hidden: str) -> str:
        last = len(network.layers) - 1
        for number, layer in enumerate(network.layers):
            weight, bias = (self._constant(getattr(layer, part), f"{name}_{number}_{part}") for part in ("weight", "bias"))
            hidden = self._add("Add", self._add("MatMul", hidden, weight), bias)
            if number == last:
                break
            hidden = self._active(hidden) if network.norm == "after" else hidden
            if layer.scale is not None and layer.offset is not None:
                hidden = self._add("LayerNormalization", hidden, layer.scale, layer.offset, axis=-1, epsilon=LAYER_NORM_EPS)
            hidden = hidden if network.norm == "after" else self._active(hidden)
        return hidden

    def _active(self, x: str) -> str:
        kind = self._program.activation
        if kind in ("relu", "tanh"):
            return self._add(kind.capitalize(), x)
        if kind == "silu":
            return self._add("Mul", x, self._add("Sigmoid", x))
        cube = self._add("Mul", self._add("Mul", x, x), self._add("Mul", x, 0.044715))
        inner = self._add("Tanh", self._add("Mul", self._add("Add", x, cube), 0.7978845608))
        return self._add("Mul", self._add("Mul", x, 0.5), self._add("Add", inner, 1.0))
