"""One form for what can be written in several ways: axes and shapes in full, operands of commutative functions in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import Attrs
from aicf.opset.reduce import find_axes
from aicf.passes.context import Context
from aicf.passes.engine import rewrite

COMMUTATIVE = ("add", "mul", "max", "min", "eq")


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph in its one form."""
    return rewrite(graph, _canonicalise)


def _canonicalise(rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
    attrs, inputs = _complete(node), node.inputs
    if node.op == "Elementwise" and node.attrs["function"] in COMMUTATIVE:
        inputs = tuple(sorted(inputs, key=lambda v: -1 if v is None else rewriter.find(v).id))
    if (attrs, inputs) != (node.attrs, node.inputs):
        rewriter.copy(replace(node, attrs=attrs, inputs=inputs))
        return node.outputs
    return None


def _complete(node: Node) -> Attrs:
    if node.op == "Reduce":
        assert node.inputs[0] is not None
        return {**node.attrs, "axes": find_axes(node.attrs, len(node.inputs[0].type.shape))}
    if node.op == "Reshape":
        return {**node.attrs, "shape": node.outputs[0].type.shape}
    return node.attrs
