"""Matrix products, also of batches, which broadcast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import REQUIRED, Arrays, Backward, Builder, OpDef, Types, V, same_floats
from aicf.opset.types import Attrs, Type, broadcast_shapes


def _infer_matmul(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    a, b = types
    assert a is not None and b is not None
    dtype = same_floats("MatMul", ("a", "b"), types)
    if len(a.shape) < 2 or len(b.shape) < 2:
        raise ValueError(f"MatMul: expected at least 2 dimensions, got {a.shape} and {b.shape}")
    rows, inner = a.shape[-2:][::-1] if attrs["transpose_a"] else a.shape[-2:]
    other, columns = b.shape[-2:][::-1] if attrs["transpose_b"] else b.shape[-2:]
    if inner != other:
        raise ValueError(f"MatMul: inner sizes {inner} and {other} of {a.shape} and {b.shape} differ")
    return (Type(dtype, (*broadcast_shapes("MatMul", a.shape[:-2], b.shape[:-2]), rows, columns)),)


def _matmul(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    a, b = arrays
    return ((np.swapaxes(a, -1, -2) if attrs["transpose_a"] else a) @ (np.swapaxes(b, -1, -2) if attrs["transpose_b"] else b),)


def _differentiate_matmul(g: Backward, dy: V) -> list[V | None]:
    ta, tb = bool(g.attrs["transpose_a"]), bool(g.attrs["transpose_b"])
    da = db = None
    if "a" in g.needed:
        da = g.one("MatMul", g["b"], dy, transpose_a=tb, transpose_b=True) if ta else g.one("MatMul", dy, g["b"], transpose_b=not tb)
        da = g.sum_to(da, g.of("a").shape)
    if "b" in g.needed:
        db = g.one("MatMul", dy, g["a"], transpose_a=True, transpose_b=ta) if tb else g.one("MatMul", g["a"], dy, transpose_a=not ta)
        db = g.sum_to(db, g.of("b").shape)
    return [da, db]


PRODUCT = "product_of_batch"
# More products than this in a row are a kernel that is missing, and no way to do it.
_MAX_PRODUCTS = 64


def _lower_matmul(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    """Lower a product with one matrix on the right to a product of all rows; batches on both sides to a product for each."""
    left, right = inputs
    shape, columns = b.type_of(left).shape, b.type_of(right).shape[0 if attrs["transpose_b"] else -1]
    if len(b.type_of(right).shape) > 2 or (attrs["transpose_a"] and len(shape) > 2):
        return _lower_batch(b, inputs, attrs)
    if attrs["transpose_a"]:
        left, shape = b.one("Permute", left, order=(1, 0)), shape[::-1]
    rows = b.reshape(left, (math.prod(shape[:-1]), shape[-1]))
    made = b.one("gemm_bias_act", rows, right, None, b_layout="nk" if attrs["transpose_b"] else "kn")
    return [b.reshape(made, (*shape[:-1], columns))]


def _lower_batch(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    """Lower to a loop: no frozen op multiplies batches. Each product reads and writes its matrices where they lie in the whole."""
    types = [b.type_of(x) for x in inputs]
    (made,) = _infer_matmul(types, attrs)
    batch, count = made.shape[:-2], math.prod(made.shape[:-2])
    if made.num_elems == 0 or types[0].num_elems == 0 or count > _MAX_PRODUCTS or made.dtype == "float64":
        return None
    wholes, numbers = [], []
    for x, t in zip(inputs, types, strict=True):
        own = math.prod(t.shape[:-2])
        wholes.append(b.reshape(x, (own, *t.shape[-2:])))
        numbers.append(np.broadcast_to(np.arange(own).reshape(t.shape[:-2]), batch).reshape(-1).tolist())
    if attrs["transpose_a"]:
        wholes[0] = b.one("Permute", wholes[0], order=(0, 2, 1))
    layout = "nk" if attrs["transpose_b"] else "kn"
    y = b.broadcast(b.full(0.0, wholes[0]), (count, *made.shape[-2:]))
    for i, (left, right) in enumerate(zip(*numbers, strict=True)):
        y = b.one(PRODUCT, y, *wholes, matrices=(i, left, right), b_layout=layout)
    return [b.reshape(y, made.shape)]


# ---- one product of a batch, by the frozen op that multiplies matrices


def _infer_product(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    into, a, w = types
    matrices = attrs["matrices"]
    assert into is not None and a is not None and w is not None and isinstance(matrices, tuple)
    same_floats(PRODUCT, ("into", "a", "b"), types)
    if any(len(t.shape) != 3 or not 0 <= i < t.shape[0] for t, i in zip((into, a, w), matrices, strict=True)):
        raise ValueError(f"{PRODUCT}: matrices {matrices} are not in {into}, {a} and {w}")
    inner, columns = w.shape[1:] if attrs["b_layout"] == "kn" else w.shape[:0:-1]
    if (*into.shape[1:], inner) != (a.shape[1], columns, a.shape[2]):
        raise ValueError(f"{PRODUCT}: {a} and {w} ({attrs['b_layout']}) do not make {into}")
    return (into,)


def _product(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    into, a, w = arrays
    matrices = attrs["matrices"]
    assert isinstance(matrices, tuple)
    target, left, right = matrices
    made = np.array(into)
    made[target] = a[left] @ (w[right] if attrs["b_layout"] == "kn" else w[right].T)
    return (made,)


OPS = (
    OpDef(
        "MatMul",
        ("a", "b"),
        ("y",),
        _infer_matmul,
        _matmul,
        {"transpose_a": False, "transpose_b": False},
        _differentiate_matmul,
        lambda attrs, needed: ({"b"} if "a" in needed else set()) | ({"a"} if "b" in needed else set()),
        amp="always",
        lower=_lower_matmul,
    ),
    OpDef(
        PRODUCT,
        ("into", "a", "b"),
        ("y",),
        _infer_product,
        _product,
        {"matrices": REQUIRED, "b_layout": "kn"},
        is_frozen=True,
        in_place={"y": "into"},
    ),
)
