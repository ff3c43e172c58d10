"""High-level calls become frozen ones, by their ops' own rules; all calls that no kernel serves are listed in one error."""

from __future__ import annotations

import math
from collections.abc import Sequence

from aicf.errors import UnsupportedError
from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import find_op
from aicf.opset.matmul import PRODUCT
from aicf.opset.moves import MOVE
from aicf.passes.context import Chooser, Context
from aicf.passes.engine import rewrite

# Frozen calls that stand where one kernel might do more.
_LOOPS = {
    PRODUCT: "no frozen op multiplies batches, each product is a launch",
    MOVE: "values repeated along an axis are copied, up to 4 places a launch",
}


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph of frozen ops, views and constants, where kernels are needed; raises :class:`UnsupportedError`."""
    if context.chooser is None:
        return graph
    while True:
        lowered = rewrite(graph, _lower)
        if lowered == graph:
            break
        graph = lowered
    for op, why in _LOOPS.items():
        if count := sum(node.op == op for node in graph.nodes):
            context.note(f"{count} launches of {op}: {why}")
    left = [node for node in graph.nodes if not is_served(node, context.chooser)]
    if left:
        lines = "".join(f"\n  {describe(node)}" for node in left)
        raise UnsupportedError(f"{graph.name}: {len(left)} calls have no frozen kernel:{lines}")
    return graph


def is_served(node: Node, chooser: Chooser) -> bool:
    """Whether a node needs no launch, or is of a frozen op that has a kernel for it."""
    op = find_op(node.op)
    if not op.is_frozen:
        return op.is_view or node.op in ("Full", "Copy")
    us = chooser.predict_us(node.op, [None if v is None else v.type for v in node.inputs], node.attrs)
    return us is None or not math.isinf(us)


def describe(node: Node) -> str:
    """Return a node's call and place in words."""
    types = ", ".join("none" if v is None else str(v.type) for v in node.inputs)
    attrs = ", ".join(f"{name}={value!r}" for name, value in node.attrs.items())
    return f"{node.place}: ({types}) {attrs}"


def _lower(rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
    lower = find_op(node.op).lower
    return None if lower is None else lower(rewriter, node.inputs, node.attrs)
