"""Matrix products, also of batches, which broadcast."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import Arrays, Backward, Builder, OpDef, Types, V, same_floats
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


def _lower_matmul(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    """Lower a product with one matrix on the right; batches on both sides have no frozen op."""
    left, right = inputs
    shape, columns = b.type_of(left).shape, b.type_of(right).shape[0 if attrs["transpose_b"] else -1]
    if len(b.type_of(right).shape) > 2 or (attrs["transpose_a"] and len(shape) > 2):
        return None
    if attrs["transpose_a"]:
        left, shape = b.one("Permute", left, order=(1, 0)), shape[::-1]
    rows = b.reshape(left, (math.prod(shape[:-1]), shape[-1]))
    made = b.one("gemm_bias_act", rows, right, None, b_layout="nk" if attrs["transpose_b"] else "kn")
    return [b.reshape(made, (*shape[:-1], columns))]


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
)
