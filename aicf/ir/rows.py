"""Whether the rows of a graph's inputs go through it each by itself, so that rows may be added and cut off again.

A row is an index of the first axis. What an op does with rows is written down here for those that keep them apart; any other mixes them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping

from aicf.ir.graph import Graph, Node
from aicf.opset import find_op
from aicf.opset.types import normalise_axes

Rule = Callable[[Node, frozenset[int]], bool]


def find_row_outputs(graph: Graph, inputs: Collection[int]) -> list[bool] | str:
    """Return which outputs have a row for each row of the inputs (by value id), made of that row alone; else the place where rows mix."""
    carrying = set(inputs)
    for node in graph.nodes:
        taken = frozenset(i for i, v in enumerate(node.inputs) if v is not None and v.id in carrying)
        if not taken:
            continue
        rule = _RULES.get(node.op)
        if rule is None or not rule(node, taken):
            return f"{node.place} mixes rows"
        carrying |= {v.id for v in node.outputs}
    mixed = next((state for state, new in graph.updates if new.id in carrying), None)
    if mixed is not None:
        return f"state {mixed} is made of rows"
    return [v.id in carrying for v in graph.outputs]


def _shapes(node: Node) -> list[tuple[int, ...]]:
    return [() if v is None else v.type.shape for v in node.inputs]


def _count_rows(node: Node, taken: frozenset[int]) -> int:
    """Return the rows of the inputs that have some, -1 where one has another number."""
    found = {_shapes(node)[i][0] if _shapes(node)[i] else -1 for i in taken}
    return found.pop() if len(found) == 1 else -1


def _keeps_elements(node: Node, taken: frozenset[int]) -> bool:
    """Elementwise, with broadcasting: what has rows has them on the result's first axis."""
    made = node.outputs[0].type.shape
    return bool(made) and all(len(_shapes(node)[i]) == len(made) and _shapes(node)[i][0] == made[0] for i in taken)


def _keeps_last_axis_apart(node: Node, taken: frozenset[int]) -> bool:
    """Work along the last axis of the first input, with weights that all rows share."""
    return taken == {0} and len(_shapes(node)[0]) >= 2


def _keeps_products(node: Node, taken: frozenset[int]) -> bool:
    left, right = _shapes(node)[:2]
    if taken == {0}:
        has_batch = len(left) >= 3 and (len(right) < len(left) or right[0] == 1)
        return has_batch or (len(left) == 2 and len(right) == 2 and not node.attrs["transpose_a"])
    return taken == {0, 1} and len(left) == len(right) >= 3


def _keeps_reductions(node: Node, taken: frozenset[int]) -> bool:
    axes = node.attrs["axes"]
    rank = len(_shapes(node)[0])
    assert axes is None or isinstance(axes, (int, tuple))
    return rank > 0 and 0 not in normalise_axes(axes, rank, node.op)


def _keeps_first_extent(node: Node, taken: frozenset[int]) -> bool:
    made = node.outputs[0].type.shape
    return bool(made) and _count_rows(node, taken) == made[0]


def _keeps_broadcast(node: Node, taken: frozenset[int]) -> bool:
    return len(_shapes(node)[0]) == len(node.outputs[0].type.shape) and _keeps_first_extent(node, taken)


def _keeps_order(node: Node, taken: frozenset[int]) -> bool:
    order = node.attrs["order"]
    assert isinstance(order, tuple)
    return order[0] == 0


def _keeps_whole_axis(node: Node, taken: frozenset[int]) -> bool:
    starts = node.attrs["starts"]
    assert isinstance(starts, tuple)
    return starts[0] == 0 and _keeps_first_extent(node, taken)


def _keeps_padding(node: Node, taken: frozenset[int]) -> bool:
    return _keeps_first_extent(node, taken)


def _keeps_joins(node: Node, taken: frozenset[int]) -> bool:
    axis = node.attrs["axis"]
    assert isinstance(axis, int)
    return axis % len(node.outputs[0].type.shape) != 0


_RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Elementwise", "Cast", "Copy"), _keeps_elements),
    **dict.fromkeys(("Linear", "LayerNorm", "RMSNorm", "Softmax", "LogSoftmax"), _keeps_last_axis_apart),
    "MatMul": _keeps_products,
    "Reduce": _keeps_reductions,
    "Reshape": _keeps_first_extent,
    "Broadcast": _keeps_broadcast,
    "Permute": _keeps_order,
    "Slice": _keeps_whole_axis,
    "Pad": _keeps_padding,
    "Concat": _keeps_joins,
    "Embedding": lambda node, taken: taken == {1},
    # A mask is told by an element's number, row by row.
    "Dropout": lambda node, taken: taken == {0},
}


def find_varying_number(one: Graph, other: Graph) -> str:
    """Return where two recordings of one function, of other numbers of rows, compute with other numbers; "" where they do not.

    What Python computes of a shape becomes a constant; what is computed with it is right for that number of rows alone.
    """
    if [n.op for n in one.nodes] != [n.op for n in other.nodes]:
        return "another graph was recorded"
    for a, b in zip(one.nodes, other.nodes, strict=True):
        known = find_op(a.op).attributes
        for name in known:
            mine, theirs = a.attrs[name], b.attrs[name]
            if mine != theirs and (isinstance(mine, float) or isinstance(theirs, float) or name == "value"):
                return f"{a.place} has {name} = {mine!r} for these rows, and {theirs!r} for more"
    return ""
