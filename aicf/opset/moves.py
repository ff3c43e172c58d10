"""Rectangles moved from arrays to an array: what values repeated along an axis are made of on kernels.

The frozen op ``move`` copies equal rectangles, [rows, columns] each, by one launch of an elementwise chain that returns its operands: rows
have a stride on either side, and each rectangle begins at an offset of its own. The rule here lowers broadcasts to it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.opset.definition import REQUIRED, Arrays, Builder, OpDef, Types, V
from aicf.opset.types import Attrs, Type
from contract.expressions.language import MAX_OUTPUTS

MOVE = "move"
# A rectangle: the number of its source, and where it begins there and in the result, in elements.
Part = tuple[int, int, int]
# A wider word is moved as several elements of fp32, whose bits no kernel changes.
WORDS = {"float32": 1, "bfloat16": 1, "float16": 1, "int64": 2, "uint64": 2, "float64": 2}
# More launches than this are a kernel that is missing, and no way to do it.
_MAX_LAUNCHES = 256


def _ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    value = attrs[name]
    assert isinstance(value, tuple)
    return value


def _int(attrs: Attrs, name: str) -> int:
    value = attrs[name]
    assert isinstance(value, int)
    return value


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    into, *sources = types
    parts = [_ints(attrs, name) for name in ("sources", "in_offsets", "out_offsets")]
    first = next((t for t in sources if t is not None), None)
    if first is None or any(t is None or t.dtype != first.dtype for t in sources) or first.dtype not in WORDS:
        raise TypeError(f"move: expected arrays of one dtype of {', '.join(WORDS)}, got {', '.join(map(str, types))}")
    made = Type(first.dtype, _ints(attrs, "shape"))
    if into is not None and into != made:
        raise TypeError(f"move: into: expected {made}, got {into}")
    if not 1 <= len(parts[0]) <= MAX_OUTPUTS or len({len(p) for p in parts}) > 1:
        raise ValueError(f"move: takes 1 to {MAX_OUTPUTS} rectangles, each with a source and two offsets, got {parts}")
    rows, columns = _int(attrs, "rows"), _int(attrs, "columns")
    covered = len(parts[0]) * rows * columns
    if into is None and covered != made.num_elems:
        raise ValueError(f"move: {covered} elements do not fill {made}; give what they are moved into")
    for source, read, written in zip(*parts, strict=True):
        known = sources[source]
        assert known is not None
        ends = [first + (rows - 1) * _int(attrs, s) + columns for first, s in ((read, "in_stride"), (written, "out_stride"))]
        if ends[0] > known.num_elems or ends[1] > made.num_elems or min(read, written, rows - 1, columns - 1) < 0:
            raise ValueError(f"move: a rectangle of {rows} x {columns} from {read} of {known} to {written} of {made} is not inside them")
    return (made,)


def _list_places(offset: int, attrs: Attrs, stride: str) -> NDArray[np.intp]:
    rows, columns = np.arange(_int(attrs, "rows")), np.arange(_int(attrs, "columns"))
    found: NDArray[np.intp] = offset + rows[:, None] * _int(attrs, stride) + columns[None, :]
    return found


def _move(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    into, *sources = arrays
    shape = _ints(attrs, "shape")
    made = np.zeros(shape, sources[0].dtype) if into is None else np.array(into)
    flat = made.reshape(-1)
    for source, read, written in zip(*(_ints(attrs, name) for name in ("sources", "in_offsets", "out_offsets")), strict=True):
        flat[_list_places(written, attrs, "out_stride")] = sources[source].reshape(-1)[_list_places(read, attrs, "in_stride")]
    return (flat.reshape(shape),)


def make_chain_call(attrs: Attrs, dtype: str) -> tuple[list[Type | None], Attrs, dict[str, int], dict[str, int]]:
    """Return the elementwise call that a move is: types, attributes, row strides in elements and offsets in bytes, by operand."""
    words = WORDS[dtype]
    narrow = dtype if words == 1 else "float32"
    count, item = len(_ints(attrs, "sources")), 2 if narrow in ("bfloat16", "float16") else 4
    rows, columns = _int(attrs, "rows"), _int(attrs, "columns") * words
    left, right = (", ".join(f"{side}{i}: T" for i in range(count)) for side in "xy")
    results = "; ".join([str(Type(narrow, (rows, columns)))] * count)
    chain = f"{left} -> {right}; " + "; ".join(f"y{i} = x{i}" for i in range(count))
    strides, offsets = {}, {}
    for side, name in (("in", "in_offsets"), ("out", "out_offsets")):
        for i, offset in enumerate(_ints(attrs, name)):
            strides[f"{side}{i}"] = max(_int(attrs, f"{side}_stride") * words, columns)
            offsets[f"{side}{i}"] = offset * words * item
    types: list[Type | None] = [None, *(Type(narrow, (rows, columns)) for _ in range(count))]
    return types, {"chain": chain, "rows": rows, "columns": columns, "results": results}, strides, offsets


# ---- lowering


def lower_broadcast(b: Builder, x: V, shape: Sequence[int]) -> Sequence[V] | None:
    """Lower to moves of the value to each place along the shortest axis that it is repeated on; what is left is another broadcast."""
    t = b.type_of(x)
    own = (1,) * (len(shape) - len(t.shape)) + t.shape
    axes = [i for i, n in enumerate(shape) if n != own[i]]
    if t.dtype not in FILLED or not axes or math.prod(shape) == 0:
        return None
    axis = min(axes, key=lambda i: shape[i])
    count, rows, inner = shape[axis], math.prod(own[:axis]), math.prod(own[axis + 1 :])
    wider = (*own[:axis], count, *own[axis + 1 :])
    if count > _MAX_LAUNCHES * MAX_OUTPUTS:
        return None
    parts = [(0, 0, i * inner) for i in range(count)]
    made = _move_all(b, b.reshape(x, own), wider, (rows, inner), (inner, count * inner), parts)
    return [b.broadcast(made, shape)]


FILLED = ("float32", "bfloat16", "float16")


def fill(b: Builder, like: V, shape: Sequence[int]) -> V:
    """Return zeros of a value's dtype."""
    return b.broadcast(b.full(0.0, like), shape)


