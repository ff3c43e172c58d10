"""How each op couples the dimensions of its values: a rule per op, which :mod:`aicf.rewrite.dimensions` calls node by node."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Protocol

from aicf.ir import Node, Value
from aicf.opset.types import normalise_axes


class Couplings(Protocol):
    """What rules say of the dimensions of a graph."""

    def join(self, a: Value, axis: int, b: Value, other: int) -> None:
        """Couple two dimensions, one of which is made of the other."""

    def split(self, whole: Value, axis: int, made: Value, axes: Sequence[int]) -> None:
        """Couple a dimension with several others that it is the product of, the last of which is counted first."""

    def sum_over(self, node: Node, a: Value, axis: int, b: Value, other: int) -> None:
        """Couple two dimensions that are summed over together."""

    def fix(self, value: Value, axis: int, why: str) -> None:
        """Note why a dimension cannot change."""

    def take_mean(self, value: Value, axis: int, where: str) -> None:
        """Note that a mean over a dimension is taken: units must be copied equally often."""


Rule = Callable[[Couplings, Node], None]


def _inputs(node: Node) -> list[Value]:
    return [v for v in node.inputs if v is not None]


def refuse(d: Couplings, node: Node) -> None:
    """Fix all dimensions of an op without a rule."""
    for value in (*_inputs(node), *node.outputs):
        for axis in range(len(value.type.shape)):
            d.fix(value, axis, f"goes through {node.place}, which does not carry copies of units")


def _keep_elements(d: Couplings, node: Node) -> None:
    """Elementwise, with broadcasting."""
    made = node.outputs[0]
    for value in _inputs(node):
        shift = len(made.type.shape) - len(value.type.shape)
        for axis, n in enumerate(value.type.shape):
            if n == made.type.shape[axis + shift]:
                d.join(made, axis + shift, value, axis)


def _multiply_by_weight(d: Couplings, node: Node) -> None:
    """``y [..., N] = x [..., K] w [N, K]' + bias [N]``."""
    x, w, bias = node.inputs
    assert x is not None and w is not None
    last = len(x.type.shape) - 1
    d.sum_over(node, x, last, w, 1)
    for y in node.outputs:
        for axis in range(last):
            d.join(y, axis, x, axis)
        d.join(y, last, w, 0)
    if bias is not None:
        d.join(node.outputs[0], last, bias, 0)


def _multiply(d: Couplings, node: Node) -> None:
    a, b = _inputs(node)
    y = node.outputs[0]
    (rows, inner), (other, columns) = _matrix_axes(a, bool(node.attrs["transpose_a"])), _matrix_axes(b, bool(node.attrs["transpose_b"]))
    d.sum_over(node, a, inner, b, other)
    rank = len(y.type.shape)
    d.join(y, rank - 2, a, rows)
    d.join(y, rank - 1, b, columns)
    for value in (a, b):
        shift = rank - len(value.type.shape)
        for axis in range(len(value.type.shape) - 2):
            if value.type.shape[axis] == y.type.shape[axis + shift]:
                d.join(y, axis + shift, value, axis)


def _matrix_axes(value: Value, is_transposed: bool) -> tuple[int, int]:
    rank = len(value.type.shape)
    return (rank - 1, rank - 2) if is_transposed else (rank - 2, rank - 1)


def _normalise(d: Couplings, node: Node) -> None:
    """Mean and variance along the last axis stay as they are where all units are copied equally often."""
    x, *scales = node.inputs
    assert x is not None
    last = len(x.type.shape) - 1
    for axis in range(last + 1):
        d.join(node.outputs[0], axis, x, axis)
    d.take_mean(x, last, node.place)
    for scale in scales:
        if scale is not None:
            d.join(x, last, scale, 0)
    for statistic in node.outputs[1:]:
        for axis, n in enumerate(statistic.type.shape):
            if axis < last and n == x.type.shape[axis]:
                d.join(statistic, axis, x, axis)


def _keep_all_but_last(d: Couplings, node: Node) -> None:
    x, *_ = _inputs(node)
    last = len(x.type.shape) - 1
    for y in node.outputs:
        for axis in range(last):
            d.join(y, axis, x, axis)
        d.fix(y, last, f"is normalised over by {node.place}")
    d.fix(x, last, f"is normalised over by {node.place}")


