"""What changed between two graphs, by the ids that survive passes."""

from __future__ import annotations

from aicf.ir.graph import Graph
from aicf.ir.text import node_to_text, to_text


def diff(before: Graph, after: Graph) -> list[str]:
    """Return lines ``- node``, ``+ node`` and, for a node that stayed and changed, both; then other lines that differ."""
    old = {node.id: node_to_text(node) for node in before.nodes}
    new = {node.id: node_to_text(node) for node in after.nodes}
    lines = []
    for number in dict.fromkeys((*old, *new)):
        if old.get(number) != new.get(number):
            lines += [f"- {old[number]}"] if number in old else []
            lines += [f"+ {new[number]}"] if number in new else []
    rest_before = [line for line in to_text(before).splitlines() if not line.startswith("#")]
    rest_after = [line for line in to_text(after).splitlines() if not line.startswith("#")]
    lines += [f"- {line}" for line in rest_before if line not in rest_after]
    lines += [f"+ {line}" for line in rest_after if line not in rest_before]
    return lines
