"""One tensor of a problem in device memory, so that what a launch overwrites or leaves unwritten shows.

Two layouts of memory serve two kinds of evidence:

``Layout.GUARDED``
    every tensor lies between guard bytes of a known pattern, which also fills the padding of its rows, and outputs hold a poison
    value. What a kernel overwrites beside its outputs, or leaves unwritten, shows on any device.
``Layout.EXACT``
    every tensor is an allocation of its own with not a byte more than its elements span, and the host writes nothing but the inputs'
    elements. The sanitizer of the emulated device then knows the true bounds, and which bytes nobody wrote.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device.interface import Buffer, Device, DeviceArray, Stream
from harness.spec.dtypes import find_dtype

# Bytes before and after each guarded tensor: more than a tile of rows of a small problem, and a multiple of the allocation alignment.
GUARD_BYTES = 16384
_GUARD_PATTERN = 0xA5
POISON_NAN = 0xFF
POISON_FINITE = 0x4B
_SEGMENT_ELEMS = 4096


class Layout(StrEnum):
    """How tensors lie in device memory; see the module's description."""

    GUARDED = "guarded"
    EXACT = "exact"


@dataclass(frozen=True)
class Damage:
    """Bytes that a launch changed and should not have: ``tensor`` is the nearest one, ``offset_bytes`` counts from its first byte."""

    tensor: str
    where: str
    num_bytes: int
    offset_bytes: int

    def describe(self) -> str:
        """Say where the first overwritten byte is."""
        return f"{self.num_bytes} bytes overwritten {self.where} {self.tensor}, the first at byte offset {self.offset_bytes} from its start"