def _reduce(d: Couplings, node: Node) -> None:
    (x,) = _inputs(node)
    axes, y = node.attrs["axes"], node.outputs[0]
    assert axes is None or isinstance(axes, (int, tuple))
    gone = set(normalise_axes(axes, len(x.type.shape), node.op))
    at = 0
    for axis in range(len(x.type.shape)):
        if axis not in gone:
            d.join(y, at, x, axis)
        elif node.attrs["function"] == "mean":
            d.take_mean(x, axis, node.place)
        elif node.attrs["function"] not in ("max", "min"):
            d.fix(x, axis, f"is summed over by {node.place}")
        at += axis not in gone or bool(node.attrs["keep"])


def _reshape(d: Couplings, node: Node) -> None:
    """Keep a dimension, or take it apart into several, or join several."""
    (x,), y = _inputs(node), node.outputs[0]
    if 0 in x.type.shape:
        refuse(d, node)
        return
    for mine, theirs in group_axes(x.type.shape, y.type.shape):
        if len(mine) == len(theirs) == 1:
            d.join(y, theirs[0], x, mine[0])
        elif len(mine) == 1:
            d.split(x, mine[0], y, theirs)
        elif len(theirs) == 1:
            d.split(y, theirs[0], x, mine)
        else:
            for value, axes in ((x, mine), (y, theirs)):
                for axis in axes:
                    d.fix(value, axis, f"is joined and taken apart by {node.place}")


def group_axes(one: Sequence[int], two: Sequence[int]) -> list[tuple[list[int], list[int]]]:
    """Return the smallest groups of axes of two shapes, in a row, that have as many elements; axes of one element are in none."""
    mine, theirs = ([axis for axis, n in enumerate(shape) if n != 1] for shape in (one, two))
    groups: list[tuple[list[int], list[int]]] = []
    while mine:
        a, b = [mine.pop(0)], [theirs.pop(0)]
        m, n = one[a[0]], two[b[0]]
        while m != n:
            if m < n:
                a.append(mine.pop(0))
                m *= one[a[-1]]
            else:
                b.append(theirs.pop(0))
                n *= two[b[-1]]
        groups.append((a, b))
    return groups


def _permute(d: Couplings, node: Node) -> None:
    (x,), order = _inputs(node), node.attrs["order"]
    assert isinstance(order, tuple)
    for axis, source in enumerate(order):
        d.join(node.outputs[0], axis, x, source)


def _take_part(d: Couplings, node: Node) -> None:
    """Slices, pads and joins: dimensions that all values share stay."""
    values, y = _inputs(node), node.outputs[0]
    for axis, n in enumerate(y.type.shape):
        if (node.op == "Concat" and axis == node.attrs["axis"]) or any(v.type.shape[axis] != n for v in values):
            for value in (*values, y):
                d.fix(value, axis, f"is cut or joined by {node.place}")
        else:
            for value in values:
                d.join(y, axis, value, axis)


def _look_up(d: Couplings, node: Node) -> None:
    table, indices = _inputs(node)
    y = node.outputs[0]
    d.fix(table, 0, f"is looked up by {node.place}")
    for axis in range(1, len(table.type.shape)):
        d.join(y, len(indices.type.shape) + axis - 1, table, axis)
    for axis in range(len(indices.type.shape)):
        d.join(y, axis, indices, axis)


def _drop(d: Couplings, node: Node) -> None:
    x, y = node.inputs[0], node.outputs[0]
    assert x is not None
    for axis in range(len(x.type.shape)):
        d.join(y, axis, x, axis)


RULES: Mapping[str, Rule] = {
    **dict.fromkeys(("Elementwise", "Cast", "Copy", "Detach", "Broadcast"), _keep_elements),
    **dict.fromkeys(("LayerNorm", "RMSNorm"), _normalise),
    **dict.fromkeys(("Softmax", "LogSoftmax"), _keep_all_but_last),
    **dict.fromkeys(("Slice", "Pad", "Concat"), _take_part),
    "Linear": _multiply_by_weight,
    "MatMul": _multiply,
    "Reduce": _reduce,
    "Reshape": _reshape,
    "Permute": _permute,
    "Embedding": _look_up,
    "Dropout": _drop,
    "Full": lambda d, node: None,
}
