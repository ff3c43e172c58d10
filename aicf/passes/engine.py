"""How passes walk a graph."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from aicf.ir import Graph, Node, Rewriter, Value

# Returns what stands in the place of a node's outputs, or None where it stays.
Rule = Callable[[Rewriter, Node], Sequence[Value] | None]


def rewrite(graph: Graph, rule: Rule) -> Graph:
    """Return the graph with each node replaced as a rule says, in order."""
    rewriter = Rewriter(graph)
    for node in graph.nodes:
        rewriter.stand_for(node)
        made = rule(rewriter, node)
        if made is None:
            rewriter.copy(node)
        else:
            rewriter.replace(node.outputs, made)
    return rewriter.finish()
