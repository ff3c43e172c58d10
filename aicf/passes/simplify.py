"""No-op calls are removed and views of views merged. All of it is exact, including infinities, NaN and signed zeros."""

from __future__ import annotations

from collections.abc import Sequence

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.passes.context import Context
from aicf.passes.engine import rewrite

# Functions of which an operand that is this number leaves the other as it is: x - 0, but not x + 0, which makes 0 of -0.
_NEUTRAL = {"mul": (1, (0, 1)), "div": (1, (1,)), "sub": (0, (1,))}


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph without calls that change nothing."""
    return rewrite(graph, _simplify)


def _simplify(rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
    if node.op == "Elementwise":
        return _drop_neutral(rewriter, node)
    if node.op not in ("Reshape", "Permute", "Broadcast", "Slice", "Cast"):
        return None
    (x,), (y,) = node.inputs, node.outputs
    assert x is not None
    if node.op == "Permute":
        return _join_permutes(rewriter, node, x)
    if x.type == y.type:
        return [x]
    before = rewriter.find_producer(x, node.op)
    if before is not None and node.op in ("Reshape", "Broadcast"):
        return rewriter.call(node.op, before.inputs, node.attrs)
    return None


def _drop_neutral(rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
    function = str(node.attrs["function"])
    if function == "neg":
        before = rewriter.find_producer(node.inputs[0], "Elementwise")
        twice = before is not None and before.attrs["function"] == "neg"
        return [v for v in before.inputs if v is not None] if before is not None and twice else None
    number, places = _NEUTRAL.get(function, (0, ()))
    for place in places:
        constant = rewriter.find_producer(node.inputs[place], "Full")
        other = node.inputs[1 - place]
        if constant is not None and constant.attrs["value"] == number and other is not None and other.type == node.outputs[0].type:
            return [other]
    return None


def _join_permutes(rewriter: Rewriter, node: Node, x: Value) -> Sequence[Value] | None:
    order = node.attrs["order"]
    assert isinstance(order, tuple)
    before = rewriter.find_producer(x, "Permute")
    if before is not None:
        first = before.attrs["order"]
        assert isinstance(first, tuple)
        joined = tuple(first[i] for i in order)
        if joined == tuple(range(len(joined))):
            return [v for v in before.inputs if v is not None]
        return rewriter.call("Permute", before.inputs, {"order": joined})
    return [x] if order == tuple(range(len(order))) else None
