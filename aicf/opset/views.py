"""Ops that move elements without arithmetic: reshape, permute, broadcast, slice, pad, concatenate; and a scalar made from a number."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from aicf.opset.chains import call_chain
from aicf.opset.copies import lower_concat, lower_pad, lower_permute, lower_slice
from aicf.opset.definition import REQUIRED, Arrays, Backward, Builder, OpDef, Types, V, round_to
from aicf.opset.moves import lower_broadcast
from aicf.opset.types import Attrs, Type, broadcast_shapes


def _ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    value = attrs[name]
    assert isinstance(value, tuple)
    return value


def _only(types: Types) -> Type:
    (x,) = types
    assert x is not None
    return x


def _infer_reshape(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x, shape = _only(types), _ints(attrs, "shape")
    if shape.count(-1) == 1:
        rest = math.prod(n for n in shape if n != -1)
        shape = tuple(x.num_elems // rest if n == -1 and rest else n for n in shape)
    if any(n < 0 for n in shape) or math.prod(shape) != x.num_elems:
        raise ValueError(f"Reshape: {x.num_elems} elements of shape {x.shape} do not fit shape {_ints(attrs, 'shape')}")
    return (x.reshape(shape),)


def _infer_permute(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x, order = _only(types), _ints(attrs, "order")
    if sorted(order) != list(range(len(x.shape))):
        raise ValueError(f"Permute: order {order} is not a permutation of {len(x.shape)} axes")
    return (x.reshape([x.shape[i] for i in order]),)


def _unpermute(g: Backward, dy: V) -> tuple[V]:
    order = _ints(g.attrs, "order")
    return (g.one("Permute", dy, order=tuple(order.index(i) for i in range(len(order)))),)


def _infer_transpose(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x = _only(types)
    if len(x.shape) != 2:
        raise ValueError(f"transpose: expected a matrix, got shape {x.shape}")
    return (x.reshape(x.shape[::-1]),)


def _infer_broadcast(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x, shape = _only(types), _ints(attrs, "shape")
    if broadcast_shapes("Broadcast", x.shape, shape) != shape:
        raise ValueError(f"Broadcast: shape {x.shape} does not broadcast to {shape}")
    return (x.reshape(shape),)


def _lower_broadcast(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    x = b.type_of(inputs[0])
    made = call_chain(b, "y0 = x0", [(inputs[0], x)], _infer_broadcast([x], attrs))
    return lower_broadcast(b, inputs[0], _ints(attrs, "shape")) if made is None else made


def _infer_slice(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x, starts, stops = _only(types), _ints(attrs, "starts"), _ints(attrs, "stops")
    if not len(starts) == len(stops) == len(x.shape):
        raise ValueError(f"Slice: shape {x.shape} needs a start and a stop per axis, got {starts} and {stops}")
    for a, b, n in zip(starts, stops, x.shape, strict=True):
        if not 0 <= a <= b <= n:
            raise ValueError(f"Slice: {a}:{b} is not inside an axis of {n}")
    return (x.reshape([b - a for a, b in zip(starts, stops, strict=True)]),)


def _cut(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    where = tuple(slice(a, b) for a, b in zip(_ints(attrs, "starts"), _ints(attrs, "stops"), strict=True))
    return (arrays[0][where],)


def _pad_back(g: Backward, dy: V) -> tuple[V]:
    shape, starts, stops = g.of("x").shape, _ints(g.attrs, "starts"), _ints(g.attrs, "stops")
    return (g.one("Pad", dy, before=starts, after=tuple(n - b for n, b in zip(shape, stops, strict=True))),)


def _infer_pad(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    x, before, after = _only(types), _ints(attrs, "before"), _ints(attrs, "after")
    if not len(before) == len(after) == len(x.shape) or any(n < 0 for n in (*before, *after)):
        raise ValueError(f"Pad: shape {x.shape} needs a number before and after per axis, got {before} and {after}")
    return (x.reshape([a + n + b for a, n, b in zip(before, x.shape, after, strict=True)]),)


def _pad(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    if not np.ndim(arrays[0]):
        return (arrays[0],)  # NumPy refuses to pad what has no axes, in some releases
    return (np.pad(arrays[0], tuple(zip(_ints(attrs, "before"), _ints(attrs, "after"), strict=True))),)


def _unpad(g: Backward, dy: V) -> tuple[V]:
    before, shape = _ints(g.attrs, "before"), g.of("x").shape
    return (g.one("Slice", dy, starts=before, stops=tuple(a + n for a, n in zip(before, shape, strict=True))),)


def _infer_concat(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    there = [t for t in types if t is not None]
    axis = attrs["axis"]
    if not there:
        raise TypeError("Concat: takes at least one value")
    first = there[0]
    if not isinstance(axis, int) or not 0 <= axis < len(first.shape):
        raise ValueError(f"Concat: axis {axis} is out of range for shape {first.shape}")
    for t in there:
        if t.dtype != first.dtype or t.shape[:axis] + t.shape[axis + 1 :] != first.shape[:axis] + first.shape[axis + 1 :]:
            raise ValueError(f"Concat: {t} does not fit {first} along axis {axis}")
    return (first.reshape([*first.shape[:axis], sum(t.shape[axis] for t in there), *first.shape[axis + 1 :]]),)


def _join(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    axis = attrs["axis"]
    assert isinstance(axis, int)
    return (np.concatenate(arrays, axis=axis),)


def _split_back(g: Backward, dy: V) -> list[V]:
    axis, found, at = g.attrs["axis"], [], 0
    assert isinstance(axis, int)
    count = 0
    while g.has(f"x{count}"):
        shape = g.of(f"x{count}").shape
        starts = tuple(at if i == axis else 0 for i in range(len(shape)))
        found.append(g.one("Slice", dy, starts=starts, stops=tuple(a + n for a, n in zip(starts, shape, strict=True))))
        at, count = at + shape[axis], count + 1
    return found


def _infer_full(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    return (Type(str(attrs["dtype"]), _ints(attrs, "shape")),)


def _fill(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    (wanted,) = _infer_full((), attrs)
    return (np.broadcast_to(round_to(np.asarray(attrs["value"]), wanted.reshape(())), wanted.shape),)


OPS = (
    OpDef(
        "Reshape",
        ("x",),
        ("y",),
        _infer_reshape,
        lambda arrays, attrs: (arrays[0].reshape(_ints(attrs, "shape")),),
        {"shape": REQUIRED},
        lambda g, dy: (g.reshape(dy, g.of("x").shape),),
        moves=True,
        is_view=True,
    ),
    # The same values, through which no gradient flows: what tensors detached while a graph is recorded are.
    OpDef(
        "Detach",
        ("x",),
        ("y",),
        lambda types, attrs: (_only(types),),
        lambda arrays, attrs: (arrays[0],),
        has_gradient=lambda attrs: False,
        lower=lambda b, inputs, attrs: [inputs[0]],
        moves=True,
        is_view=True,
    ),
    OpDef(
        "Permute",
        ("x",),
        ("y",),
        _infer_permute,
        lambda arrays, attrs: (arrays[0].transpose(_ints(attrs, "order")),),
        {"order": REQUIRED},
        _unpermute,
        lower=lower_permute,
        moves=True,
    ),
    OpDef(
        "transpose",
        ("x",),
        ("y",),
        _infer_transpose,
        lambda arrays, attrs: (arrays[0].T,),
        {},
        lambda g, dy: (g.one("transpose", dy),),
        moves=True,
        is_frozen=True,
    ),
    OpDef(
        "Broadcast",
        ("x",),
        ("y",),
        _infer_broadcast,
        lambda arrays, attrs: (np.broadcast_to(arrays[0], _ints(attrs, "shape")),),
        {"shape": REQUIRED},
        lambda g, dy: (g.sum_to(dy, g.of("x").shape),),
        lower=_lower_broadcast,
        moves=True,
    ),
    OpDef("Slice", ("x",), ("y",), _infer_slice, _cut, {"starts": REQUIRED, "stops": REQUIRED}, _pad_back, lower=lower_slice, moves=True),
    OpDef("Pad", ("x",), ("y",), _infer_pad, _pad, {"before": REQUIRED, "after": REQUIRED}, _unpad, lower=lower_pad, moves=True),
    OpDef(
        "Concat",
        ("x*",),
        ("y",),
        _infer_concat,
        _join,
        {"axis": REQUIRED},
        _split_back,
        lower=lower_concat,
        moves=True,
    ),
    OpDef(
        "Copy",
        ("x",),
        ("y",),
        lambda types, attrs: (_only(types),),
        lambda arrays, attrs: (arrays[0],),
        {},
        lambda g, dy: (dy,),
    ),
    OpDef("Full", (), ("y",), _infer_full, _fill, {"value": REQUIRED, "dtype": REQUIRED, "shape": ()}, moves=True),
)
