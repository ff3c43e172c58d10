"""ONNX models as modules: read by ``onnx-ir``, functions put in their places, numbers of the host computed by ONNX's reference."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.backends import find_default
from aicf.frontends.imported import Imported, lift
from aicf.frontends.network import TRAINING, Call, Network, Ref, Refusal, adopt
from aicf.frontends.onnx_rules import RULES, Function, Settings
from aicf.opset.types import DTYPES
from aicf.tensor import Tensor

# Before these versions of the operator set they meant something else.
_OLDEST = {"BatchNormalization": 7, "Cast": 6, "Dropout": 7, "PRelu": 7}
_DOMAINS = ("", "ai.onnx")
# What makes numbers of the host of numbers alone, whoever gives them.
_HOST_OPERATORS = ("Constant", "ConstantOfShape", "Range")
# Statistics, which are not trained: operator, input.
_STATISTICS = {("BatchNormalization", 3), ("BatchNormalization", 4)}


def onnx(source: Any) -> Imported:
    """Return an ONNX model, a path or a ``ModelProto``, as a module.

    Initializers of floating numbers that have axes become parameters under their names, and the others constants. Inputs and outputs are in
    the model's order; of several outputs a call returns a tuple. Raises ImportError where ``onnx`` and ``onnx-ir`` are not installed, and
    :class:`~aicf.errors.UnsupportedError` listing every node that is not served.
    """
    try:
        import onnx_ir
        from onnx_ir.passes.common import InlinePass
    except ImportError as error:
        raise ImportError("frontends.onnx needs the packages onnx and onnx-ir: pip install 'aicf[onnx]'", name=error.name) from error
    is_path = isinstance(source, (str, Path))
    model = onnx_ir.load(source) if is_path else onnx_ir.from_proto(source)
    name = Path(source).name if is_path else (model.graph.name or "model")
    return _Reader(name, InlinePass()(model).model).read()


class _Reader:
    """One model on its way into a table. ``known`` are values found now, ``hosts`` the names of those that a replay finds from shapes."""

    def __init__(self, name: str, model: Any) -> None:
        self.network = Network(name)
        self.graph = model.graph
        self.version = max((v for d, v in model.opset_imports.items() if d in _DOMAINS), default=1)
        self.known: dict[str, NDArray[Any]] = {}
        self.hosts: set[str] = set()
        self.uses = _find_uses(self.graph)

    def read(self) -> Imported:
        for value in self.graph.inputs:
            if value.name not in self.graph.initializers:
                self._read_input(value)
        for name, value in self.graph.initializers.items():
            self._read_initializer(name, value)
        for number, node in enumerate(self.graph):
            self._read_node(number, node)
        results = tuple(Ref(value.name) for value in self.graph.outputs)
        self.network.results = results[0] if len(results) == 1 else results
        self.network.constants = self.known
        return Imported(self.network)

    def _read_input(self, value: Any) -> None:
        self.network.inputs.append(value.name)
        is_tensor = type(value.type).__name__ == "TensorType"
        if not is_tensor or value.dtype.is_string() or value.dtype.numpy().name not in DTYPES:
            self.network.refuse("input", value.name, f"{value.type} is not supported; supported are tensors of {', '.join(DTYPES)}")
        elif value.shape is not None:
            shape = tuple(n if isinstance(n, int) else None for n in value.shape)
            self.network.types[value.name] = (value.dtype.numpy().name, shape)

    def _read_initializer(self, name: str, value: Any) -> None:
        array = value.const_value.numpy()
        uses = self.uses.get(name, [])
        is_tensor = any(op in RULES and place not in RULES[op].hosts for op, place in uses)
        if array.ndim and is_tensor and array.dtype.name in ("float64", "float32", "bfloat16", "float16"):
            self.network.own(name, name, adopt(array, trained=not _STATISTICS.issuperset(uses)))
        else:
            self.known[name] = array

    def _read_node(self, number: int, node: Any) -> None:
        names = [None if value is None else value.name for value in node.inputs]
        outputs = tuple(value.name for value in node.outputs)
        place = self._find_place(number, node)
        domain = f"{node.domain}." if node.domain not in _DOMAINS else ""
        is_host = all(n is None or n in self.known or n in self.hosts for n in names) and (bool(names) or node.op_type == "Constant")
        try:
            is_computed = (is_host or node.op_type in _HOST_OPERATORS) and not _has_graphs(node)
            if domain or not (node.op_type in RULES or is_computed):
                raise Refusal("this operator is not supported")
            if self.version < _OLDEST.get(node.op_type, 0):
                raise Refusal(f"version {self.version} of the operator set is unsupported; onnx.version_converter makes a newer one")
            if is_computed:
                self._read_host_node(node, names, outputs, place)
            else:
                self._read_tensor_node(node, names, outputs, place)
        except Refusal as refusal:
            self.network.refuse(f"{domain}{node.op_type}", place, str(refusal))

    def _read_host_node(self, node: Any, names: Sequence[str | None], outputs: tuple[str, ...], place: str) -> None:
        """Compute a node of the host's numbers alone, now where they are known."""
        run = _make_reference(node, self.version)
        if all(n is None or n in self.known for n in names):
            made = run(*(None if n is None else self.known[n] for n in names))
            self.known.update(zip(outputs, made if len(outputs) > 1 else [made], strict=True))
            return
        self.hosts.update(outputs)
        inputs = tuple(None if n is None else Ref(n) for n in names)
        self.network.calls.append(Call(node.op_type, run, inputs, outputs, place))

    def _read_tensor_node(self, node: Any, names: Sequence[str | None], outputs: tuple[str, ...], place: str) -> None:
        rule = RULES[node.op_type]
        reads = tuple(bool(value.uses()) or value.is_graph_output() for value in node.outputs)
        run = rule.make(Settings(_read_attributes(node), self.version, len(names), reads))
        if node.op_type in ("Shape", "Size"):
            self.hosts.update(outputs)
        inputs = tuple(None if n is None else Ref(n if i in rule.hosts else self._find_tensor(n)) for i, n in enumerate(names))
        keywords = {"training": TRAINING} if rule.trains else {}
        owner = self._find_owner(node, names)
        self.network.calls.append(Call(node.op_type, _adapt(run, rule.hosts), inputs, outputs, place, owner, keywords))

    def _find_tensor(self, name: str) -> str:
        """Return the name of a value as a tensor: many different known numbers become a buffer."""
        array = self.known.get(name)
        if array is None or array.size == 0 or bool(np.all(array == array.flat[0])):
            return name
        tensor = f"{name}:tensor"
        if tensor not in self.network.owners:
            if array.dtype.name not in DTYPES:
                raise Refusal(f"{name}: dtype {array.dtype.name} is not supported; supported: {', '.join(DTYPES)}")
            self.network.own(tensor, name, adopt(array, trained=False))
        return tensor

    def _find_place(self, number: int, node: Any) -> str:
        """Return a node's name, or which it is and what it makes; and its line where the exporter tells."""
        name = node.name or f"node {number} ({node.op_type}, makes {', '.join(v.name for v in node.outputs)})"
        lines = [s.strip() for s in node.metadata_props.get("pkg.torch.onnx.stack_trace", "").splitlines() if s.strip().startswith("File ")]
        return f"{self.network.name}: {name}" + (f" ({lines[-1]})" if lines else "")

    def _find_owner(self, node: Any, names: Sequence[str | None]) -> str:
        """Return the path of a node's module: as the exporter tells, or its first own tensor's, or what its name begins with."""
        scopes = node.metadata_props.get("pkg.torch.onnx.name_scopes")
        if scopes:
            return ".".join(p for p in ast.literal_eval(scopes)[-2:-1] if p)
        owned = [self.network.owners[n] for n in names if n in self.network.owners]
        if owned and "." in owned[0]:
            return owned[0].rpartition(".")[0]
        return ".".join(p for p in node.name.split("/")[:-1] if p) if node.name and "/" in node.name else ""


