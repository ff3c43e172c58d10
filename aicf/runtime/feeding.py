"""Batches on their way to the device: copied from pinned memory while the device computes, through two buffers that take turns."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from aicf.opset import Type, find_dtype, type_of
from device import Buffer, DeviceArray, Event, Stream
from device.runtime import RuntimeDevice

_ALIGNMENT_BYTES = 256


class _Slot:
    """Room for one batch, in pinned memory and on the device. ``copied``: it is on the device; ``taken``: the plan has its own copy."""

    def __init__(self, device: RuntimeDevice, types: list[Type]) -> None:
        offsets, at = [], 0
        for t in types:
            offsets.append(at)
            at += -(-t.size_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES
        self.pinned: NDArray[np.uint8] = device.allocate_pinned(max(at, 1))
        self.buffer: Buffer = device.allocate(max(at, 1))
        dtypes = [find_dtype(t.dtype) for t in types]
        self.hosts: list[NDArray[Any]] = [
            self.pinned[o : o + t.size_bytes].view(d).reshape(t.shape) for t, d, o in zip(types, dtypes, offsets, strict=True)
        ]
        self.arrays: tuple[DeviceArray, ...] = tuple(
            self.buffer.view(t.shape, d, o) for t, d, o in zip(types, dtypes, offsets, strict=True)
        )
        self.copied: Event = device.create_event(timing=False)
        self.taken: Event = device.create_event(timing=False)


class Feed:
    """A loader's batches as arrays of the device, for a plan whose inputs have these types and are read on ``stream``.

    While a step computes, the next batch is put together and copied: nothing waits, unless both buffers are on their way. A batch of
    other types is passed on as it is. What is yielded is overwritten two batches later.
    """

    def __init__(self, loader: Iterable[Any], device: RuntimeDevice, types: list[Type], stream: Stream) -> None:
        self._loader, self._device, self._types, self._stream = loader, device, types, stream
        self._slots = [_Slot(device, types) for _ in range(2)]
        self._copies = device.create_stream()
        self._last: _Slot | None = None

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the loader's batches."""
        for batch in self._loader:
            if [type_of(array) for array in batch] == self._types and all(isinstance(array, np.ndarray) for array in batch):
                yield self._stage(batch)
            else:
                yield batch

    def _stage(self, batch: tuple[NDArray[Any], ...]) -> tuple[DeviceArray, ...]:
        slot = self._slots[0]
        self._slots.reverse()
        if self._last is not None:  # whoever had the last batch has queued a copy of it by now
            self._stream.record(self._last.taken)
        slot.copied.synchronize()  # the pinned memory is read until then
        for host, array in zip(slot.hosts, batch, strict=True):
            np.copyto(host, array)
        self._copies.wait(slot.taken)
        self._device.upload(slot.buffer.address, slot.pinned, self._copies)
        self._copies.record(slot.copied)
        self._stream.wait(slot.copied)
        self._last = slot
        return slot.arrays