def _move_all(b: Builder, x: V, shape: Sequence[int], size: tuple[int, int], strides: tuple[int, int], parts: Sequence[Part]) -> V:
    """Return what all rectangles together are: of one launch, or of several into zeros."""
    if len(parts) <= MAX_OUTPUTS:
        return _call(b, None, [x], shape, size, strides, parts)
    made = fill(b, x, shape)
    for i in range(0, len(parts), MAX_OUTPUTS):
        made = _call(b, made, [x], shape, size, strides, parts[i : i + MAX_OUTPUTS])
    return made


def _call(
    b: Builder,
    into: V | None,
    sources: Sequence[V],
    shape: Sequence[int],
    size: tuple[int, int],
    strides: tuple[int, int],
    parts: Sequence[Part],
) -> V:
    numbers = [tuple(int(p[i]) for p in parts) for i in range(3)]
    attrs: Attrs = {"shape": tuple(shape), "rows": size[0], "columns": size[1], "in_stride": strides[0], "out_stride": strides[1]}
    named = dict(zip(("sources", "in_offsets", "out_offsets"), numbers, strict=True))
    (made,) = b.call(MOVE, (into, *sources), {**attrs, **named})
    return made


_NAMES = ("shape", "rows", "columns", "in_stride", "out_stride", "sources", "in_offsets", "out_offsets")

OPS = (
    OpDef(
        MOVE,
        ("into?", "x*"),
        ("y",),
        _infer,
        _move,
        dict.fromkeys(_NAMES, REQUIRED),
        moves=True,
        is_frozen=True,
        in_place={"y": "into"},
    ),
)
