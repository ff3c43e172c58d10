"""Layer normalisation and root-mean-square normalisation over the last axis, with the statistics that their gradients need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import Arrays, Backward, Builder, OpDef, Types, V, same_floats
from aicf.opset.types import Attrs, Type


def _infer_layer_norm(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return infer_norm("LayerNorm", types, 2)


def _infer_rms_norm(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return infer_norm("RMSNorm", types, 1)


def infer_norm(op: str, types: Types, num_statistics: int) -> tuple[Type, ...]:
    """Return the types of a normalisation: of x, then of its statistics; raises ValueError for operands that do not fit."""
    names = ("x", "weight", "bias")[: len(types)]
    same_floats(op, names, types)
    x = types[0]
    assert x is not None
    if not x.shape or x.shape[-1] < 1:
        raise ValueError(f"{op}: expected at least one element along the last axis, got shape {x.shape}")
    for name, found in zip(names[1:], types[1:], strict=True):
        if found is not None and found.shape != x.shape[-1:]:
            raise ValueError(f"{op}: {name}: expected shape {x.shape[-1:]}, got {found.shape}")
    return (x, *[x.reshape((*x.shape[:-1], 1))] * num_statistics)


def _scale(value: Any, weight: Any, bias: Any = None) -> Any:
    value = value if weight is None else value * weight
    return value if bias is None else value + bias


def compute_layer_norm(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    """Return y, mean and rstd of a layer normalisation."""
    x, weight, bias = arrays
    mean = x.mean(-1, keepdims=True)
    rstd = 1.0 / np.sqrt(np.square(x - mean).mean(-1, keepdims=True) + attrs["eps"])
    return _scale((x - mean) * rstd, weight, bias), mean, rstd


def compute_rms_norm(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    """Return y and rrms of a root-mean-square normalisation."""
    x, weight = arrays
    rrms = 1.0 / np.sqrt(np.square(x).mean(-1, keepdims=True) + attrs["eps"])
    return _scale(x * rrms, weight), rrms


def _differentiate_layer_norm(g: Backward, dy: V | None, dmean: V | None = None, drstd: V | None = None) -> list[V | None]:
    """Return dy's part by one call, and what the statistics' own gradients add."""
    size = g.of("x").shape[-1]
    dx, dweight, dbias = (None, None, None) if dy is None else g.call("LayerNormGrad", _take(g, dy, "mean", "rstd"), {})
    parts: list[V | None] = [dx]
    if dmean is not None:
        parts.append(g.broadcast(g.scale(dmean, 1.0 / size), g.of("x").shape))
    if drstd is not None:
        parts.append(g.mul(g.sub(g["x"], g["mean"]), g.scale(g.mul(drstd, g.mul(g["rstd"], g.each("square", g["rstd"]))), -1.0 / size)))
    return [g.total(parts), dweight, dbias]


def _differentiate_rms_norm(g: Backward, dy: V | None, drrms: V | None = None) -> list[V | None]:
    """Return dy's part by one call, and what the statistic's own gradient adds."""
    dx, dweight = (None, None) if dy is None else g.call("RMSNormGrad", _take(g, dy, "rrms"), {})
    parts: list[V | None] = [dx]
    if drrms is not None:
        size = g.of("x").shape[-1]
        parts.append(g.mul(g["x"], g.scale(g.mul(drrms, g.mul(g["rrms"], g.each("square", g["rrms"]))), -1.0 / size)))
    return [g.total(parts), dweight]


def _take(g: Backward, dy: V, *statistics: str) -> tuple[V | None, ...]:
    return (dy, g["x"], g["weight"] if g.has("weight") else None, *(g[name] for name in statistics))


# ---- LayerNormGrad, RMSNormGrad: with h = (x - mean) rstd and d = dy weight, dx = rstd (d - mean(d) - h mean(d h)), dweight = sum of dy h,
# dbias = sum of dy; without the means of x and d for RMSNorm


def _infer_layer_norm_grad(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _infer_grad("LayerNormGrad", types, 2)


def _infer_rms_norm_grad(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _infer_grad("RMSNormGrad", types, 1)


def _infer_grad(op: str, types: Types, num_scales: int) -> tuple[Type, ...]:
    dy, x, weight, *statistics = types
    assert dy is not None and x is not None
    wanted = infer_norm(op, (x, weight), len(statistics))
    for name, found, expected in zip(("dy", "statistics", "statistics"), (dy, *statistics), wanted, strict=False):
        if found != expected:
            raise ValueError(f"{op}: {name}: expected {expected}, got {found}")
    return (x, *[x.reshape(x.shape[-1:])] * num_scales)


def compute_layer_norm_grad(arrays: Arrays, attrs: Attrs) -> list[Any]:
    """Return dx, dweight and dbias of a layer normalisation."""
    dy, x, weight, mean, rstd = arrays
    rows = tuple(range(dy.ndim - 1))
    h, d = (x - mean) * rstd, _scale(dy, weight)
    dx = rstd * (d - d.mean(-1, keepdims=True) - h * (d * h).mean(-1, keepdims=True))
    return [dx, (dy * h).sum(rows), dy.sum(rows)]


def compute_rms_norm_grad(arrays: Arrays, attrs: Attrs) -> list[Any]:
    """Return dx and dweight of a root-mean-square normalisation."""
    dy, x, weight, rrms = arrays
    h, d = x * rrms, _scale(dy, weight)
    return [rrms * (d - h * (d * h).mean(-1, keepdims=True)), (dy * h).sum(tuple(range(dy.ndim - 1)))]


def _differentiate_grad(g: Backward, *douts: V | None) -> list[V | None]:
    """Return the gradients of the three sums above, in the order of the inputs: each product's rule, with h between."""
    ddx, ddweight, ddbias = (*douts, None, None)[:3]
    is_centred = g.has("mean")
    last, rows = len(g.of("x").shape) - 1, tuple(range(len(g.of("x").shape) - 1))
    rstd = g["rstd"] if is_centred else g["rrms"]
    centred = g.sub(g["x"], g["mean"]) if is_centred else g["x"]
    h = g.mul(centred, rstd)

    def average(value: V) -> V:
        return g.reduce("mean", value, (last,), keep=True)

    def total(value: V) -> V:
        return g.reduce("sum", value, (last,), keep=True)

    to_dy: list[V | None] = [ddbias if ddbias is None else g.broadcast(ddbias, g.of("x").shape)]
    to_h: list[V | None] = []
    to_weight = to_rstd = None
    if ddx is not None:
        d = g.mul(g["dy"], g["weight"]) if g.has("weight") else g["dy"]
        along, across = average(g.mul(d, h)), average(g.mul(ddx, h))
        inner, outer = g.sub(d, g.mul(h, along)), g.sub(ddx, g.mul(h, across))
        if is_centred:
            inner, outer = g.sub(inner, average(d)), g.sub(outer, average(ddx))
        to_d = g.mul(rstd, outer)
        to_dy.append(g.mul(to_d, g["weight"]) if g.has("weight") else to_d)
        to_weight = g.reduce("sum", g.mul(to_d, g["dy"]), rows) if g.has("weight") else None
        to_h.append(g.neg(g.mul(rstd, g.add(g.mul(ddx, along), g.mul(d, across)))))
        to_rstd = total(g.mul(ddx, inner))
    if ddweight is not None:
        to_dy.append(g.mul(h, ddweight))
        to_h.append(g.mul(g["dy"], ddweight))
    through = g.total(to_h)
    if through is None:
        return [g.total(to_dy), None, to_weight, *[None] * (1 + is_centred)]
    to_x = g.mul(through, rstd)
    found = [g.total(to_dy), to_x, to_weight]
    if is_centred:
        found.append(g.neg(total(to_x)))
    return [*found, g.total([to_rstd, total(g.mul(through, centred))])]


