"""Patterns of a network, of its graph alone: what it does to values on their way, whoever wrote it and whatever modules it is made of."""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping
from dataclasses import dataclass

from aicf.frontends.recording import record
from aicf.ir import Graph, Node, Value
from aicf.ir.graph import PARAMETER
from aicf.nn import Module
from aicf.opset import Type

_VIEWS = ("Reshape", "Permute", "Broadcast", "Cast", "Slice", "Transpose")
_PRODUCTS = ("Linear", "MatMul")
_ROWS = 8


@dataclass(frozen=True)
class Patterns:
    """What is seen in a graph.

    ``values`` are numbers by name, which do not depend on how many inputs and outputs there are: ``depth`` (products with weights in a
    row), ``widest`` and ``narrowest`` inner products (log2), ``sin``, ``relu`` and so on (how often, and the logarithms of constant factors
    before them as ``sin_scale``), ``residual``, ``product`` (of two computed values), ``norm``, ``alone`` (units of one input), ``gate`` (a
    factor per feature), and steps that follow each other (``linear>relu``). ``key`` is a hash of the graph without names and without the
    sizes of inputs and outputs: equal structures have the same one.
    """

    key: str
    values: Mapping[str, float]
    parameters: int
    flops_per_row: int


def trace(model: Module, type_: Type, name: str = "") -> Graph:
    """Return a model's forward graph, for an input of a type."""
    return record(lambda m, x: m(x), model, {"x0": type_}, name or type(model).__name__).graph


def find_patterns(model: Module, inputs: int) -> Patterns:
    """Return the patterns of a model of rows of ``inputs`` floating numbers."""
    return read_patterns(trace(model, Type("float32", (_ROWS, inputs))))


def read_patterns(graph: Graph) -> Patterns:
    """Return the patterns of a forward graph, whose inputs' first axes are rows."""
    return _Reader(graph).read()


