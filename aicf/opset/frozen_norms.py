"""The frozen normalisations: layernorm, rmsnorm and their backward passes, over the rows of a matrix."""

from __future__ import annotations

from typing import Any

import numpy as np

from aicf.opset.definition import Arrays, OpDef, Types
from aicf.opset.norms import (
    compute_layer_norm,
    compute_layer_norm_grad,
    compute_rms_norm,
    compute_rms_norm_grad,
    infer_norm,
)
from aicf.opset.types import Attrs, Type


def _infer_layernorm(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _infer_frozen("layernorm", types, 2 if attrs["with_statistics"] else 0)


def _infer_rmsnorm(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _infer_frozen("rmsnorm", types, 1 if attrs["with_rstd"] else 0)


def _infer_frozen(op: str, types: Types, num_statistics: int) -> tuple[Type, ...]:
    x, residual, *scales = types
    if residual is not None:
        raise ValueError(f"{op}: residual: a preceding addition is not supported in plans yet")
    y, *_ = infer_norm(op, (x, *scales), 0)
    if len(y.shape) != 2:
        raise ValueError(f"{op}: x: expected a matrix, got {y}")
    return (y, *[Type("float32", y.shape[:1])] * num_statistics)


def _layernorm(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    x, _, weight, bias = arrays
    y, *statistics = compute_layer_norm((x, weight, bias), attrs)
    return (y, *(s[:, 0] for s in statistics if attrs["with_statistics"]))


def _rmsnorm(arrays: Arrays, attrs: Attrs) -> tuple[Any, ...]:
    x, _, weight = arrays
    y, rstd = compute_rms_norm((x, weight), attrs)
    return (y, rstd[:, 0]) if attrs["with_rstd"] else (y,)


def _infer_layernorm_backward(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _infer_backward("layernorm_backward", types, 2 if attrs["with_bias"] else 1)


def _infer_rmsnorm_backward(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return _infer_backward("rmsnorm_backward", types, 1)


def _infer_backward(op: str, types: Types, num_scales: int) -> tuple[Type, ...]:
    dy, x, weight, *statistics, dsum = types
    if dsum is not None:
        raise ValueError(f"{op}: dsum: a preceding addition is not supported in plans yet")
    assert dy is not None and x is not None
    (dx,) = infer_norm(op, (x, weight), 0)
    if dy != x or len(x.shape) != 2 or any(s != Type("float32", x.shape[:1]) for s in statistics):
        raise ValueError(f"{op}: expected matrices of one type, and float32 statistics of their rows; got {', '.join(map(str, types))}")
    return (dx, *[x.reshape(x.shape[-1:])] * num_scales)


def _layernorm_backward(arrays: Arrays, attrs: Attrs) -> list[Any]:
    dy, x, weight, mean, rstd, _ = arrays
    made = compute_layer_norm_grad((dy, x, weight, mean[:, np.newaxis], rstd[:, np.newaxis]), attrs)
    return made if attrs["with_bias"] else made[:2]


def _rmsnorm_backward(arrays: Arrays, attrs: Attrs) -> list[Any]:
    dy, x, weight, rstd, _ = arrays
    return compute_rms_norm_grad((dy, x, weight, rstd[:, np.newaxis]), attrs)


OPS = (
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
    OpDef(
        "layernorm_backward",
        ("dy", "x", "weight", "mean", "rstd", "dsum?"),
        ("dx", "dweight", "dbias"),
        _infer_layernorm_backward,
        _layernorm_backward,
        {"with_bias": True},
        is_frozen=True,
    ),
    OpDef(
        "rmsnorm_backward",
        ("dy", "x", "weight", "rstd", "dsum?"),
        ("dx", "dweight"),
        _infer_rmsnorm_backward,
        _rmsnorm_backward,
        {},
        is_frozen=True,
    ),
)
