"""A frozen kernel for each node, chosen by the registry and kept under the node's id for the plan."""

from __future__ import annotations

from aicf.ir import Graph
from aicf.opset import find_op
from aicf.passes.context import Context


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph as it is; the context has the choices. Raises :class:`~aicf.errors.SelectionError` where no kernel serves a call."""
    if context.chooser is None:
        return graph
    nodes = [node for node in graph.nodes if find_op(node.op).is_frozen]
    for text in context.chooser.prepare(nodes):
        context.note(text)
    for node in nodes:
        choice = context.choices[node.id] = context.chooser.choose(node)
        told = "" if choice.predicted_us is None else f", {choice.predicted_us:.1f} us"
        context.note(f"{node.place}: {choice.kernel}{told} ({choice.reason})")
    return graph
