"""Calls with the same op, inputs and attributes are merged."""

from __future__ import annotations

import json
from collections.abc import Sequence

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.passes.context import Context
from aicf.passes.engine import rewrite


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph with each call made once. All ops are pure: dropout's mask is told by its counter."""
    known: dict[str, Sequence[Value]] = {}

    def merge(rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
        inputs = [None if v is None else rewriter.find(v).id for v in node.inputs]
        key = json.dumps([node.op, inputs, sorted(node.attrs.items())])
        if key in known:
            return known[key]
        known[key] = node.outputs
        return None

    return rewrite(graph, merge)