def _find_uses(graph: Any) -> dict[str, list[tuple[str, int]]]:
    """Return who reads each value: operator, and which of its inputs."""
    found: dict[str, list[tuple[str, int]]] = {}
    for node in graph:
        for i, value in enumerate(node.inputs):
            if value is not None:
                found.setdefault(value.name, []).append((node.op_type, i))
    return found


def _has_graphs(node: Any) -> bool:
    return any(attribute.type.name in ("GRAPH", "GRAPHS") for attribute in node.attributes.values())


def _read_attributes(node: Any) -> dict[str, Any]:
    """Return a node's attributes as Python has them, tensors as arrays."""
    found = {}
    for name, attribute in node.attributes.items():
        value = attribute.value
        found[name] = value.numpy() if attribute.type.name == "TENSOR" else tuple(value) if isinstance(value, (list, tuple)) else value
    return found


def _make_reference(node: Any, version: int) -> Function:
    """Return a node as ONNX's reference implementation computes it, on arrays of the host."""
    import onnx_ir
    from onnx import TensorProto, helper
    from onnx.reference import ReferenceEvaluator

    proto = onnx_ir.to_proto(node)
    ins = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in proto.input if n]
    outs = [helper.make_tensor_value_info(n, TensorProto.UNDEFINED, None) for n in proto.output if n]
    model = helper.make_model(helper.make_graph([proto], "host", ins, outs), opset_imports=[helper.make_opsetid("", version)])
    try:
        evaluator = ReferenceEvaluator(model)
    except (NotImplementedError, RuntimeError) as error:
        raise Refusal(f"ONNX's reference does not compute it: {error}") from None

    def run(*arrays: Any) -> Any:
        given = [None if a is None else np.asarray(a.numpy() if isinstance(a, Tensor) else a) for a in arrays]
        made = list(evaluator.run(None, {n: a for n, a in zip(proto.input, given, strict=False) if n and a is not None}))
        return made if len(made) > 1 else made[0]

    return run


def _adapt(function: Function, hosts: Iterable[int]) -> Callable[..., Any]:
    """Return a rule's function for what a replay has: numbers become tensors, and tensors numbers, as the rule wants them."""
    wanted = frozenset(hosts)

    def run(*arguments: Any, **keywords: Any) -> Any:
        backend = next((a.backend for a in arguments if isinstance(a, Tensor)), None) or find_default()
        given = [
            a if a is None or isinstance(a, Tensor) == (i not in wanted) else a.numpy() if isinstance(a, Tensor) else lift(a, backend)
            for i, a in enumerate(arguments)
        ]
        return function(*given, **keywords)

    return run
