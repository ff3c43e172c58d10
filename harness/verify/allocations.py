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

    def _find_row(self, index: Sequence[int]) -> int:
        """Return the byte offset of a row in the buffer, by its index along the leading axes."""
        return self.start_bytes + sum(int(i) * stride for i, stride in zip(index, self.strides[:-1], strict=True))

    def _find_place(self, index: Sequence[int]) -> int:
        """Return the byte offset of an element in the buffer."""
        return self.start_bytes + sum(int(i) * stride for i, stride in zip(index, self.strides, strict=True))

    @property
    def _is_row_major(self) -> bool:
        """Whether elements lie in the order of their indices, with those of the last dimension beside each other."""
        return list(self.strides) == sorted(self.strides, reverse=True) and self.strides[-1] == self.dtype.itemsize

    def write_grid(self, grid: Sequence[NDArray[np.intp]], values: NDArray[Any]) -> None:
        """Write elements at a grid of ascending places, and zeros to those near them in their rows."""
        if not grid or self.strides[-1] != self.dtype.itemsize:
            for index, element in zip(itertools.product(*grid), values.reshape(-1), strict=True):
                self.buffer.write(np.array([element], self.dtype), self._find_place(index))
            return
        dense = (
            self._is_row_major
            and all(len(places) == n for places, n in zip(grid, self.shape, strict=True))
            and self.span_bytes == values.nbytes
        )
        if dense and all((np.diff(places) == 1).all() for places in grid):
            self.buffer.write(np.ascontiguousarray(values), self.start_bytes)
            return
        rows = values.reshape(-1, values.shape[-1])
        segments = _find_segments(grid[-1])
        for index, elements in zip(itertools.product(*grid[:-1]), rows, strict=True):
            start = self._find_row(index)
            for segment in segments:
                places = grid[-1][segment]
                part = np.zeros(int(places[-1] - places[0]) + 1, self.dtype)
                part[places - places[0]] = elements[segment]
                self.buffer.write(part, start + int(places[0]) * self.dtype.itemsize)

    def read_grid(self, grid: Sequence[NDArray[np.intp]]) -> NDArray[Any]:
        """Return the elements at a grid of ascending places; little else is read."""
        if not grid or self.strides[-1] != self.dtype.itemsize:
            places_bytes = [self._find_place(index) for index in itertools.product(*grid)]
            elements = [self.buffer.read(place, self.dtype.itemsize).view(self.dtype) for place in places_bytes]
            return np.concatenate(elements).reshape(tuple(map(len, grid)))
        parts = []
        segments = _find_segments(grid[-1])
        for index in itertools.product(*grid[:-1]):
            start = self._find_row(index)
            for segment in segments:
                places = grid[-1][segment]
                first, size = int(places[0]), int(places[-1] - places[0]) + 1
                read = self.buffer.read(start + first * self.dtype.itemsize, size * self.dtype.itemsize)
                parts.append(read.view(self.dtype)[places - first])
        return np.concatenate(parts).reshape(tuple(map(len, grid)))

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


def _find_segments(places: NDArray[np.intp]) -> list[slice]:
    """Return the parts of ascending places between which there is more than a copy of its own is worth."""
    edges = [0, *(np.flatnonzero(np.diff(places) > _SEGMENT_ELEMS) + 1), len(places)]
    return [slice(int(a), int(b)) for a, b in itertools.pairwise(edges)]
