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


_REDUCED = ("float32", "bfloat16", "float16")


def _lower(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Lower a reduction over the first axes, the last ones or all to that of a matrix; others come last before."""
    x = b.type_of(inputs[0])
    rank, count = len(x.shape), x.num_elems
    axes = find_axes(attrs, rank)
    (result,) = _infer([x], attrs)
    if x.dtype not in _REDUCED or not axes or count == 0:
        return None
    along = math.prod(x.shape[a] for a in axes)
    if len(axes) == rank:
        over, shape = "all", (1, count)
    elif axes == tuple(range(len(axes))):
        over, shape = "rows", (along, count // along)
    elif axes == tuple(range(axes[0], rank)):
        over, shape = "columns", (count // along, along)
    else:
        rest = [i for i in range(rank) if i not in axes]
        turned = b.one("Permute", inputs[0], order=(*rest, *axes))
        made = b.one("Reduce", turned, function=attrs["function"], axes=tuple(range(len(rest), rank)), keep=False)
        return [b.reshape(made, result.shape)]
    made = b.one("reduce", b.reshape(inputs[0], shape), reduction=attrs["function"], over=over, result_dtype=result.dtype)
    return [b.reshape(made, result.shape)]


# ---- the sum of all squares of several values, of which norms are made


def _infer_squares(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    there = [t for t in types if t is not None]
    if not there or any(not t.is_float for t in there):
        raise TypeError(f"SumSquares: takes at least one value of a floating dtype, got {', '.join(map(str, there)) or 'none'}")
    return (Type("float64" if all(t.dtype == "float64" for t in there) else "float32", ()),)


def _lower_squares(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    parts = []
    for x in inputs:
        t = b.type_of(x)
        if t.dtype not in _REDUCED or t.num_elems == 0:
            return None
        parts.append(b.one("reduce", b.reshape(x, (1, t.num_elems)), reduction="sum_squares", over="all", result_dtype="float32"))
    return [b.total(parts)]


def _differentiate_squares(g: Backward, dy: V) -> list[V | None]:
    found: list[V | None] = []
    while g.has(name := f"x{len(found)}"):
        found.append(g.scale(g.mul(g[name], g.cast(dy, g.of(name).dtype)), 2.0) if name in g.needed else None)
    return found


# ---- the frozen op


_OVER = {"all": None, "rows": 0, "columns": 1}


def _infer_frozen(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    (x,) = types
    assert x is not None
    if len(x.shape) != 2 or attrs["over"] not in _OVER:
        raise ValueError(f"reduce: expected a matrix, and over one of {', '.join(_OVER)}, got {x} and {attrs['over']!r}")
    shape = {"all": (), "rows": x.shape[1:], "columns": x.shape[:1]}[str(attrs["over"])]
    return (Type(str(attrs["result_dtype"]), shape),)


def _compute_frozen(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    (x,), axis, reduction = arrays, _OVER[str(attrs["over"])], str(attrs["reduction"])
    if reduction in ("sum_squares", "l2_norm"):
        squares = np.square(x).sum(axis=axis)
        return (np.sqrt(squares) if reduction == "l2_norm" else squares,)
    return (np.argmax(x, axis=axis) if reduction == "argmax" else _MEANINGS[reduction](x, axis=axis),)


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
    OpDef(
        "SumSquares",
        ("x*",),
        ("y",),
        _infer_squares,
        lambda arrays, attrs: (sum(np.square(x).sum() for x in arrays),),
        {},
        _differentiate_squares,
        lambda attrs, needed: set(needed),
        amp="never",
        any_float=("*",),
        lower=_lower_squares,
    ),
    OpDef(
        "reduce",
        ("x",),
        ("y",),
        _infer_frozen,
        _compute_frozen,
        {"reduction": REQUIRED, "over": "all", "result_dtype": "float32"},
        is_frozen=True,
    ),
)
