"""Arrays cut, joined, padded and permuted: one launch of the frozen op ``strided_copy`` each.

It copies pieces of five axes, of which all but the middle one are the pieces' own, from any strides to any strides. The rules here write
calls of the opset as such copies: axes that lie behind each other on both sides are merged, and what has more than five left takes
several launches.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.opset.definition import REQUIRED, Arrays, Builder, OpDef, Types, V
from aicf.opset.types import Attrs, Type

COPY = "strided_copy"
MAX_PIECES, NUM_AXES = 8, 5
_MIDDLE = 2
# Axes that may always be cut or padded at once: with those around them they are five.
_AT_ONCE = 2


@dataclass(frozen=True)
class Copy:
    """A call's numbers: extents of the axes around the middle one, and per piece its length along that, its source, and where it lies.

    Offsets and strides are in elements. All pieces have the strides of the array that they are copied into. Of a pad, ``whole`` has that
    array's extents along the five axes: what the piece does not cover there is zero.
    """

    extents: tuple[int, ...]
    lengths: tuple[int, ...]
    sources: tuple[int, ...]
    in_offsets: tuple[int, ...]
    out_offsets: tuple[int, ...]
    in_strides: tuple[tuple[int, ...], ...]
    out_strides: tuple[int, ...]
    whole: tuple[int, ...] = ()

    def list_places(self) -> list[int]:
        """Return where the first piece begins in the whole, along each axis."""
        places, rest = [], self.out_offsets[0]
        for stride in self.out_strides:
            places.append(rest // stride)
            rest %= stride
        return places

    def list_shapes(self) -> list[tuple[int, ...]]:
        """Return each piece's extents."""
        return [(*self.extents[:_MIDDLE], length, *self.extents[_MIDDLE:]) for length in self.lengths]


def read_copy(attrs: Attrs) -> Copy:
    """Return the numbers of a call; raises ValueError where they do not fit each other."""
    numbers = {name: _ints(attrs, name) for name in _NAMES}
    count = len(numbers["lengths"])
    per_piece = [len(numbers[name]) for name in ("sources", "in_offsets", "out_offsets")]
    if not 1 <= count <= MAX_PIECES or per_piece != [count] * 3 or len(numbers["in_strides"]) != NUM_AXES * count:
        raise ValueError(f"{COPY}: takes 1 to {MAX_PIECES} pieces, each with a source, two offsets and {NUM_AXES} strides, got {numbers}")
    whole = _ints({"whole": (), **attrs}, "whole")
    if whole and (count > 1 or len(whole) != NUM_AXES):
        raise ValueError(f"{COPY}: one piece alone has zeros around it, in {NUM_AXES} extents, got {count} pieces and {whole}")
    if len(numbers["extents"]) != NUM_AXES - 1 or len(numbers["out_strides"]) != NUM_AXES or min(map(min, numbers.values())) < 0:
        raise ValueError(f"{COPY}: takes {NUM_AXES - 1} extents and {NUM_AXES} strides, none negative, got {numbers}")
    strides = tuple(numbers["in_strides"][i : i + NUM_AXES] for i in range(0, NUM_AXES * count, NUM_AXES))
    return Copy(
        extents=numbers["extents"],
        lengths=numbers["lengths"],
        sources=numbers["sources"],
        in_offsets=numbers["in_offsets"],
        out_offsets=numbers["out_offsets"],
        in_strides=strides,
        out_strides=numbers["out_strides"],
        whole=whole,
    )


def _ints(attrs: Attrs, name: str) -> tuple[int, ...]:
    value = attrs[name]
    assert isinstance(value, tuple)
    return value


def _infer(types: Types, attrs: Attrs) -> tuple[Type, ...]:
    into, *sources = types
    first = next((t for t in sources if t is not None), None)
    if first is None or any(t is None or t.dtype != first.dtype for t in sources):
        raise TypeError(f"{COPY}: expected arrays of one dtype, got {', '.join(map(str, types))}")
    made, copy = Type(first.dtype, _ints(attrs, "shape")), read_copy(attrs)
    if into is not None and into != made:
        raise TypeError(f"{COPY}: into: expected {made}, got {into}")
    covered = sum(math.prod(shape) for shape in copy.list_shapes())
    if copy.whole and (into is not None or math.prod(copy.whole) != made.num_elems):
        raise ValueError(f"{COPY}: a whole of {copy.whole} is not {made}, or would overwrite what is copied into")
    if into is None and not copy.whole and covered != made.num_elems:
        raise ValueError(f"{COPY}: {covered} elements do not fill {made}; give what they are copied into")
    for i, shape in enumerate(copy.list_shapes()):
        source = sources[copy.sources[i]]
        assert source is not None
        sides = ((copy.in_offsets[i], copy.in_strides[i], source), (copy.out_offsets[i], copy.out_strides, made))
        for offset, strides, known in sides:
            last = offset + sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
            if min(shape) < 1 or last >= known.num_elems:
                raise ValueError(f"{COPY}: piece {i}, {shape} at {offset} with strides {strides}, is not inside {known}")
    return (made,)


