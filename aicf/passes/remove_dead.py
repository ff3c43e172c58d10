"""Nodes that neither an output nor an update needs are removed."""

from __future__ import annotations

from dataclasses import replace

from aicf.ir import Graph
from aicf.passes.context import Context


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph without dead nodes."""
    needed = graph.find_kept()
    kept = []
    for node in reversed(graph.nodes):
        if any(v.id in needed for v in node.outputs):
            kept.append(node)
            needed |= {v.id for v in node.inputs if v is not None}
    alive = {node.id for node in kept}
    # A backward node whose forward node is dead has nothing left to say that it differentiates.
    nodes = [n if n.differentiates in alive else replace(n, differentiates=None) for n in reversed(kept)]
    return replace(graph, nodes=tuple(nodes))
