"""Operators of ONNX that move elements."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from aicf import functional as F
from aicf.frontends.network import Refusal
from aicf.frontends.onnx_rules.settings import Function, Settings, plain, rule
from aicf.opset.types import broadcast_shapes
from aicf.tensor import Tensor


def read_ints(values: Any) -> tuple[int, ...]:
    """Return numbers of the host: an attribute, or an input."""
    return tuple(int(n) for n in np.asarray(values).reshape(-1))


def read_axes(node: Settings, given: Any) -> tuple[int, ...] | None:
    """Return axes that newer operators have as an input and older ones as an attribute."""
    found = node.get("axes") if given is None else given
    return None if found is None else read_ints(found)


@rule("Reshape", hosts=(1,))
def _reshape(node: Settings) -> Function:
    keeps_zero = bool(node.get("allowzero", 0))

    def run(x: Tensor, shape: Any = None) -> Tensor:
        wanted = read_ints(node.get("shape") if shape is None else shape)
        return x.reshape(*(x.shape[i] if n == 0 and not keeps_zero else n for i, n in enumerate(wanted)))

    return run


@rule("Flatten")
def _flatten(node: Settings) -> Function:
    axis = node.get("axis", 1)

    def run(x: Tensor) -> Tensor:
        split = axis if axis >= 0 else axis + x.ndim
        return x.reshape(math.prod(x.shape[:split]), math.prod(x.shape[split:]))

    return run


@rule("Squeeze", hosts=(1,))
def _squeeze(node: Settings) -> Function:
    return lambda x, axes=None: F.squeeze(x, read_axes(node, axes))


@rule("Unsqueeze", hosts=(1,))
def _unsqueeze(node: Settings) -> Function:
    return lambda x, axes=None: F.unsqueeze(x, read_axes(node, axes) or ())


@rule("Transpose")
def _transpose(node: Settings) -> Function:
    order = node.get("perm")
    return lambda x: x.T if order is None else x.permute(*order)


def _expand(x: Tensor, shape: Any) -> Tensor:
    return F.broadcast(x, broadcast_shapes("Expand", x.shape, read_ints(shape)))


plain("Expand", _expand, hosts=(1,))


@rule("Concat")
def _concat(node: Settings) -> Function:
    axis = node.attrs["axis"]
    return lambda *xs: F.concat(xs, axis % xs[0].ndim)


@rule("Split", hosts=(1,))
def _split(node: Settings) -> Function:
    axis, count = node.get("axis", 0), node.get("num_outputs", len(node.reads))

    def run(x: Tensor, sizes: Any = None) -> list[Tensor]:
        given = node.get("split") if sizes is None else sizes
        length = x.shape[axis]
        most = -(-length // count)
        whole = read_ints(given) if given is not None else [min(most, max(length - i * most, 0)) for i in range(count)]
        parts = F.split(x, whole, axis)
        return parts if len(parts) > 1 else parts[0]  # type: ignore[return-value]  # one output is one value

    return run


@rule("Slice", hosts=(1, 2, 3, 4))
def _slice(node: Settings) -> Function:
    def run(x: Tensor, starts: Any = None, ends: Any = None, axes: Any = None, steps: Any = None) -> Tensor:
        first = read_ints(node.get("starts") if starts is None else starts)
        last = read_ints(node.get("ends") if ends is None else ends)
        places = read_axes(node, axes) or tuple(range(len(first)))
        if steps is not None and set(read_ints(steps)) - {1}:
            raise Refusal(f"steps {read_ints(steps)} are not supported; slices must have step 1")
        key = [slice(None)] * x.ndim
        for axis, start, stop in zip(places, first, last, strict=True):
            key[axis] = slice(start, stop)
        return x[tuple(key)]

    return run


@rule("Gather")
def _gather(node: Settings) -> Function:
    axis = node.get("axis", 0)

    def run(x: Tensor, indices: Tensor) -> Tensor:
        return F.gather(x, F.where(indices < 0, indices + x.shape[axis], indices), axis)

    return run


@rule("Pad", hosts=(1, 2, 3))
def _pad(node: Settings) -> Function:
    node.require("mode", "constant")

    def run(x: Tensor, pads: Any = None, value: Any = None, axes: Any = None) -> Tensor:
        ends = read_ints(node.get("pads") if pads is None else pads)
        places = range(x.ndim) if axes is None else [a % x.ndim for a in read_ints(axes)]
        before, after = [0] * x.ndim, [0] * x.ndim
        for i, axis in enumerate(places):
            before[axis], after[axis] = ends[i], ends[i + len(ends) // 2]
        number = node.get("value", 0.0) if value is None or np.asarray(value).size == 0 else np.asarray(value).item()
        return F.pad(x, before, after, number)

    return run


plain("Tile", lambda x, repeats: F.tile(x, read_ints(repeats)), hosts=(1,))


@rule("Shape")
def _shape(node: Settings) -> Function:
    start, end = node.get("start", 0), node.get("end")
    return lambda x: np.asarray(x.shape[start:end], np.int64)


plain("Size", lambda x: np.asarray(math.prod(x.shape), np.int64))


@rule("DepthToSpace")
def _depth_to_space(node: Settings) -> Function:
    size, mode = node.attrs["blocksize"], node.get("mode", "DCR")

    def run(x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        if mode == "CRD":
            made = x.reshape(n, c // size**2, size, size, h, w).permute(0, 1, 4, 2, 5, 3)
        else:
            made = x.reshape(n, size, size, c // size**2, h, w).permute(0, 3, 4, 1, 5, 2)
        return made.reshape(n, c // size**2, h * size, w * size)

    return run


@rule("SpaceToDepth")
def _space_to_depth(node: Settings) -> Function:
    size = node.attrs["blocksize"]
    node.require("mode", "DCR")

    def run(x: Tensor) -> Tensor:
        n, c, h, w = x.shape
        made = x.reshape(n, c, h // size, size, w // size, size).permute(0, 3, 5, 1, 2, 4)
        return made.reshape(n, c * size**2, h // size, w // size)

    return run
