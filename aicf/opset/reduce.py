"""Reductions over axes: sum, mean, max, min, and the index of the maximum."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import REQUIRED, Arrays, Backward, Builder, OpDef, Types, V
from aicf.opset.types import Attrs, Type, normalise_axes

_MEANINGS: dict[str, Callable[..., Any]] = {"sum": np.sum, "mean": np.mean, "max": np.max, "min": np.min}
FUNCTIONS = (*_MEANINGS, "argmax")


def find_axes(attrs: Attrs, rank: int) -> tuple[int, ...]:
    """Return a call's axes, all where it names none."""
    axes = attrs["axes"]
    assert axes is None or isinstance(axes, (int, tuple))
    return normalise_axes(axes, rank, "Reduce")


def keep_axes(shape: Sequence[int], axes: Sequence[int]) -> tuple[int, ...]:
    """Return a shape with 1 in the place of the axes."""
    return tuple(1 if i in axes else n for i, n in enumerate(shape))


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    (x,) = types
    assert x is not None
    function = str(attrs["function"])
    if function not in FUNCTIONS:
        raise ValueError(f"Reduce: no function {function!r}; there are: {', '.join(FUNCTIONS)}")
    axes = find_axes(attrs, len(x.shape))
    if function == "mean" and not x.is_float:
        raise TypeError(f"Reduce mean: expected a floating dtype, got {x.dtype}")
    if function == "argmax" and len(axes) != 1:
        raise ValueError(f"Reduce argmax: takes one axis, got {axes}")
    if function != "sum" and any(x.shape[a] == 0 for a in axes):
        raise ValueError(f"Reduce {function}: shape {x.shape} has nothing to reduce along {axes}")
    kept = keep_axes(x.shape, axes)
    shape = kept if attrs["keep"] else tuple(n for i, n in enumerate(kept) if i not in axes)
    return (Type("int64" if function == "argmax" else x.dtype, shape),)


def _evaluate(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    (x,) = arrays
    axes, keep = find_axes(attrs, x.ndim), bool(attrs["keep"])
    if attrs["function"] == "argmax":
        return (np.argmax(x, axis=axes[0], keepdims=keep),)
    return (_MEANINGS[str(attrs["function"])](x, axis=axes, keepdims=keep),)


def _differentiate(g: Backward, dy: V) -> tuple[V]:
    shape = g.of("x").shape
    axes = find_axes(g.attrs, len(shape))
    kept = keep_axes(shape, axes)
    wide = g.broadcast(g.reshape(dy, kept), shape)
    function = g.attrs["function"]
    if function == "sum":
        return (wide,)
    if function == "mean":
        return (g.scale(wide, 1.0 / max(math.prod(shape[a] for a in axes), 1)),)
    # Elements that tie share the gradient equally.
    won = g.cast(g.each("eq", g["x"], g.reshape(g["y"], kept)), g.of("x").dtype)
    return (g.div(g.mul(wide, won), g.reduce("sum", won, axes, keep=True)),)


def _lower(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Lower a sum over the rows or the columns of a matrix to a product with ones, which accumulates in fp32."""
    x = b.type_of(inputs[0])
    axes, rank = find_axes(attrs, len(x.shape)), len(x.shape)
    function, count = str(attrs["function"]), math.prod(x.shape[a] for a in axes)
    (result,) = _infer([x], attrs)
    if function not in ("sum", "mean") or x.dtype not in _SUMMED or not axes or count == 0:
        return None
    if axes == tuple(range(len(axes))):
        ones = b.one("Full", value=1.0, dtype=x.dtype, shape=(1, count))
        made = b.one("gemm_bias_act", ones, b.reshape(inputs[0], (count, x.num_elems // count)), None, b_layout="kn")
    elif axes == tuple(range(axes[0], rank)):
        ones = b.one("Full", value=1.0, dtype=x.dtype, shape=(count, 1))
        made = b.one("gemm_bias_act", b.reshape(inputs[0], (x.num_elems // count, count)), ones, None, b_layout="kn")
    else:
        return None
    made = b.reshape(made, result.shape)
    return [b.scale(made, 1.0 / count) if function == "mean" else made]


_SUMMED = ("float32", "bfloat16", "float16")


def has_gradient(attrs: Attrs) -> bool:
    """Whether a reduction has a gradient; an index has none."""
    return attrs["function"] != "argmax"


OPS = (
    OpDef(
        "Reduce",
        ("x",),
        ("y",),
        _infer,
        _evaluate,
        {"function": REQUIRED, "axes": None, "keep": False},
        _differentiate,
        lambda attrs, needed: {"x", "y"} if attrs["function"] in ("max", "min") else set(),
        has_gradient,
        amp="never",
        lower=_lower,
    ),
)
