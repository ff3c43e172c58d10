"""Numbers that say what values are like, in fp32 whatever these are in: what observers note. They have no gradient."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import REQUIRED, Arrays, Builder, OpDef, Types, V
from aicf.opset.types import Attrs, Type

_MEANINGS: Mapping[str, Callable[..., Any]] = {
    "sum": np.sum,
    "min": np.min,
    "max": np.max,
    "sum_squares": lambda x, axis: np.square(x).sum(axis=axis),
}
# What is left of a value's axes: nothing, its last axis (units), or all others (rows).
_KEEPS = ("none", "units", "rows")
_SERVED = ("float32", "bfloat16", "float16")


def _find_axes(x: Type, attrs: Attrs) -> tuple[int, ...]:
    rank = len(x.shape)
    return {"none": tuple(range(rank)), "units": tuple(range(rank - 1)), "rows": (rank - 1,)}[str(attrs["keep"])]


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    (x,) = types
    assert x is not None
    if attrs["function"] not in _MEANINGS or attrs["keep"] not in _KEEPS:
        wanted = f"{', '.join(_MEANINGS)} and keep one of {', '.join(_KEEPS)}"
        raise ValueError(f"Statistic: function: expected one of {wanted}, got {attrs['function']!r} and {attrs['keep']!r}")
    if not x.is_float or x.num_elems == 0 or (attrs["keep"] != "none" and not x.shape):
        raise TypeError(f"Statistic: expected floating values, at least one, with an axis where one is kept, got {x}")
    axes = _find_axes(x, attrs)
    shape = tuple(n for i, n in enumerate(x.shape) if i not in axes)
    return (Type(x.dtype if x.dtype == "float64" else "float32", shape),)


def _compute(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    (x,) = arrays
    axes = _find_axes(Type(x.dtype.name, x.shape), attrs)
    return (_MEANINGS[str(attrs["function"])](x, axis=axes),)


def _lower(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    x = b.type_of(inputs[0])
    if x.dtype not in _SERVED:
        return None
    (result,) = _infer([x], attrs)
    last = x.shape[-1] if x.shape else 1
    over = {"none": "all", "units": "rows", "rows": "columns"}[str(attrs["keep"])]
    shape = (1, x.num_elems) if over == "all" else (math.prod(x.shape[:-1]), last)
    made = b.one("reduce", b.reshape(inputs[0], shape), reduction=attrs["function"], over=over, result_dtype=result.dtype)
    return [b.reshape(made, result.shape)]


OPS = (
    OpDef(
        "Statistic",
        ("x",),
        ("y",),
        _infer,
        _compute,
        {"function": REQUIRED, "keep": "none"},
        has_gradient=lambda attrs: False,
        amp="never",
        any_float=("x",),
        lower=_lower,
    ),
)