def _save_grad(attrs: Attrs, needed: set[str]) -> set[str]:
    return {"dy", "x", "weight", "mean", "rstd", "rrms"}


def _lower_layer_norm_grad(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    return _lower_grad(b, "layernorm_backward", inputs, {"with_bias": True})


def _lower_rms_norm_grad(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    return _lower_grad(b, "rmsnorm_backward", inputs, {})


def _lower_grad(b: Builder, op: str, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    dy, x, weight, *statistics = inputs
    t = b.type_of(x)
    if t.dtype == "float64":
        return None
    rows, columns = math.prod(t.shape[:-1]), t.shape[-1]
    flat = [b.reshape(value, (rows, columns)) for value in (dy, x)]
    given = [b.cast(b.reshape(s, (rows,)), "float32") for s in statistics]
    dx, *scales = b.call(op, (*flat, _find_weight(b, x, weight), *given, None), attrs)
    return [b.reshape(dx, t.shape), *scales]


def _find_weight(b: Builder, x: V, weight: V | None) -> V:
    t = b.type_of(x)
    return b.one("Full", value=1.0, dtype=t.dtype, shape=t.shape[-1:]) if weight is None else weight


# ---- as frozen ops


def _lower_layer_norm(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    return _lower(b, "layernorm", inputs, {**attrs, "with_statistics": True})


def _lower_rms_norm(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    return _lower(b, "rmsnorm", inputs, {**attrs, "with_rstd": True})


def _lower(b: Builder, op: str, inputs: Sequence[V | None], attrs: Attrs) -> list[V] | None:
    """Return the call by a frozen op, which takes a matrix and a weight; its statistics are in fp32, so that others are rounded."""
    x, weight, *bias = inputs
    t = b.type_of(x)
    if t.dtype == "float64":
        return None
    flat = b.reshape(x, (math.prod(t.shape[:-1]), t.shape[-1]))
    y, *statistics = b.call(op, (flat, None, _find_weight(b, x, weight), *bias), attrs)
    return [b.reshape(y, t.shape), *(b.cast(b.reshape(s, (*t.shape[:-1], 1)), t.dtype) for s in statistics)]


OPS = (
    OpDef(
        "LayerNorm",
        ("x", "weight?", "bias?"),
        ("y", "mean", "rstd"),
        _infer_layer_norm,
        compute_layer_norm,
        {"eps": 1e-5},
        _differentiate_layer_norm,
        lambda attrs, needed: {"x", "mean", "rstd", "weight"},
        amp="never",
        lower=_lower_layer_norm,
    ),
    OpDef(
        "RMSNorm",
        ("x", "weight?"),
        ("y", "rrms"),
        _infer_rms_norm,
        compute_rms_norm,
        {"eps": 1e-6},
        _differentiate_rms_norm,
        lambda attrs, needed: {"x", "rrms", "weight"},
        amp="never",
        lower=_lower_rms_norm,
    ),
    OpDef(
        "LayerNormGrad",
        ("dy", "x", "weight?", "mean", "rstd"),
        ("dx", "dweight", "dbias"),
        _infer_layer_norm_grad,
        compute_layer_norm_grad,
        {},
        _differentiate_grad,
        _save_grad,
        amp="never",
        lower=_lower_layer_norm_grad,
    ),
    OpDef(
        "RMSNormGrad",
        ("dy", "x", "weight?", "rrms"),
        ("dx", "dweight"),
        _infer_rms_norm_grad,
        compute_rms_norm_grad,
        {},
        _differentiate_grad,
        _save_grad,
        amp="never",
        lower=_lower_rms_norm_grad,
    ),
)
