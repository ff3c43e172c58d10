"""Layer normalisation and root-mean-square normalisation over the last axis, with the statistics that their gradients need."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import Arrays, Backward, Builder, OpDef, Types, V, same_floats
from aicf.opset.types import Attrs, Type


def _infer_layer_norm(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _infer("LayerNorm", types, 2)


def _infer_rms_norm(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _infer("RMSNorm", types, 1)


def _infer(op: str, types: Types, num_statistics: int) -> tuple[Type, ...]:
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


def _layer_norm(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    x, weight, bias = arrays
    mean = x.mean(-1, keepdims=True)
    rstd = 1.0 / np.sqrt(np.square(x - mean).mean(-1, keepdims=True) + attrs["eps"])
    return _scale((x - mean) * rstd, weight, bias), mean, rstd


def _rms_norm(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    x, weight = arrays
    rrms = 1.0 / np.sqrt(np.square(x).mean(-1, keepdims=True) + attrs["eps"])
    return _scale(x * rrms, weight), rrms


def _differentiate_layer_norm(g: Backward, dy: V | None, dmean: V | None = None, drstd: V | None = None) -> list[V | None]:
    """With h = (x - mean) rstd and d = dy weight: dx = rstd (d - mean(d) - h mean(d h)), and what the statistics' own gradients add."""
    shape = g.of("x").shape
    axis, size = len(shape) - 1, shape[-1]
    centred = g.sub(g["x"], g["mean"])
    normal = g.mul(centred, g["rstd"])
    parts: list[V | None] = []
    if dy is not None and "x" in g.needed:
        d = g.mul(dy, g["weight"]) if g.has("weight") else dy
        along = g.reduce("mean", g.mul(d, normal), (axis,), keep=True)
        parts.append(g.mul(g["rstd"], g.sub(g.sub(d, g.reduce("mean", d, (axis,), keep=True)), g.mul(normal, along))))
    if dmean is not None:
        parts.append(g.broadcast(g.scale(dmean, 1.0 / size), shape))
    if drstd is not None:
        parts.append(g.mul(centred, g.scale(g.mul(drstd, g.mul(g["rstd"], g.each("square", g["rstd"]))), -1.0 / size)))
    return [g.total(parts), *_differentiate_scale(g, dy, normal)]


def _differentiate_rms_norm(g: Backward, dy: V | None, drrms: V | None = None) -> list[V | None]:
    """With h = x rrms and d = dy weight: dx = rrms (d - h mean(d h)), and what the statistic's own gradient adds."""
    shape = g.of("x").shape
    axis, size = len(shape) - 1, shape[-1]
    normal = g.mul(g["x"], g["rrms"])
    parts: list[V | None] = []
    if dy is not None and "x" in g.needed:
        d = g.mul(dy, g["weight"]) if g.has("weight") else dy
        parts.append(g.mul(g["rrms"], g.sub(d, g.mul(normal, g.reduce("mean", g.mul(d, normal), (axis,), keep=True)))))
    if drrms is not None:
        parts.append(g.mul(g["x"], g.scale(g.mul(drrms, g.mul(g["rrms"], g.each("square", g["rrms"]))), -1.0 / size)))
    return [g.total(parts), *_differentiate_scale(g, dy, normal)[:1]]


def _differentiate_scale(g: Backward, dy: V | None, normal: V) -> list[V | None]:
    axes = tuple(range(len(g.of("x").shape) - 1))
    weight = g.reduce("sum", g.mul(dy, normal), axes) if dy is not None and "weight" in g.needed else None
    bias = g.reduce("sum", dy, axes) if dy is not None and "bias" in g.needed else None
    return [weight, bias]


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
    columns = t.shape[-1:]
    scale = b.one("Full", value=1.0, dtype=t.dtype, shape=columns) if weight is None else weight
    y, *statistics = b.call(op, (b.reshape(x, (math.prod(t.shape[:-1]), *columns)), None, scale, *bias), attrs)
    return [b.reshape(y, t.shape), *(b.cast(b.reshape(s, (*t.shape[:-1], 1)), t.dtype) for s in statistics)]


# ---- the frozen ops


def _infer_layernorm(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _infer_frozen("layernorm", types, 2 if attrs["with_statistics"] else 0)


def _infer_rmsnorm(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _infer_frozen("rmsnorm", types, 1 if attrs["with_rstd"] else 0)


def _infer_frozen(op: str, types: Types, num_statistics: int) -> tuple[Type, ...]:
    x, residual, *scales = types
    if residual is not None:
        raise ValueError(f"{op}: residual: an addition in front is no part of a plan yet")
    y, *_ = _infer(op, (x, *scales), 0)
    if len(y.shape) != 2:
        raise ValueError(f"{op}: x: expected a matrix, got {y}")
    return (y, *[Type("float32", y.shape[:1])] * num_statistics)


def _layernorm(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    x, _, weight, bias = arrays
    y, *statistics = _layer_norm((x, weight, bias), attrs)
    return (y, *(s[:, 0] for s in statistics if attrs["with_statistics"]))


def _rmsnorm(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    x, _, weight = arrays
    y, rstd = _rms_norm((x, weight), attrs)
    return (y, rstd[:, 0]) if attrs["with_rstd"] else (y,)


OPS = (
    OpDef(
        "LayerNorm",
        ("x", "weight?", "bias?"),
        ("y", "mean", "rstd"),
        _infer_layer_norm,
        _layer_norm,
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
        _rms_norm,
        {"eps": 1e-6},
        _differentiate_rms_norm,
        lambda attrs, needed: {"x", "rrms", "weight"},
        amp="never",
        lower=_lower_rms_norm,
    ),
    OpDef(
        "layernorm",
        ("x", "residual?", "weight", "bias?"),
        ("y", "mean", "rstd"),
        _infer_layernorm,
        _layernorm,
        {"eps": 1e-5, "with_statistics": False},
        is_frozen=True,
    ),
    OpDef(
        "rmsnorm",
        ("x", "residual?", "weight"),
        ("y", "rstd"),
        _infer_rmsnorm,
        _rmsnorm,
        {"eps": 1e-6, "with_rstd": False},
        is_frozen=True,
    ),
)
