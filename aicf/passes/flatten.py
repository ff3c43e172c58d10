"""Updates of many parameters become one launch: to an elementwise kernel, adjacent arrays are one array.

Optimizers' calls with the same rate, step and settings are made together, and so are the elementwise calls that make their gradients, as
clipping does, where all are of one chain, and the casts by which all their parameters are read. Where one call takes all that a step
counter is read for, it counts the steps itself (:mod:`aicf.passes.counting`). The planner lays their values side by
side (:mod:`aicf.plan.lists`).
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.ir.graph import PARAMETER
from aicf.opset import find_op
from aicf.passes.context import Context
from aicf.passes.counting import count_steps
from aicf.passes.engine import rewrite


@dataclass(frozen=True)
class _Together:
    """Nodes that one flat launch takes the place of. ``grouped`` has a mark per operand: 1 where each node has its own."""

    nodes: tuple[Node, ...]
    grouped: str


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph with flat launches, where kernels are needed."""
    if context.chooser is None:
        return graph
    found = _find_updates(graph)
    # What makes gradients comes first: its values are then inputs of a flat launch that lie side by side already.
    makers = [made for group in found if (made := _find_makers(graph, group)) is not None]
    for group in (*found, *makers, *_find_readers(graph, found)):
        graph = _merge(graph, group)
        context.note(f"{len(group.nodes)} calls of {group.nodes[0].op} become one launch, {_count_bytes(group)} bytes")
    return count_steps(graph, context)


