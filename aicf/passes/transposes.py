"""Permutations that a product, a reduction or another permutation can do without, over forward and backward pass together.

A permutation of values is a copy on a device. Elementwise calls are made before it, so that it comes to stand where it is needed, or next
to one that takes it back; products read a transposed matrix as it lies; sums are taken over the axes where they were. No step adds one.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from aicf.ir import Graph, Node, Rewriter, Value
from aicf.opset import find_dtype
from aicf.opset.reduce import find_axes
from aicf.passes import remove_dead, simplify
from aicf.passes.context import Context
from aicf.passes.engine import rewrite


def count_copies(graph: Graph) -> int:
    """Return how many permutations a graph has, those among them with which products begin."""
    return sum(node.op == "Permute" or (node.op == "MatMul" and bool(node.attrs["transpose_a"])) for node in graph.nodes)


def run(graph: Graph, context: Context) -> Graph:
    """Return the graph with fewer permutations, where kernels are needed; never with more."""
    before = count_copies(graph)
    if context.chooser is None or not before:
        return graph
    while True:
        rules = _Rules(graph, context)
        made = remove_dead.run(simplify.run(rewrite(graph, rules.apply), context), context)
        if not rules.num_applied and len(made.nodes) == len(graph.nodes):
            break
        graph = made
    context.note(f"{before} permutations -> {count_copies(graph)}")
    return graph


@dataclass
class _Rules:
    """The rules on one graph, and how often one was applied."""

    graph: Graph
    context: Context
    num_applied: int = 0

    def __post_init__(self) -> None:
        self._uses, self._kept = self.graph.find_uses(), self.graph.find_kept()

    def apply(self, rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
        """Return what stands in the place of a node's outputs; None where it stays."""
        rule = _BY_OP.get(node.op)
        made = None if rule is None else rule(self, rewriter, node)
        self.num_applied += made is not None
        return made

    def is_alone(self, value: Value, node: Node) -> bool:
        """Whether a node is all that reads a value."""
        return value.id not in self._kept and [n.id for n in self._uses.get(value.id, ())] == [node.id]

    def is_served(self, value: Value, order: tuple[int, ...]) -> bool:
        """Whether a kernel permutes values of a type."""
        assert self.context.chooser is not None
        us = self.context.chooser.predict_us("Permute", [value.type], {"order": order})
        return us is None or not math.isinf(us)


def _read_order(node: Node) -> tuple[int, ...]:
    order = node.attrs["order"]
    assert isinstance(order, tuple)
    return tuple(int(i) for i in order)


def _is_turn(order: Sequence[int]) -> bool:
    """Whether an order swaps the last two axes, and nothing else."""
    rank = len(order)
    return rank >= 2 and list(order) == [*range(rank - 2), rank - 1, rank - 2]


def _sink(rules: _Rules, rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
    """Make an elementwise call before the permutation that all its operands have."""
    order: tuple[int, ...] | None = None
    inputs: list[Value | None] = []
    (y,) = node.outputs
    for value in dict.fromkeys(node.inputs):
        assert value is not None
        if value.type.num_elems == 1 and y.type.num_elems > 1 and len(value.type.shape) == 0:
            continue
        turn = rewriter.find_producer(value, "Permute")
        if turn is None or not rules.is_alone(value, node) or value.type.shape != y.type.shape:
            return None
        if order not in (None, _read_order(turn)):
            return None
        order = _read_order(turn)
    if order is None or (node.op == "Cast" and not _is_no_wider(node)):
        return None
    for value in node.inputs:
        turn = rewriter.find_producer(value, "Permute") if value is not None and value.type.shape else None
        inputs.append(value if turn is None else turn.inputs[0])
    if not y.type.is_float or not rules.is_served(y, order):
        return None
    (made,) = rewriter.call(node.op, inputs, node.attrs)
    return rewriter.call("Permute", (made,), {"order": order})


def _is_no_wider(node: Node) -> bool:
    sizes = [find_dtype(v.type.dtype).itemsize for v in (node.inputs[0], node.outputs[0]) if v is not None]
    return sizes[1] <= sizes[0]


def _reduce(rules: _Rules, rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
    """Reduce over the axes where they were before a permutation."""
    value = node.inputs[0]
    turn = rewriter.find_producer(value, "Permute")
    if value is None or turn is None or node.attrs["keep"]:
        return None
    order, rank = _read_order(turn), len(value.type.shape)
    axes = find_axes(node.attrs, rank)
    there = sorted(order[a] for a in axes)
    rest = [order[i] for i in range(rank) if i not in axes]
    # Reductions over axes between others are lowered with a permutation of their own.
    if rest != sorted(rest) or there not in (list(range(len(there))), list(range(rank - len(there), rank))):
        return None
    return rewriter.call("Reduce", turn.inputs, {**node.attrs, "axes": tuple(there)})


def _multiply(rules: _Rules, rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
    """Read transposed matrices as they lie: the right one always, the left one where a product transposes it back."""
    a, b = node.inputs
    ta, tb = bool(node.attrs["transpose_a"]), bool(node.attrs["transpose_b"])
    left, right = (rewriter.find_producer(v, "Permute") for v in (a, b))
    if right is not None and _is_turn(_read_order(right)):
        return rewriter.call("MatMul", (a, right.inputs[0]), {"transpose_a": ta, "transpose_b": not tb})
    if ta and left is not None and _is_turn(_read_order(left)):
        return rewriter.call("MatMul", (left.inputs[0], b), {"transpose_a": False, "transpose_b": tb})
    return None


def _turn_product(rules: _Rules, rewriter: Rewriter, node: Node) -> Sequence[Value] | None:
    """Write a transposed product as the product of the transposed, in the other order, where that takes fewer copies."""
    value = node.inputs[0]
    product = rewriter.find_producer(value, "MatMul")
    if value is None or product is None or not _is_turn(_read_order(node)) or not rules.is_alone(value, node):
        return None
    a, b = product.inputs
    ta, tb = bool(product.attrs["transpose_a"]), bool(product.attrs["transpose_b"])
    assert a is not None and b is not None
    # The product's own copy of what is left then, against the present one's and the permutation.
    if len(a.type.shape) != len(b.type.shape) or int(not tb) >= int(ta) + 1:
        return None
    return rewriter.call("MatMul", (b, a), {"transpose_a": not tb, "transpose_b": not ta})


_BY_OP: Mapping[str, Callable[[_Rules, Rewriter, Node], Sequence[Value] | None]] = {
    "Elementwise": _sink,
    "Cast": _sink,
    "Reduce": _reduce,
    "MatMul": _multiply,
    "Permute": _turn_product,
}
