"""Parameters that are read in 16 bits: the launch that updates one writes it in 16 bits too, and no run casts it.

The copy is a state of the parameter's, and holds its values, rounded, at the beginning of every run. Whoever changes the parameter between
two runs leaves the copy behind: the program that holds both makes it again (:class:`aicf.train.compiled.Compiled`).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.ir.graph import COPY, PARAMETER
from aicf.opset import find_op
from aicf.opset.chains import is_copy
from aicf.passes.context import Context
from aicf.passes.flatten import find_updates


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph without casts of parameters that an update can write, where kernels are needed."""
    if context.chooser is None:
        return graph
    owners = {s.value.id: s.owner for s in graph.states if s.role == PARAMETER}
    copied: dict[int, Node] = {}  # the updates that get a copy, by node id
    casts: dict[int, Value] = {}  # by node id: the parameter that is cast
    for together in find_updates(graph):
        found = [_find_casts(graph, node, owners) for node in together]
        if any(found) and all(_is_served(node, context) for node in together):
            copied |= {node.id: node for node in together}
            casts |= {cast.id: node.inputs[0] for node, each in zip(together, found, strict=True) for cast in each if node.inputs[0]}
    if not copied:
        return graph
    context.note(f"{len(casts)} casts of parameters are made by the update of the run before")
    return _rewrite(graph, copied, casts, owners)


def _rewrite(graph: Graph, copied: Mapping[int, Node], casts: Mapping[int, Value], owners: Mapping[int, str]) -> Graph:
    rewriter = Rewriter(graph)
    copies = {}
    for node in copied.values():
        p, gradient = node.inputs[:2]
        assert p is not None and gradient is not None
        copies[p.id] = rewriter.add_state(owners[p.id], COPY, gradient.type.reshape(p.type.shape))
    updates = list(graph.updates)
    for node in graph.nodes:
        if node.id in casts:
            rewriter.replace(node.outputs, [copies[casts[node.id].id]])
        elif node.id in copied:
            rewriter.stand_for(node)
            made = rewriter.call(node.op, node.inputs, {**node.attrs, "with_copy": True})
            rewriter.replace(node.outputs, (*made[:3], *made[4:]))
            assert node.inputs[0] is not None
            updates.append((copies[node.inputs[0].id], made[3]))
        else:
            rewriter.copy(node)
    return rewriter.finish(updates=updates)


def _find_casts(graph: Graph, update: Node, owners: Mapping[int, str]) -> list[Node]:
    """Return the casts of an update's parameter to its gradient's dtype whose results are read before the update alone."""
    p, gradient = update.inputs[:2]
    if p is None or gradient is None or p.id not in owners or p.type.dtype != "float32" or gradient.type.dtype == p.type.dtype:
        return []
    order, uses, kept = {node.id: i for i, node in enumerate(graph.nodes)}, graph.find_uses(), graph.find_kept()
    found = []
    for node in uses.get(p.id, ()):
        if not is_copy(node.op, node.inputs, node.attrs) or [v.type.dtype for v in node.outputs] != [gradient.type.dtype]:
            continue
        readers, values = _find_readers(node.outputs[0], uses)
        if not kept & values and all(order[reader.id] < order[update.id] for reader in readers):
            found.append(node)
    return found


def _find_readers(value: Value, uses: Mapping[int, Sequence[Node]]) -> tuple[list[Node], set[int]]:
    """Return the nodes that read a value or a view of it, and the ids of these values."""
    readers, values = list(uses.get(value.id, ())), {value.id}
    for node in list(readers):
        if find_op(node.op).is_view:
            more, views = _find_readers(node.outputs[0], uses)
            readers, values = readers + more, values | views
    return readers, values


def _is_served(node: Node, context: Context) -> bool:
    assert context.chooser is not None
    p, gradient = node.inputs[:2]
    if p is None or gradient is None or p.type.dtype != "float32":
        return False
    us = context.chooser.predict_us(node.op, [None if v is None else v.type for v in node.inputs], {**node.attrs, "with_copy": True})
    return us is None or not math.isinf(us)
