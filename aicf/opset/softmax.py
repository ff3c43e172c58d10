"""Softmax and its logarithm over the last axis, and the frozen op softmax."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.definition import Arrays, Backward, Builder, OpDef, Types, V, same_floats
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


def _softmax(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    weights = np.exp(arrays[0] - arrays[0].max(-1, keepdims=True))
    return (weights / weights.sum(-1, keepdims=True),)


def _differentiate_softmax(g: Backward, dy: V) -> tuple[V]:
    axis = len(g.of("y").shape) - 1
    mean = g.reduce("sum", g.mul(dy, g["y"]), (axis,), keep=True)
    return (g.mul(g["y"], g.sub(dy, mean)),)


def _differentiate_log_softmax(g: Backward, dy: V) -> tuple[V]:
    axis = len(g.of("y").shape) - 1
    return (g.sub(dy, g.mul(g.each("exp", g["y"]), g.reduce("sum", dy, (axis,), keep=True))),)


def _lower(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V]:
    shape = b.type_of(inputs[0]).shape
    made = b.one("softmax", b.reshape(inputs[0], (math.prod(shape[:-1]), shape[-1])))
    return [b.reshape(made, shape)]


def _lower_log(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> list[V]:
    """Lower to reductions and chains, in fp32 whatever the dtype is: what lies between is not to be rounded to 16 bits."""
    dtype, axis = b.type_of(inputs[0]).dtype, len(b.type_of(inputs[0]).shape) - 1
    x = b.cast(inputs[0], "float32")
    shifted = b.sub(x, b.reduce("max", x, (axis,), keep=True))
    made = b.sub(shifted, b.each("log", b.reduce("sum", b.each("exp", shifted), (axis,), keep=True)))
    return [b.cast(made, dtype)]


def _save_output(attrs: Attrs, needed: set[str]) -> set[str]:
    return {"y"}


OPS = (
    OpDef("Softmax", ("x",), ("y",), _infer, _softmax, {}, _differentiate_softmax, _save_output, amp="never", lower=_lower),
    OpDef(
        "LogSoftmax",
        ("x",),
        ("y",),
        _infer,
        lambda arrays, attrs: (log_softmax(arrays[0]),),
        {},
        _differentiate_log_softmax,
        _save_output,
        amp="never",
        lower=_lower_log,
    ),
    OpDef("softmax", ("x",), ("y",), _infer, _softmax, {}, _differentiate_softmax, _save_output, is_frozen=True),
)