class Allocation:
    """One tensor's allocation, with the host's copy of what its bytes should be."""

    def __init__(
        self,
        device: Device,
        name: str,
        shape: tuple[int, ...],
        dtype: str,
        strides: tuple[int, ...],
        layout: Layout,
        offset_elems: int = 0,
        *,
        is_inout: bool = False,
    ) -> None:
        self.name = name
        self.shape = shape
        self.dtype = find_dtype(dtype)
        self.layout = layout
        self._device = device
        self.strides = tuple(stride * self.dtype.itemsize for stride in strides)
        self.initial: NDArray[Any] | None = None
        self._kept: Buffer | None = None
        self._is_inout = is_inout
        self.span_bytes = self.dtype.itemsize + sum((n - 1) * s for n, s in zip(shape, self.strides, strict=True))
        guard_bytes = GUARD_BYTES if layout is Layout.GUARDED else 0
        self.start_bytes = guard_bytes + offset_elems * self.dtype.itemsize
        size_bytes = self.start_bytes + self.span_bytes + guard_bytes
        self.buffer: Buffer = device.allocate(size_bytes)
        self.array: DeviceArray = self.buffer.view(shape, self.dtype, self.start_bytes, self.strides)
        # An exact allocation may be far larger than the host's memory, where its rows lie far apart.
        self.image: NDArray[np.uint8] = np.full(size_bytes if layout is Layout.GUARDED else 0, _GUARD_PATTERN, np.uint8)

    def view(self, image: NDArray[np.uint8]) -> NDArray[Any]:
        """Return the elements in a copy of the allocation's bytes."""
        return np.ndarray(self.shape, self.dtype, image.data, self.start_bytes, self.strides)

    def set_elements(self, values: NDArray[Any]) -> None:
        """Write the elements, and the guards around them."""
        if self._is_inout:
            self.initial = np.array(values, order="C")
        if self.layout is Layout.EXACT:
            self.array.copy_from_host(np.asarray(values, order="C"))
            return
        self.view(self.image)[...] = values
        self.buffer.write(self.image)

    def poison(self, byte: int) -> None:
        """Fill the elements with a byte (guarded layout); an INOUT gets back what it held."""
        if self._is_inout:
            self.restore()
        elif self.layout is Layout.GUARDED:
            self.view(self.image)[...] = np.full(self.dtype.itemsize, byte, np.uint8).view(self.dtype)
            self.buffer.write(self.image)

    def restore(self) -> None:
        """Put back what an INOUT held before it was launched on."""
        if self.initial is not None:
            self.set_elements(self.initial)

    def queue_restore(self, stream: Stream) -> None:
        """Put back on a stream what the allocation held when this was first asked for."""
        if self._kept is None:
            self._kept = self._device.allocate(self.buffer.size_bytes)
            self._kept.copy_from(self.buffer, stream)
        self.buffer.copy_from(self._kept, stream)

    def free(self) -> None:
        """Free the memory; a second call does nothing."""
        self.buffer.free()
        self.drop_kept()

    def drop_kept(self) -> None:
        """Forget what :meth:`queue_restore` puts back."""
        if self._kept is not None:
            self._kept.free()
            self._kept = None

    def read_elements(self) -> NDArray[Any]:
        """Return the elements as they are now, contiguous."""
        return self.array.copy_to_host() if self.layout is Layout.EXACT else self.read()[0]

    def read(self) -> tuple[NDArray[Any], NDArray[np.uint8]]:
        """Return the elements (contiguous) and all bytes of the allocation as they are now (guarded layout)."""
        now = np.ascontiguousarray(self.buffer.read())
        return np.asarray(self.view(now), order="C"), now

    @property
    def _memory_order(self) -> list[int]:
        """The axes, that of the largest stride first."""
        return sorted(range(len(self.shape)), key=lambda axis: -self.strides[axis])

    @property
    def _is_packed(self) -> bool:
        """Whether nothing lies between the elements."""
        return self.span_bytes == math.prod(self.shape) * self.dtype.itemsize

    def write_grid(self, grid: Sequence[NDArray[np.intp]], values: NDArray[Any]) -> None:
        """Write elements at a grid of ascending places, and zeros to those near them: in their rows, where something lies between rows."""
        elements = np.ascontiguousarray(values.transpose(self._memory_order)).reshape(-1)
        if self._is_packed and values.size == math.prod(self.shape):
            self.buffer.write(elements, self.start_bytes)
            return
        offsets, segments = self._find_segments(grid)
        for segment in segments:
            places = offsets[segment]
            part = np.zeros(int(places[-1] - places[0]) + 1, self.dtype)
            part[places - places[0]] = elements[segment]
            self.buffer.write(part, self.start_bytes + int(places[0]) * self.dtype.itemsize)

    def read_grid(self, grid: Sequence[NDArray[np.intp]]) -> NDArray[Any]:
        """Return the elements at a grid of ascending places; little else is read."""
        offsets, segments = self._find_segments(grid)
        parts, item = [], self.dtype.itemsize
        for segment in segments:
            places = offsets[segment]
            read = self.buffer.read(self.start_bytes + int(places[0]) * item, (int(places[-1] - places[0]) + 1) * item)
            parts.append(read.view(self.dtype)[places - places[0]])
        order = self._memory_order
        return np.concatenate(parts).reshape([len(grid[axis]) for axis in order]).transpose(np.argsort(order))

    def _find_segments(self, grid: Sequence[NDArray[np.intp]]) -> tuple[NDArray[np.int64], list[slice]]:
        """Return the offsets of a grid's elements, ascending, and the parts of them between which there is more than a copy is worth.

        What is no element lies in no part.
        """
        offsets: NDArray[np.int64] = np.zeros((), np.int64)
        for axis in self._memory_order:
            offsets = offsets[..., np.newaxis] + grid[axis] * np.int64(self.strides[axis] // self.dtype.itemsize)
        flat = offsets.reshape(-1)
        ends = np.diff(flat) > _SEGMENT_ELEMS
        if not self._is_packed:
            length = offsets.shape[-1] if min(self.strides) == self.dtype.itemsize else 1
            ends[length - 1 :: length] = True
        edges = [0, *(int(i) for i in np.flatnonzero(ends) + 1), len(flat)]
        return flat, [slice(a, b) for a, b in itertools.pairwise(edges)]

    def find_damage(self, now: NDArray[np.uint8], *, elements_too: bool) -> list[Damage]:
        """Return where the allocation's bytes differ from what they should be: beside the elements, or there too."""
        changed = now != self.image
        if not elements_too:
            kept = np.ndarray((*self.shape, self.dtype.itemsize), np.bool_, changed.data, self.start_bytes, (*self.strides, 1))
            kept[...] = False
        if not changed.any():
            return []
        end = self.start_bytes + self.span_bytes
        regions = (("before", 0, self.start_bytes), ("inside", self.start_bytes, end), ("after", end, len(changed)))
        found = []
        for where, start, stop in regions:
            places = np.flatnonzero(changed[start:stop])
            if len(places):
                label = "in the row padding of" if where == "inside" and not elements_too else where
                found.append(Damage(self.name, label, len(places), start + int(places[0]) - self.start_bytes))
        return found
