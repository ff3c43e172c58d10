"""Rectangles moved from arrays to an array: what slices, joined and permuted arrays are made of on kernels.

The frozen op ``move`` copies equal rectangles, [rows, columns] each, by one launch of an elementwise chain that returns its operands: rows
have a stride on either side, and each rectangle begins at an offset of its own. The rules here lower views of the graph's tensors to it.
"""

from __future__ import annotations

import itertools
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


def lower_slice(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Lower a slice to a move per axis that it cuts."""
    x, starts, stops = inputs[0], _ints(attrs, "starts"), _ints(attrs, "stops")
    for axis, (start, stop) in enumerate(zip(starts, stops, strict=True)):
        t = b.type_of(x)
        if t.dtype not in WORDS or stop == start:
            return None
        if stop - start < t.shape[axis]:
            inner, rows = math.prod(t.shape[axis + 1 :]), math.prod(t.shape[:axis])
            shape = (*t.shape[:axis], stop - start, *t.shape[axis + 1 :])
            columns, stride = (stop - start) * inner, t.shape[axis] * inner
            x = _call(b, None, [x], shape, (rows, columns), (stride, columns), [(0, start * inner, 0)])
    return [x]


def lower_concat(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Lower to one move where the parts are up to 4 equal rectangles, else to one for each into zeros."""
    there, axis = [x for x in inputs if x is not None], _int(attrs, "axis")
    types = [b.type_of(x) for x in there]
    there = [x for x, t in zip(there, types, strict=True) if t.num_elems]
    types = [t for t in types if t.num_elems]
    if not there or types[0].dtype not in WORDS:
        return None
    inner, rows = math.prod(types[0].shape[axis + 1 :]), math.prod(types[0].shape[:axis])
    lengths = [t.shape[axis] for t in types]
    shape = (*types[0].shape[:axis], sum(lengths), *types[0].shape[axis + 1 :])
    unit, stride = math.gcd(*lengths), sum(lengths) * inner
    is_even = len(set(lengths)) == 1 or rows == 1  # one stride of rows for all that is read
    if is_even and stride // (unit * inner) <= MAX_OUTPUTS:
        ends = list(itertools.accumulate(lengths, initial=0))
        parts = [(i, at * inner, (end + at) * inner) for i, end in enumerate(ends[:-1]) for at in range(0, lengths[i], unit)]
        return [_call(b, None, there, shape, (rows, unit * inner), (lengths[0] * inner, stride), parts)]
    if types[0].dtype not in _FILLED:
        return None
    made, at = _fill(b, there[0], shape), 0
    for x, length in zip(there, lengths, strict=True):
        made = _call(b, made, [x], shape, (rows, length * inner), (length * inner, stride), [(0, 0, at * inner)])
        at += length
    return [made]


def lower_pad(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Lower to zeros, and a move into them, for each axis that grows."""
    x, before, after = inputs[0], _ints(attrs, "before"), _ints(attrs, "after")
    for axis, (head, tail) in enumerate(zip(before, after, strict=True)):
        t = b.type_of(x)
        if t.dtype not in _FILLED or t.num_elems == 0:
            return None
        if head or tail:
            inner, rows, length = math.prod(t.shape[axis + 1 :]), math.prod(t.shape[:axis]), t.shape[axis]
            shape = (*t.shape[:axis], head + length + tail, *t.shape[axis + 1 :])
            strides = (length * inner, (head + length + tail) * inner)
            x = _call(b, _fill(b, x, shape), [x], shape, (rows, length * inner), strides, [(0, 0, head * inner)])
    return [x]


def lower_broadcast(b: Builder, x: V, shape: Sequence[int]) -> Sequence[V] | None:
    """Lower to moves of the value to each place along the shortest axis that it is repeated on; what is left is another broadcast."""
    t = b.type_of(x)
    own = (1,) * (len(shape) - len(t.shape)) + t.shape
    axes = [i for i, n in enumerate(shape) if n != own[i]]
    if t.dtype not in _FILLED or not axes or math.prod(shape) == 0:
        return None
    axis = min(axes, key=lambda i: shape[i])
    count, rows, inner = shape[axis], math.prod(own[:axis]), math.prod(own[axis + 1 :])
    wider = (*own[:axis], count, *own[axis + 1 :])
    if count > _MAX_LAUNCHES * MAX_OUTPUTS:
        return None
    parts = [(0, 0, i * inner) for i in range(count)]
    made = _move_all(b, b.reshape(x, own), wider, (rows, inner), (inner, count * inner), parts)
    return [b.broadcast(made, shape)]


_FILLED = ("float32", "bfloat16", "float16")


def _fill(b: Builder, like: V, shape: Sequence[int]) -> V:
    return b.broadcast(b.full(0.0, like), shape)


def lower_permute(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Lower to a transpose, where another axis comes last, and moves of what stays together then."""
    x, t = inputs[0], b.type_of(inputs[0])
    sizes, order = _merge_axes(t.shape, _ints(attrs, "order"))
    wanted = [t.shape[i] for i in _ints(attrs, "order")]
    if t.num_elems == 0:
        return None
    if len(order) < 2:
        return [b.reshape(x, wanted)]
    if order[-1] != len(order) - 1:
        if t.dtype not in _FILLED:
            return None
        split = order[-1] + 1
        wide = b.reshape(b.cast(x, "float32"), (math.prod(sizes[:split]), math.prod(sizes[split:])))
        x = b.cast(b.one("transpose", wide), t.dtype)
        axes = [*range(split, len(sizes)), *range(split)]  # the axes of what is turned
        sizes, order = _merge_axes([sizes[i] for i in axes], [axes.index(i) for i in order])
        if len(order) < 2:
            return [b.reshape(x, wanted)]
    made = _permute_rows(b, b.reshape(x, sizes), sizes, order)
    return None if made is None else [b.reshape(made, wanted)]


def _permute_rows(b: Builder, x: V, sizes: Sequence[int], order: Sequence[int]) -> V | None:
    """Return a value with its axes in another order, of which the last stays: the longest axis makes rows, the others rectangles."""
    shape = [sizes[i] for i in order]
    read = [math.prod(sizes[i + 1 :]) for i in range(len(sizes))]
    written = {axis: math.prod(shape[k + 1 :]) for k, axis in enumerate(order)}
    rest = range(len(sizes) - 1)
    long = max(rest, key=lambda i: sizes[i])
    others = [i for i in rest if i != long]
    places = itertools.product(*(range(sizes[i]) for i in others))
    parts = [
        (0, sum(k * read[i] for k, i in zip(at, others, strict=True)), sum(k * written[i] for k, i in zip(at, others, strict=True)))
        for at in places
    ]
    size, strides = (sizes[long], sizes[-1]), (read[long], written[long])
    if len(parts) > MAX_OUTPUTS and (len(parts) > _MAX_LAUNCHES * MAX_OUTPUTS or b.type_of(x).dtype not in _FILLED):
        return None
    return _move_all(b, x, shape, size, strides, parts)


def _move_all(b: Builder, x: V, shape: Sequence[int], size: tuple[int, int], strides: tuple[int, int], parts: Sequence[Part]) -> V:
    """Return what all rectangles together are: of one launch, or of several into zeros."""
    if len(parts) <= MAX_OUTPUTS:
        return _call(b, None, [x], shape, size, strides, parts)
    made = _fill(b, x, shape)
    for i in range(0, len(parts), MAX_OUTPUTS):
        made = _call(b, made, [x], shape, size, strides, parts[i : i + MAX_OUTPUTS])
    return made


def _merge_axes(sizes: Sequence[int], order: Sequence[int]) -> tuple[list[int], list[int]]:
    """Return sizes and order with axes of one element left out, and those joined that follow each other before and after."""
    kept = [i for i in order if sizes[i] != 1]
    groups: list[list[int]] = []
    ranks = {axis: rank for rank, axis in enumerate(sorted(kept))}
    for axis in kept:
        if groups and ranks[groups[-1][-1]] + 1 == ranks[axis]:
            groups[-1].append(axis)
        else:
            groups.append([axis])
    by_place = sorted(groups)
    return [math.prod(sizes[i] for i in group) for group in by_place], [by_place.index(group) for group in groups]


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