def _copy(arrays: Arrays, attrs: Attrs) -> tuple[Any]:
    into, *sources = arrays
    shape, copy = _ints(attrs, "shape"), read_copy(attrs)
    flat = np.zeros(math.prod(shape), sources[0].dtype) if into is None else np.array(into).reshape(-1)
    for i, extents in enumerate(copy.list_shapes()):
        source = np.ascontiguousarray(sources[copy.sources[i]]).reshape(-1)
        part = _view(source, copy.in_offsets[i], extents, copy.in_strides[i])
        _view(flat, copy.out_offsets[i], extents, copy.out_strides)[...] = part
    return (flat.reshape(shape),)


def _view(flat: NDArray[Any], offset: int, shape: Sequence[int], strides: Sequence[int]) -> NDArray[Any]:
    return np.lib.stride_tricks.as_strided(flat[offset:], shape, [flat.itemsize * stride for stride in strides])


# ---- lowering


# An axis of a piece: its extent, and its strides on both sides.
Axis = tuple[int, int, int]


def _merge(axes: Sequence[Axis]) -> list[Axis]:
    """Return axes, outermost first, without those of one place, and joined where the inner one ends as the outer one goes on."""
    merged: list[Axis] = []
    for extent, read, written in axes:
        if extent == 1:
            continue
        if merged and merged[-1][1:] == (extent * read, extent * written):
            merged[-1] = (merged[-1][0] * extent, read, written)
        else:
            merged.append((extent, read, written))
    return merged


def _list_strides(shape: Sequence[int]) -> list[int]:
    return [math.prod(shape[i + 1 :]) for i in range(len(shape))]


def _copy_piece(b: Builder, x: V, shape: Sequence[int], axes: Sequence[Axis], offset: int = 0) -> V | None:
    """Return a copy of one piece, from ``offset`` on, into an array of that shape; None where more than five axes are left."""
    merged = _merge(axes)
    if len(merged) > NUM_AXES:
        return None
    filled = [(1, 1, 1)] * (NUM_AXES - len(merged)) + merged
    return _call(b, [x], shape, _make_copy(filled, offset, 0))


def _make_copy(axes: Sequence[Axis], read_from: int, write_to: int, whole: Sequence[int] = ()) -> Copy:
    extents, read, written = (tuple(axis[i] for axis in axes) for i in range(3))
    around = (*extents[:_MIDDLE], *extents[_MIDDLE + 1 :])
    return Copy(around, (extents[_MIDDLE],), (0,), (read_from,), (write_to,), (read,), written, tuple(whole))


def _call(b: Builder, sources: Sequence[V], shape: Sequence[int], copy: Copy) -> V:
    attrs: Attrs = {
        "shape": tuple(shape),
        "extents": copy.extents,
        "lengths": copy.lengths,
        "sources": copy.sources,
        "in_offsets": copy.in_offsets,
        "out_offsets": copy.out_offsets,
        "in_strides": tuple(itertools.chain(*copy.in_strides)),
        "out_strides": copy.out_strides,
        "whole": copy.whole,
    }
    (made,) = b.call(COPY, (None, *sources), attrs)
    return made


