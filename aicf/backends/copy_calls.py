"""Calls of ``strided_copy``: from the numbers of the opset's call to the tensors of the frozen op, parts of the arrays each."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from aicf.backends.calls import FrozenCall
from aicf.backends.chain_calls import ALIGNED
from aicf.opset import Attrs, Type, find_dtype
from aicf.opset.copies import MAX_PIECES, read_copy
from aicf.registry import KernelHandle, Problem

# Bits are moved: elements of as many bytes do as well.
_DTYPES = {1: "uint8", 2: "int16", 4: "float32", 8: "int64"}
_WHOLE = ("a", "yb", "yn", "yc", "yd")
_SCALARS = dict.fromkeys(("at_b", "at_n", "at_c", "at_d"), 0)


@dataclass(frozen=True)
class CopyQuestion:
    """A call of a copy as the registry knows it, and which tensors of the frozen op its arrays are."""

    problem: Problem
    inputs: tuple[tuple[str, ...], ...]
    outputs: tuple[tuple[str, ...], ...]
    places: dict[str, int]
    scalars: dict[str, int]

    def call(self, handle: KernelHandle) -> FrozenCall:
        """Return the call by a kernel."""
        return FrozenCall(handle, self.inputs, self.outputs, self.scalars, self.places)


def ask_copy(types: Sequence[Type | None], attrs: Attrs) -> CopyQuestion:
    """Return a copy's question; what it copies into is where its output is."""
    copy = read_copy(attrs)
    item = next(find_dtype(t.dtype).itemsize for t in types[1:] if t is not None)
    count = len(copy.lengths)
    lengths = copy.lengths + copy.lengths[:1] * (MAX_PIECES - count)
    sizes = dict(zip("abcd", copy.extents, strict=True)) | {f"n{i}": n for i, n in enumerate(lengths)}
    sizes |= dict(zip(_WHOLE, copy.whole or copy.list_shapes()[0], strict=True))
    # In a whole the scalars say where the piece is, else y's address does.
    starts = (0,) if copy.whole else copy.out_offsets
    scalars = {f"at_{axis}": at for axis, at in zip("bncd", copy.list_places()[1:], strict=True)} if copy.whole else {}
    strides = {f"x{i}": copy.in_strides[i] for i in range(count)} | {f"y{i}": copy.out_strides for i in range(count)}
    places = {f"x{i}": item * at for i, at in enumerate(copy.in_offsets)} | {f"y{i}": item * at for i, at in enumerate(starts)}
    addresses = {name: ALIGNED + offset for name, offset in places.items()}
    problem = Problem(sizes, {"dtype": _DTYPES[item], "pieces": count, "whole": bool(copy.whole)}, strides, addresses)
    inputs = [tuple(f"x{i}" for i, source in enumerate(copy.sources) if source == k) for k in range(len(types) - 1)]
    return CopyQuestion(problem, ((), *inputs), (tuple(f"y{i}" for i in range(count)),), places, _SCALARS | scalars)