class _Reader:
    """Walks a graph from its inputs. ``depth`` is of a value that depends on inputs; others are computed of parameters alone."""

    def __init__(self, graph: Graph) -> None:
        self.graph = graph
        self.producers = graph.find_producers()
        self.depth = {value.id: 0 for _, value in graph.inputs}
        self.above: dict[int, frozenset[int]] = {value.id: frozenset() for _, value in graph.inputs}
        self.step: dict[int, tuple[str, ...]] = {value.id: ("input",) for _, value in graph.inputs}
        self.label = {value.id: "input" for _, value in graph.inputs}
        self.label |= {s.value.id: s.role for s in graph.states}
        self.found: dict[str, float] = {}
        self.widths: list[int] = []
        self.flops = 0
        self.last = self._find_last()

    def read(self) -> Patterns:
        """Return what is found."""
        for node in self.graph.nodes:
            computed = [v for v in node.inputs if v is not None and v.id in self.depth]
            if computed:
                self._read_node(node, computed)
            self._label(node)
        widths = self.widths or [1]
        values = {
            "depth": float(max((self.depth.get(v.id, 0) for v in self.graph.outputs), default=0)),
            "widest": math.log2(max(widths)),
            "narrowest": math.log2(min(widths)),
            "num_inner": float(len(self.widths)),
        }
        text = " ".join(self.label[v.id] for v in self.graph.outputs)
        parameters = sum(s.value.type.num_elems for s in self.graph.states if s.role == PARAMETER)
        rows = next((v.type.shape[0] for _, v in self.graph.inputs if v.type.shape), 1)
        return Patterns(hashlib.sha256(text.encode()).hexdigest()[:16], values | self.found, parameters, self.flops // max(rows, 1))

    def _find_last(self) -> set[int]:
        """Return the products that make outputs: nothing but sums and views comes behind them."""
        open_, last = list(self.graph.outputs), set[int]()
        while open_:
            node = self.producers.get(open_.pop().id)
            if node is None:
                continue
            if node.op in _PRODUCTS:
                last.add(node.id)
            elif node.op in _VIEWS or node.attrs.get("function") == "add":
                open_ += [v for v in node.inputs if v is not None]
        return last

    def _read_node(self, node: Node, computed: list[Value]) -> None:
        before = frozenset().union(*(self.above[v.id] | {v.id} for v in computed))
        is_layer = node.op in _PRODUCTS
        depth = max(self.depth[v.id] for v in computed) + is_layer
        name = self._name(node, computed)
        steps = {s for v in computed for s in self.step[v.id]}
        for value in node.outputs:
            self.depth[value.id], self.above[value.id] = depth, before
            self.step[value.id] = (name,) if name else tuple(sorted(steps))
        self._count_flops(node)
        if not name:
            return
        self._add(name, 1.0)
        for step in steps:
            self._add(f"{step}>{name}", 1.0)
        if is_layer and node.id not in self.last:
            self.widths.append(node.outputs[0].type.shape[-1])
        if is_layer and node.attrs.get("act", "none") != "none":
            self._add(str(node.attrs["act"]), 1.0)

    def _name(self, node: Node, computed: list[Value]) -> str:
        """Return what a node is called in patterns, empty for one that moves values only."""
        if node.op in _VIEWS:
            return ""
        if node.op in _PRODUCTS:
            return "linear"
        function = str(node.attrs.get("function", ""))
        if node.op != "Elementwise" or function not in ("add", "mul", "sub", "div"):
            if node.op == "Elementwise":
                self._note_scale(node, function)
            return "norm" if node.op in ("LayerNorm", "RMSNorm") else function or node.op.lower()
        if len(computed) == 2:
            return self._name_pair(function, computed)
        other = next((v for v in node.inputs if v is not None and v.id not in self.depth), None)
        if other is None or other.type.num_elems == 1:
            return ""  # by a number: a scale, seen from the function behind it
        if function == "mul":
            if computed[0].type.shape[-1] == 1:
                self._add("units_alone", math.log2(other.type.shape[-1] + 1))
                return "alone"
            return "gate"
        return ""

    def _name_pair(self, function: str, computed: list[Value]) -> str:
        a, b = (v.id for v in computed)
        if function in ("mul", "div"):
            return "product"
        return "residual" if a in self.above[b] or b in self.above[a] else "sum"

    def _note_scale(self, node: Node, function: str) -> None:
        """Note a number that a function's input was multiplied by."""
        made = self.producers.get(node.inputs[0].id) if node.inputs[0] is not None else None
        if made is None or made.attrs.get("function") != "mul":
            return
        for value in made.inputs:
            constant = None if value is None else self.producers.get(value.id)
            while constant is not None and constant.op in _VIEWS:
                constant = self.producers.get(constant.inputs[0].id) if constant.inputs[0] is not None else None
            if constant is not None and constant.op == "Full":
                number = constant.attrs["value"]
                assert isinstance(number, (bool, int, float))
                self._add(f"{function}_scale", math.log2(max(abs(number), 1e-6)))

    def _add(self, name: str, amount: float) -> None:
        self.found[name] = self.found.get(name, 0.0) + amount

    def _count_flops(self, node: Node) -> None:
        size = node.outputs[0].type.num_elems
        if node.op in _PRODUCTS and node.inputs[0] is not None:
            self.flops += 2 * size * node.inputs[0].type.shape[-1]
        elif node.op not in _VIEWS:
            self.flops += size

    def _label(self, node: Node) -> None:
        """Label a node's values by what made them, without sizes of inputs and outputs."""
        attrs = {k: v for k, v in node.attrs.items() if k not in ("shape", "axes", "w_layout")}
        size = node.outputs[0].type.shape[-1:] if node.op in _PRODUCTS and node.id not in self.last else ""
        inputs = ",".join("_" if v is None else self._shorten(self.label[v.id]) for v in node.inputs)
        for i, value in enumerate(node.outputs):
            self.label[value.id] = f"{node.op}.{i}{sorted(attrs.items())}{size}({inputs})"

    def _shorten(self, label: str) -> str:
        return label if len(label) < 40 else hashlib.sha256(label.encode()).hexdigest()[:32]