def lower_slice(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Lower a slice to one copy; where more than two axes are cut and too many lie between them, to one for each two."""
    x, starts, stops = inputs[0], _ints(attrs, "starts"), _ints(attrs, "stops")
    t = b.type_of(x)
    if t.num_elems == 0 or any(start == stop for start, stop in zip(starts, stops, strict=True)):
        return None
    cut = [i for i, n in enumerate(t.shape) if stops[i] - starts[i] < n]
    if not cut:
        return [x]
    if (made := _cut(b, x, starts, stops, cut)) is not None:
        return [made]
    for i in range(0, len(cut), _AT_ONCE):
        x = _cut(b, x, starts, stops, cut[i : i + _AT_ONCE])
    return [x]


def _cut(b: Builder, x: V, starts: Sequence[int], stops: Sequence[int], axes: Sequence[int]) -> V | None:
    t = b.type_of(x)
    shape = [stops[i] - starts[i] if i in axes else n for i, n in enumerate(t.shape)]
    read = _list_strides(t.shape)
    offset = sum(starts[i] * read[i] for i in axes)
    return _copy_piece(b, x, shape, list(zip(shape, read, _list_strides(shape), strict=True)), offset)


def lower_pad(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Lower to one copy with zeros around it; of more than two axes that grow, two at a time where they do not go at once."""
    x, before, after = inputs[0], _ints(attrs, "before"), _ints(attrs, "after")
    t = b.type_of(x)
    if t.num_elems == 0:
        return None
    grown = [i for i in range(len(t.shape)) if before[i] or after[i]]
    if not grown:
        return [x]
    if (made := _grow(b, x, before, after, grown)) is not None:
        return [made]
    for i in range(0, len(grown), _AT_ONCE):
        x = _grow(b, x, before, after, grown[i : i + _AT_ONCE])
    return [x]


def _grow(b: Builder, x: V, before: Sequence[int], after: Sequence[int], axes: Sequence[int]) -> V | None:
    t = b.type_of(x)
    shape = [n + before[i] + after[i] if i in axes else n for i, n in enumerate(t.shape)]
    written, count = _list_strides(shape), math.prod(shape)
    merged = _merge(list(zip(t.shape, _list_strides(t.shape), written, strict=True)))
    # Elements that are neighbours in y, which the piece may have one of.
    if not merged or merged[-1][2] > 1:
        merged.append((1, 1, 1))
    # The outermost of the five has no zeros around it.
    if len(merged) > NUM_AXES or (len(merged) == NUM_AXES and merged[0][0] * merged[0][2] < count):
        return None
    filled = [(1, 1, count)] * (NUM_AXES - len(merged)) + merged
    steps = [count] + [axis[2] for axis in filled]
    whole = [outer // inner for outer, inner in itertools.pairwise(steps)]
    return _call(b, [x], shape, _make_copy(filled, 0, sum(before[i] * written[i] for i in axes), whole))


def lower_concat(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Lower to one copy of up to 8 pieces; more are joined by the eight first, and what they are then joined."""
    there, axis = [x for x in inputs if x is not None and b.type_of(x).num_elems], attrs["axis"]
    assert isinstance(axis, int)
    if not there:
        return None
    while len(there) > 1:
        there = [_join(b, there[i : i + MAX_PIECES], axis) for i in range(0, len(there), MAX_PIECES)]
    return there


def _join(b: Builder, parts: Sequence[V], axis: int) -> V:
    if len(parts) == 1:
        return parts[0]
    types = [b.type_of(x) for x in parts]
    lengths = tuple(t.shape[axis] for t in types)
    rows, inner = math.prod(types[0].shape[:axis]), math.prod(types[0].shape[axis + 1 :])
    ends = tuple(itertools.accumulate(lengths, initial=0))
    whole = ends[-1] * inner
    copy = Copy(
        extents=(1, rows, 1, inner),
        lengths=lengths,
        sources=tuple(range(len(parts))),
        in_offsets=(0,) * len(parts),
        out_offsets=tuple(end * inner for end in ends[:-1]),
        in_strides=tuple((n * inner * rows, n * inner, inner, inner, 1) for n in lengths),
        out_strides=(whole * rows, whole, inner, inner, 1),
    )
    return _call(b, parts, (*types[0].shape[:axis], ends[-1], *types[0].shape[axis + 1 :]), copy)


def lower_permute(b: Builder, inputs: Sequence[V | None], attrs: Attrs) -> Sequence[V] | None:
    """Lower to a transpose of an fp32 matrix, or to a copy; of more than five axes two that belong together are first brought together."""
    x, t = inputs[0], b.type_of(inputs[0])
    wanted = [t.shape[i] for i in _ints(attrs, "order")]
    if t.num_elems == 0:
        return None
    sizes, order = merge_axes(t.shape, _ints(attrs, "order"))
    while len(order) > NUM_AXES:
        joined = _bring_together(len(sizes), order[0], order[1])
        x = _permute(b, x, sizes, joined, [sizes[i] for i in joined])
        sizes, order = merge_axes([sizes[i] for i in joined], [joined.index(i) for i in order])
    if len(order) < 2:
        return [b.reshape(x, wanted)]
    if order == [1, 0] and t.dtype == "float32":
        return [b.reshape(b.one("transpose", b.reshape(x, sizes)), wanted)]
    return [_permute(b, x, sizes, order, wanted)]


def _bring_together(count: int, first: int, second: int) -> list[int]:
    """Return an order in which axis ``second`` follows ``first``, and the others stay: five axes at most are left of it."""
    rest = [i for i in range(count) if i != second]
    at = rest.index(first) + 1
    return [*rest[:at], second, *rest[at:]]


def _permute(b: Builder, x: V, sizes: Sequence[int], order: Sequence[int], shape: Sequence[int]) -> V:
    """Return the elements of an array of these sizes with its axes in another order, in an array of any shape of as many elements."""
    turned, read = [sizes[i] for i in order], _list_strides(sizes)
    made = _copy_piece(b, x, shape, [(sizes[i], read[i], n) for i, n in zip(order, _list_strides(turned), strict=True)])
    assert made is not None, "five axes are left"
    return made


def merge_axes(sizes: Sequence[int], order: Sequence[int]) -> tuple[list[int], list[int]]:
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


_NAMES = ("extents", "lengths", "sources", "in_offsets", "out_offsets", "in_strides", "out_strides")

OPS = (
    OpDef(
        COPY,
        ("into?", "x*"),
        ("y",),
        _infer,
        _copy,
        {**dict.fromkeys(("shape", *_NAMES), REQUIRED), "whole": ()},
        moves=True,
        is_frozen=True,
        in_place={"y": "into"},
    ),
)
