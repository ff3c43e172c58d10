"""Modules as ONNX models: the graph that is recorded of one in evaluation, each call as the operators that mean the same."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.errors import UnsupportedError
from aicf.frontends.recording import record
from aicf.ir import Node, Value
from aicf.nn import Module
from aicf.opset import find_dtype
from aicf.tensor import Tensor

# The version of the operator set: the first that has GELU.
OPSET = 20
_SAME = {
    **{name: name.capitalize() for name in ("neg", "abs", "sign", "exp", "log", "sqrt", "sin", "cos", "erf", "tanh", "sigmoid", "relu")},
    **{name: name.capitalize() for name in ("add", "sub", "mul", "div", "pow", "max", "min", "where")},
    "eq": "Equal",
    "lt": "Less",
    "le": "LessOrEqual",
    "gt": "Greater",
    "ge": "GreaterOrEqual",
}
_REDUCE = {name: f"Reduce{name.capitalize()}" for name in ("sum", "mean", "max", "min")}


def export_onnx(model: Module, inputs: Sequence[Tensor], path: Path | str | None = None) -> Any:
    """Return a module as a ``ModelProto`` of operator set 20 in evaluation, for inputs of these types, and write it to ``path`` if given.

    Inputs are named ``x0``, ``x1`` and so on, outputs ``y0`` and so on; parameters and buffers are initializers under their paths. Extents
    are those of the inputs, the batch's too. Raises ImportError where ``onnx`` is not installed, and :class:`UnsupportedError` listing all
    calls that have no operators here.
    """
    try:
        onnx = importlib.import_module("onnx")
    except ImportError as error:
        raise ImportError("frontends.export_onnx needs the package onnx: pip install 'aicf[onnx]'", name=error.name) from error
    modes = [(module, module.training) for _, module in model.modules()]
    model.eval()
    try:
        types = {f"x{i}": x.type for i, x in enumerate(inputs)}
        recording = record(lambda m, *xs: m(*xs), model, types, type(model).__name__)
    finally:
        for module, mode in modes:
            module.training = mode
    writer = _Writer(onnx)
    for name, value in recording.graph.inputs:
        writer.names[value.id] = name
    for state in recording.graph.states:
        writer.add_constant(recording.tensors[state.owner, state.role].numpy(), state.owner)
        writer.names[state.value.id] = state.owner
    for node in recording.graph.nodes:
        writer.add(node)
    if writer.refused:
        raise UnsupportedError(f"{type(model).__name__} has calls that are not exported: {'; '.join(writer.refused)}")
    results = [writer.call("Identity", [writer.names[v.id]], f"y{i}") for i, v in enumerate(recording.graph.outputs)]
    proto = writer.finish(
        type(model).__name__,
        [writer.describe(name, value) for name, value in recording.graph.inputs],
        [writer.describe(name, value) for name, value in zip(results, recording.graph.outputs, strict=True)],
    )
    if path is not None:
        onnx.save(proto, str(path))
    return proto


class _Writer:
    """One model on its way: names of values by their ids, and what was not exported."""

    def __init__(self, onnx: Any) -> None:
        self._onnx = onnx
        self.names: dict[int, str] = {}
        self.refused: list[str] = []
        self._nodes: list[Any] = []
        self._constants: list[Any] = []

    def add(self, node: Node) -> None:
        """Append a node's operators; one that has none, or reads what none makes, is noted."""
        rule = _RULES.get(node.op)
        known = all(v is None or v.id in self.names for v in node.inputs)
        made = rule(self, node, ["" if v is None else self.names[v.id] for v in node.inputs]) if rule is not None and known else ""
        if made:
            self.names[node.outputs[0].id] = made
        else:
            self.refused.append(f"{node.place} {node.op}{dict(node.attrs)}")
            self.names |= {v.id: "" for v in node.outputs}  # those behind it are told on their own account alone

    def call(self, op: str, inputs: Sequence[str], output: str = "", **attrs: Any) -> str:
        """Append an operator, and return its output's name."""
        output = output or f"v{len(self._nodes)}"
        self._nodes.append(self._onnx.helper.make_node(op, list(inputs), [output], **attrs))
        return output

    def add_constant(self, values: NDArray[Any], name: str = "") -> str:
        """Add an initializer, and return its name."""
        name = name or f"c{len(self._constants)}"
        self._constants.append(self._onnx.numpy_helper.from_array(np.ascontiguousarray(values).reshape(values.shape), name))
        return name

    def list_numbers(self, numbers: Any) -> str:
        """Return the name of a new vector of integers."""
        return self.add_constant(np.asarray(numbers, np.int64).reshape(-1))

    def find_code(self, dtype: str) -> int:
        """Return ONNX's number of a dtype."""
        found: int = self._onnx.helper.np_dtype_to_tensor_dtype(np.dtype(find_dtype(dtype)))
        return found

    def describe(self, name: str, value: Value) -> Any:
        """Return what an input or output is."""
        return self._onnx.helper.make_tensor_value_info(name, self.find_code(value.type.dtype), value.type.shape)

    def finish(self, name: str, inputs: Sequence[Any], outputs: Sequence[Any]) -> Any:
        """Return the checked model."""
        helper = self._onnx.helper
        graph = helper.make_graph(self._nodes, name, inputs, outputs, self._constants)
        proto = helper.make_model(graph, opset_imports=[helper.make_opsetid("", OPSET)], ir_version=9)
        self._onnx.checker.check_model(proto, full_check=True)
        return proto


