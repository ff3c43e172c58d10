"""Softmax and its logarithm over the last axis, and their gradients by their results."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import Backward, Builder, OpDef, Types, V, same_floats
from aicf.opset.types import Attrs, Type


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    (x,) = types
    assert x is not None
    same_floats("Softmax", ("x",), types)
    if not x.shape or x.shape[-1] < 1:
        raise ValueError(f"Softmax: expected at least one element along the last axis, got shape {x.shape}")
    return (x,)


def log_softmax(x: Any) -> Any:
    """Return the logarithm of softmax over the last axis."""
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def softmax(x: Any) -> Any:
    """Return softmax over the last axis."""
    weights = np.exp(x - x.max(-1, keepdims=True))
    return weights / weights.sum(-1, keepdims=True)


def _lower(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    return _lower_rows(b, "softmax", inputs, (None, None, None), {"log": False})


def _lower_log(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    return _lower_rows(b, "softmax", inputs, (None, None, None), {"log": True})


def _lower_grad(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    return _lower_rows(b, "softmax_backward", inputs, (None,), attrs)


def _lower_rows(b: Builder, op: str, inputs: Sequence[V | None], rest: Sequence[None], attrs: Attrs) -> list[V] | None:
    """Return the call by a frozen op, which takes matrices of up to 32 bits, without its optional inputs."""
    t = b.type_of(inputs[0])
    if t.dtype == "float64":
        return None
    shape = (math.prod(t.shape[:-1]), t.shape[-1])
    (made,) = b.call(op, (*(b.reshape(x, shape) for x in inputs), *rest), attrs)
    return [b.reshape(made, t.shape)]


def _save_output(attrs: Attrs, needed: set[str]) -> set[str]:
    return {"y"}


# ---- SoftmaxGrad: y (dy - sum of dy y), or of the logarithm dy - exp(y) sum of dy


def infer_softmax_grad(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    """Return the type of a gradient of softmax; raises ValueError for a gradient that is not like the result."""
    dy, y = types[:2]
    if dy is None or dy != y or not dy.shape:
        raise ValueError(f"SoftmaxGrad: dy: expected the type of y, {y}, got {dy}")
    return (dy,)


def compute_softmax_grad(dy: Any, y: Any, *, is_log: bool) -> Any:
    """Return dx; a logarithm of -inf has no gradient, and takes none."""
    if not is_log:
        return y * (dy - (dy * y).sum(-1, keepdims=True))
    counted = np.where(np.isneginf(y), 0.0, dy)
    return counted - np.exp(y) * counted.sum(-1, keepdims=True)


def differentiate_softmax_grad(g: Backward, ddx: V) -> tuple[V, V]:
    """Return the gradients by dy and y of their gradient."""
    last = (len(g.of("y").shape) - 1,)
    dy, y = g["dy"], g["y"]
    if not g.attrs["log"]:
        along, across = (g.reduce("sum", g.mul(value, y), last, keep=True) for value in (ddx, dy))
        return g.mul(y, g.sub(ddx, along)), g.sub(g.mul(ddx, g.sub(dy, across)), g.mul(dy, along))
    weighted = g.mul(ddx, g.each("exp", y))
    return g.sub(ddx, g.reduce("sum", weighted, last, keep=True)), g.neg(g.mul(weighted, g.reduce("sum", dy, last, keep=True)))


OPS = (
    OpDef(
        "Softmax",
        ("x",),
        ("y",),
        _infer,
        lambda arrays, attrs: (softmax(arrays[0]),),
        {},
        lambda g, dy: (g.one("SoftmaxGrad", dy, g["y"], log=False),),
        _save_output,
        amp="never",
        lower=_lower,
    ),
    OpDef(
        "LogSoftmax",
        ("x",),
        ("y",),
        _infer,
        lambda arrays, attrs: (log_softmax(arrays[0]),),
        {},
        lambda g, dy: (g.one("SoftmaxGrad", dy, g["y"], log=True),),
        _save_output,
        amp="never",
        lower=_lower_log,
    ),
    OpDef(
        "SoftmaxGrad",
        ("dy", "y"),
        ("dx",),
        infer_softmax_grad,
        lambda arrays, attrs: (compute_softmax_grad(*arrays, is_log=bool(attrs["log"])),),
        {"log": False},
        differentiate_softmax_grad,
        lambda attrs, needed: {"dy", "y"},
        amp="never",
        lower=_lower_grad,
    ),
)
