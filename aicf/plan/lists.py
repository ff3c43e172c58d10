"""Values in adjacent places, so that one launch can take them as one."""

from __future__ import annotations

from aicf.ir import Graph, Value
from aicf.ir.graph import COPY
from aicf.opset import Type, find_dtype, find_op
from aicf.opset.flat import MEMBER_ELEMS, split_inputs


def find_member_bytes(t: Type) -> int:
    """Return the bytes from the beginning of a member of a list to that of the next one."""
    return -(-t.num_elems // MEMBER_ELEMS) * MEMBER_ELEMS * find_dtype(t.dtype).itemsize


def find_roots(graph: Graph) -> dict[int, int]:
    """Return for each view the id of the value whose memory it is."""
    roots: dict[int, int] = {}
    for node in graph.nodes:
        if find_op(node.op).is_view:
            assert node.inputs[0] is not None
            roots[node.outputs[0].id] = roots.get(node.inputs[0].id, node.inputs[0].id)
    return roots


def find_lists(graph: Graph) -> list[list[Value]]:
    """Return the lists that flat launches read and write, each once, by the values whose memory it is.

    Outputs that take the memory of an input are left out.
    """
    roots = find_roots(graph)
    values = {s.value.id: s.value for s in graph.states} | {v.id: v for node in graph.nodes for v in node.outputs}
    # Copies of parameters are made anew every run, where they are read in the next one.
    copies = {s.value.id for s in graph.states if s.role == COPY}
    becomes = {new.id: state for state, new in graph.updates if state.id in copies}
    found: dict[tuple[int, ...], list[Value]] = {}
    for node in graph.nodes:
        if node.op != "flat":
            continue
        operands, members = split_inputs(node.inputs, node.attrs)
        lists = [each for each in operands if len(each) > 1]
        made = [node.outputs[i : i + members] for i in range(0, len(node.outputs), members)]
        taken = [find_op("flat").find_taken(i * members, len(node.inputs), node.attrs) for i in range(len(made))]
        lists += [list(each) for each, at in zip(made, taken, strict=True) if at is None]
        for each in lists:
            held = [becomes.get(v.id) or values[roots.get(v.id, v.id)] for v in each]
            if len(held) > 1:
                found.setdefault(tuple(v.id for v in held), held)
    # Parts of a list come behind it: they are in their places then.
    return sorted(found.values(), key=len, reverse=True)


def find_last_reads(graph: Graph) -> dict[int, int]:
    """Return where each buffer of a state is read last, views of it included."""
    roots = {s.value.id: s.value.id for s in graph.states}
    found: dict[int, int] = {}
    for i, node in enumerate(graph.nodes):
        for value in node.inputs:
            if value is not None and value.id in roots:
                found[roots[value.id]] = i
                if find_op(node.op).is_view:
                    roots[node.outputs[0].id] = roots[value.id]
    kept = {v.id for v in graph.outputs} | {new.id for _, new in graph.updates}
    for value_id, root in roots.items():
        if value_id in kept:  # read by a copy at the end
            found[root] = len(graph.nodes)
    return found