def _add_linear(w: _Writer, node: Node, names: Sequence[str]) -> str:
    if node.attrs["act"] != "none" or node.attrs["keep_z"] or node.attrs["w_layout"] != "nk":
        return ""
    x = node.inputs[0]
    assert x is not None
    if len(x.type.shape) == 2:
        return w.call("Gemm", [name for name in names if name], transB=1)
    made = w.call("MatMul", [names[0], w.call("Transpose", [names[1]], perm=[1, 0])])
    return w.call("Add", [made, names[2]]) if names[2] else made


def _add_matmul(w: _Writer, node: Node, names: Sequence[str]) -> str:
    sides = []
    for name, value, turned in zip(names, node.inputs, (node.attrs["transpose_a"], node.attrs["transpose_b"]), strict=True):
        assert value is not None
        order = list(range(len(value.type.shape)))
        sides.append(w.call("Transpose", [name], perm=[*order[:-2], order[-1], order[-2]]) if turned else name)
    return w.call("MatMul", sides)


def _add_elementwise(w: _Writer, node: Node, names: Sequence[str]) -> str:
    function, first = str(node.attrs["function"]), node.inputs[0]
    assert first is not None
    if function in _SAME:
        return w.call(_SAME[function], names)
    if function in ("gelu_erf", "gelu_tanh"):
        return w.call("Gelu", names, approximate="tanh" if function == "gelu_tanh" else "none")
    if function == "silu":
        return w.call("Mul", [names[0], w.call("Sigmoid", names)])
    if function == "square":
        return w.call("Mul", [names[0], names[0]])
    if function == "rsqrt":
        return w.call("Reciprocal", [w.call("Sqrt", names)])
    return ""


def _add_layer_norm(w: _Writer, node: Node, names: Sequence[str]) -> str:
    x = node.inputs[0]
    assert x is not None
    weight = names[1] or w.add_constant(np.ones(x.type.shape[-1], find_dtype(x.type.dtype)))
    return w.call("LayerNormalization", [names[0], weight, *([names[2]] if names[2] else [])], axis=-1, epsilon=node.attrs["eps"])


def _add_rms_norm(w: _Writer, node: Node, names: Sequence[str]) -> str:
    x = node.inputs[0]
    assert x is not None
    eps = w.add_constant(np.asarray(node.attrs["eps"], find_dtype(x.type.dtype)))
    mean = w.call("ReduceMean", [w.call("Mul", [names[0], names[0]]), w.list_numbers([-1])], keepdims=1)
    made = w.call("Div", [names[0], w.call("Sqrt", [w.call("Add", [mean, eps])])])
    return w.call("Mul", [made, names[1]]) if names[1] else made


def _add_reduce(w: _Writer, node: Node, names: Sequence[str]) -> str:
    op, axes = _REDUCE.get(str(node.attrs["function"])), node.attrs["axes"]
    if op is None:
        return ""
    return w.call(op, [names[0], *([] if axes is None else [w.list_numbers(axes)])], keepdims=int(bool(node.attrs["keep"])))


def _add_slice(w: _Writer, node: Node, names: Sequence[str]) -> str:
    return w.call("Slice", [names[0], w.list_numbers(node.attrs["starts"]), w.list_numbers(node.attrs["stops"])])


def _add_full(w: _Writer, node: Node, names: Sequence[str]) -> str:
    made = node.outputs[0].type
    return w.add_constant(np.full(made.shape, node.attrs["value"], find_dtype(made.dtype)))


def _add_shape(op: str) -> Callable[[_Writer, Node, Sequence[str]], str]:
    return lambda w, node, names: w.call(op, [names[0], w.list_numbers(node.attrs["shape"])])


# Appends a call's operators, and returns the name of its first output; empty where it has none.
_RULES: dict[str, Callable[[_Writer, Node, Sequence[str]], str]] = {
    "Linear": _add_linear,
    "MatMul": _add_matmul,
    "Elementwise": _add_elementwise,
    "LayerNorm": _add_layer_norm,
    "RMSNorm": _add_rms_norm,
    "Reduce": _add_reduce,
    "Slice": _add_slice,
    "Full": _add_full,
    "Reshape": _add_shape("Reshape"),
    "Broadcast": _add_shape("Expand"),
    "Softmax": lambda w, node, names: w.call("Softmax", names, axis=-1),
    "LogSoftmax": lambda w, node, names: w.call("LogSoftmax", names, axis=-1),
    "Embedding": lambda w, node, names: w.call("Gather", names),
    "Permute": lambda w, node, names: w.call("Transpose", names, perm=list(node.attrs["order"])),  # type: ignore[arg-type]
    "Concat": lambda w, node, names: w.call("Concat", [name for name in names if name], axis=node.attrs["axis"]),
    "Cast": lambda w, node, names: w.call("Cast", names, to=w.find_code(str(node.attrs["dtype"]))),
    "Detach": lambda w, node, names: w.call("Identity", names),
    "Copy": lambda w, node, names: w.call("Identity", names),
}
