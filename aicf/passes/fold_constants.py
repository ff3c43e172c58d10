"""Calls whose inputs are all constants become constants."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import find_op
from aicf.passes.context import Context
from aicf.passes.engine import rewrite

_FOLDED = ("Elementwise", "Cast", "Reshape", "Broadcast", "Permute", "Slice", "Reduce")


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph with constants folded: as the truth has them, so that nothing changes by it."""
    return rewrite(graph, _fold)


def _fold(rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
    if node.op not in _FOLDED:
        return None
    arrays: list[Any] = []
    for value in node.inputs:
        source = rewriter.find_producer(value, "Full")
        if source is None:
            return None
        arrays += find_op("Full").evaluate((), source.attrs)
    (result,) = find_op(node.op).evaluate(arrays, node.attrs)
    if result.size == 0 or not bool(np.all(result == result.flat[0])):
        return None  # a constant is one number
    number = result.flat[0].item()
    return rewriter.call("Full", (), {"value": number, "dtype": node.outputs[0].type.dtype, "shape": node.outputs[0].type.shape})