def join_sums(graph: Graph, context: Context) -> Graph:
    """Return the graph with each sum of squares of several values as one launch, where the values' memory may lie anywhere."""
    if context.chooser is None:
        return graph
    makers = _find_free_makers(graph)
    attrs = json.dumps({"reduction": "sum_squares", "over": "all", "result_dtype": "float32"})

    def join(rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
        values = [v for v in node.inputs if v is not None]
        if node.op != "SumSquares" or len({v.id for v in values}) < max(len(values), 2) or len({v.type.dtype for v in values}) > 1:
            return None
        if any(v.id not in makers for v in values) or values[0].type.dtype == "float64":
            return None
        context.note(f"a sum of squares of {len(values)} values is one launch, {sum(v.type.size_bytes for v in values)} bytes")
        return rewriter.call("flat", values, {"op": "reduce", "members": len(values), "grouped": "1", "attrs": attrs})

    return rewrite(graph, join)


def _count_bytes(group: _Together) -> int:
    return sum(v.type.size_bytes for node in group.nodes for v in (*node.inputs, *node.outputs) if v is not None)


def _find_updates(graph: Graph) -> list[_Together]:
    by_settings: dict[str, list[Node]] = {}
    held = {s.value.id for s in graph.states}
    makers, roots, taken = _find_free_makers(graph), _find_roots(graph), set[int]()
    for node in graph.nodes:
        if node.op != "optimizer":
            continue
        p, gradient, m, v, step, lr, _, factor = node.inputs
        assert p is not None and gradient is not None and m is not None and v is not None and step is not None and lr is not None
        # Two biases that are added to the same sum have one gradient, which can lie in one place of a list only.
        root = roots.get(gradient.id, gradient.id)
        if {p.id, m.id, v.id} <= held and gradient.id in makers and root not in taken:
            taken.add(root)
            shared = [None if x is None else x.id for x in (step, lr, factor)]
            key = json.dumps([sorted(node.attrs.items()), shared, gradient.type.dtype, p.type.dtype])
            by_settings.setdefault(key, []).append(node)
    return [_Together(tuple(nodes), "11110000") for nodes in by_settings.values() if len(nodes) > 1]


def _find_roots(graph: Graph) -> dict[int, int]:
    """Return for each view the id of the value whose memory it is."""
    roots: dict[int, int] = {}
    for node in graph.nodes:
        if find_op(node.op).is_view and node.inputs[0] is not None:
            roots[node.outputs[0].id] = roots.get(node.inputs[0].id, node.inputs[0].id)
    return roots


def find_updates(graph: Graph) -> list[list[Node]]:
    """Return the optimizers' calls, those together that one flat launch takes the place of."""
    together = [list(group.nodes) for group in _find_updates(graph)]
    merged = {node.id for nodes in together for node in nodes}
    return together + [[node] for node in graph.nodes if node.op == "optimizer" and node.id not in merged]


def is_one_update(graph: Graph, nodes: Sequence[Node]) -> bool:
    """Whether one flat launch takes the place of just these nodes."""
    wanted = {node.id for node in nodes}
    return any({node.id for node in group.nodes} == wanted for group in _find_updates(graph))


def _find_free_makers(graph: Graph) -> dict[int, Node]:
    """Return what launches make a value, by its id and those of its views, where the memory is that value's alone and may lie anywhere."""
    makers: dict[int, Node] = {}
    kept = graph.find_kept()
    for node in graph.nodes:
        if find_op(node.op).is_view:
            source = node.inputs[0]
            if source is not None and source.id in makers and source.id not in kept:
                makers[node.outputs[0].id] = makers[source.id]
        elif node.op not in ("Full", "Copy", "flat"):
            makers |= {v.id: node for v in node.outputs if v.id not in kept}
    return makers


def _find_makers(graph: Graph, group: _Together) -> _Together | None:
    """Return the elementwise calls that make a group's gradients, where they are the same but for one operand each."""
    makers = _find_free_makers(graph)
    nodes = [makers[node.inputs[1].id] for node in group.nodes if node.inputs[1] is not None]
    first = nodes[0]
    if any(n.op != "elementwise" or len(n.inputs) != len(first.inputs) or n.attrs["chain"] != first.attrs["chain"] for n in nodes):
        return None
    if len({n.id for n in nodes}) < len(nodes) or any(len(n.outputs) != 1 for n in nodes) or first.inputs[0] is not None:
        return None
    marks = "".join(
        "0" if len({None if v is None else v.id for v in column}) == 1 else "1" for column in zip(*(n.inputs for n in nodes), strict=True)
    )
    own = [[v for v, mark in zip(n.inputs, marks, strict=True) if mark == "1"] for n in nodes]
    shared = [v for v, mark in zip(first.inputs, marks, strict=True) if mark == "0" and v is not None]
    whole = all(
        v is not None and v.id in makers and v.type.num_elems == n.outputs[0].type.num_elems
        for n, vs in zip(nodes, own, strict=True)
        for v in vs
    )
    if not whole or any(v.type.num_elems > 1 for v in shared) or "1" not in marks:
        return None
    return _Together(tuple(nodes), marks)


def _find_readers(graph: Graph, updates: Sequence[_Together]) -> list[_Together]:
    """Return elementwise calls of one operand that all parameters of an update, or all that none has, are read by: casts of weights."""
    lists = [[node.inputs[0] for node in group.nodes] for group in updates]
    taken = {v.id for each in lists for v in each if v is not None}
    lists.append([s.value for s in graph.states if s.role == PARAMETER and s.value.id not in taken])
    makers, found = _find_free_makers(graph), []
    for values in lists:
        readers = [{n.attrs["chain"]: n for n in graph.nodes if _is_cast(n, v) and n.outputs[0].id in makers} for v in values]
        common = [chain for chain in readers[0] if all(chain in each for each in readers)] if len(readers) > 1 else []
        found += [_Together(tuple(each[chain] for each in readers), "01") for chain in common]
    return found


def _is_cast(node: Node, value: Value | None) -> bool:
    is_alone = node.op == "elementwise" and len(node.inputs) == 2 and node.inputs[0] is None and len(node.outputs) == 1
    return is_alone and node.inputs[1] == value and value is not None and node.outputs[0].type.shape == value.type.shape


def _merge(graph: Graph, group: _Together) -> Graph:
    """Return the graph with one call in the place of a group's last node; what reads the others' outputs moves behind it."""
    gone = {n.id for n in group.nodes}
    last = [node for node in graph.nodes if node.id in gone][-1]
    late = {v.id for n in group.nodes for v in n.outputs}
    rewriter = Rewriter(graph)
    delayed: list[Node] | None = []
    for node in graph.nodes:
        if node.id == last.id:
            _call(rewriter, group)
            for waiting in delayed or ():
                rewriter.copy(waiting)
            delayed = None
        elif node.id in gone:
            continue
        elif delayed is not None and any(v is not None and v.id in late for v in node.inputs):
            delayed.append(node)
            late |= {v.id for v in node.outputs}
        else:
            rewriter.copy(node)
    return rewriter.finish()


def _call(rewriter: Rewriter, group: _Together) -> None:
    nodes = group.nodes
    inputs: list[Value | None] = []
    for operand, mark in enumerate(group.grouped):
        inputs += [n.inputs[operand] for n in nodes] if mark == "1" else [nodes[0].inputs[operand]]
    attrs = dict(nodes[0].attrs)
    if nodes[0].op == "elementwise":
        attrs = {"chain": attrs["chain"], "results": " ".join(v.type.dtype for v in nodes[0].outputs)}
    rewriter.stand_for(*nodes)
    made = rewriter.call("flat", inputs, {"op": nodes[0].op, "members": len(nodes), "grouped": group.grouped, "attrs": json.dumps(attrs)})
    taken: Sequence[Value] = [v for i in range(len(nodes[0].outputs)) for v in (n.outputs[i] for n in nodes)]
    rewriter.replace(taken, made)
