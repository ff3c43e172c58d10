"""The frozen ops softmax and softmax_backward, over the rows of a matrix: scaled by one number in memory, masked, or as a logarithm."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicf.opset.definition import Arrays, Backward, OpDef, Types, V, same_floats
from aicf.opset.softmax import compute_softmax_grad, differentiate_softmax_grad, infer_softmax_grad, log_softmax, softmax
from aicf.opset.types import Attrs, Type

# What each mask is given by.
_MASKS = {"none": (), "causal": ("queries",), "boolean": ("keep",)}


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x, scale, keep, queries = types
    assert x is not None
    same_floats("softmax", ("x",), (x,))
    if len(x.shape) != 2 or x.shape[1] < 1:
        raise ValueError(f"softmax: x: expected a matrix of at least one column, got {x}")
    if attrs["mask"] not in _MASKS:
        raise ValueError(f"softmax: mask: expected one of {', '.join(_MASKS)}, got {attrs['mask']!r}")
    wanted = _MASKS[str(attrs["mask"])]
    expected = {"keep": Type("bool", x.shape), "queries": Type("int64", ())}
    for name, found in (("keep", keep), ("queries", queries)):
        if found != (expected[name] if name in wanted else None):
            raise ValueError(
                f"softmax: {name}: expected {expected[name] if name in wanted else None} with mask {attrs['mask']!r}, got {found}"
            )
    _check_scale("softmax", scale)
    return (x,)


def _check_scale(op: str, scale: Type | None) -> None:
    if scale not in (None, Type("float32", ()), Type("float64", ())):
        raise ValueError(f"{op}: scale: expected one float32, got {scale}")


def _softmax(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    x, scale, keep, queries = arrays
    x = x if scale is None else x * scale
    if queries is not None:
        keep = np.arange(x.shape[1]) <= np.arange(len(x))[:, np.newaxis] % queries
    if keep is None:
        return (log_softmax(x) if attrs["log"] else softmax(x),)
    x = np.where(keep, x, -np.inf)
    is_empty = np.isneginf(x).all(-1, keepdims=True)  # a row of which nothing finite is to be seen
    y = log_softmax(np.where(is_empty, 0.0, x)) if attrs["log"] else softmax(np.where(is_empty, 0.0, x))
    return (np.where(is_empty, -np.inf if attrs["log"] else 0.0, y),)


def _differentiate(g: Backward, dy: V) -> tuple[V, None, None, None]:
    _refuse_scale("softmax", g)
    return (g.one("softmax_backward", dy, g["y"], g["scale"] if g.has("scale") else None, log=g.attrs["log"]), None, None, None)


def _refuse_scale(op: str, g: Backward) -> None:
    if "scale" in g.needed:
        raise NotImplementedError(f"{op}: scale has no gradient; multiply x by it instead")


def _infer_backward(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    _check_scale("softmax_backward", types[2])
    return infer_softmax_grad(types, attrs)


def _softmax_backward(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    dy, y, scale = arrays
    dx = compute_softmax_grad(dy, y, is_log=bool(attrs["log"]))
    return (dx if scale is None else dx * scale,)


def _differentiate_backward(g: Backward, ddx: V) -> tuple[V, V, None]:
    _refuse_scale("softmax_backward", g)
    if g.has("scale"):
        ddx = g.mul(ddx, g.cast(g["scale"], g.of("y").dtype))
    return (*differentiate_softmax_grad(g, ddx), None)


OPS = (
    OpDef(
        "softmax",
        ("x", "scale?", "keep?", "queries?"),
        ("y",),
        _infer,
        _softmax,
        {"log": False, "mask": "none"},
        _differentiate,
        lambda attrs, needed: {"y", "scale"},
        is_frozen=True,
        any_float=("scale",),
    ),
    OpDef(
        "softmax_backward",
        ("dy", "y", "scale?"),
        ("dx",),
        _infer_backward,
        _softmax_backward,
        {"log": False},
        _differentiate_backward,
        lambda attrs, needed: {"dy", "y", "scale"},
        is_frozen=True,
        any_float=("scale",),
    ),
)
