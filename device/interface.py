"""The interface of a CUDA device, real or emulated, to the rest of the project.

Both backends implement these classes; nothing above this package knows which one it holds, except through
:attr:`Device.is_emulated` and the :class:`Observer` that only an emulated device has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from device.observer import Observer


class DeviceError(RuntimeError):
    """A CUDA call failed. ``code`` is the ``cudaError_t`` value (0 where no CUDA call was involved)."""

    def __init__(self, message: str, code: int = 0) -> None:
        super().__init__(message)
        self.code = code


class UnavailableError(RuntimeError):
    """Something the work needs is not on this machine; the message says what and how to get it."""


@dataclass(frozen=True)
class DeviceProperties:
    """Facts about the device, in the units of the names. Peak rates are the vendor's or measured figures of ``device.targets``."""

    name: str
    compute_capability: tuple[int, int]
    num_sms: int
    l2_bytes: int
    memory_bytes: int
    shared_per_block_optin_bytes: int
    shared_per_sm_bytes: int
    registers_per_sm: int
    max_threads_per_sm: int
    max_blocks_per_sm: int
    warp_size: int
    clock_khz: int
    uuid: str
    driver_version: int
    runtime_version: int


class DeviceArray(ABC):
    """An n-dimensional array in device memory.

    It owns or borrows memory at :attr:`address`; ``strides_bytes`` are in bytes. Implements ``__cuda_array_interface__`` version 3 and
    DLPack.
    """

    __slots__ = ()

    address: int
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    strides_bytes: tuple[int, ...]

    @property
    def is_contiguous(self) -> bool:
        """Whether the elements follow each other in C order with nothing between them."""
        if 0 in self.shape:
            return True
        step = self.dtype.itemsize
        for length, stride in zip(reversed(self.shape), reversed(self.strides_bytes), strict=True):
            if length != 1 and stride != step:
                return False
            step *= length
        return True

    @property
    def span_bytes(self) -> int:
        """Bytes from the first element's first byte to the last element's last byte (0 for an empty array)."""
        if 0 in self.shape:
            return 0
        return self.dtype.itemsize + sum((n - 1) * s for n, s in zip(self.shape, self.strides_bytes, strict=True))

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return {
            "version": 3,
            "shape": self.shape,
            "strides": self.strides_bytes,
            "typestr": self.dtype.str,
            "data": (self.address, False),
            "stream": None,
        }

    @abstractmethod
    def copy_to_host(self) -> NDArray[Any]:
        """Return a contiguous NumPy copy, after all work on the default stream."""

    @abstractmethod
    def copy_from_host(self, values: NDArray[Any]) -> None:
        """Overwrite the elements (and nothing between padded rows) from an array of the same shape and dtype."""


class Buffer(ABC):
    """A raw, owned allocation of device memory, freed with the object or by :meth:`free`."""

    address: int
    size_bytes: int

    @abstractmethod
    def read(self, offset_bytes: int = 0, size_bytes: int | None = None) -> NDArray[np.uint8]:
        """Copy bytes to the host."""

    @abstractmethod
    def read_into(self, out: NDArray[np.uint8], offset_bytes: int = 0) -> None:
        """Copy as many bytes as a contiguous host array has into it."""

    @abstractmethod
    def write(self, data: NDArray[Any], offset_bytes: int = 0) -> None:
        """Copy bytes (or blocking, any contiguous array) from the host."""

    @abstractmethod
    def fill(self, byte: int, offset_bytes: int = 0, size_bytes: int | None = None, *, stream: Stream | None = None) -> None:
        """Set bytes to one value in 0..255. On the emulated device this counts as initialising them.

        With a stream the fill is only queued there (and may be captured); without one it is done when this returns.
        """

    @abstractmethod
    def copy_from(self, source: Buffer, stream: Stream) -> None:
        """Queue a copy of another buffer of the same size on a stream; it may be captured."""

    @abstractmethod
    def view(
        self, shape: Sequence[int], dtype: DTypeLike, offset_bytes: int = 0, strides_bytes: Sequence[int] | None = None
    ) -> DeviceArray:
        """Return an array over part of the buffer; it keeps the buffer alive."""

    @abstractmethod
    def free(self) -> None:
        """Free now; a second call does nothing."""


class Stream(ABC):
    """An ordered queue of device work. ``handle`` is the ``cudaStream_t`` as an integer."""

    handle: int

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work queued so far; raise :class:`DeviceError` if any of it failed."""

    @abstractmethod
    def record(self, event: Event) -> None:
        """Queue an event behind all work so far."""

    @abstractmethod
    def wait(self, event: Event) -> None:
        """Hold later work of this stream until ``event`` has happened."""


class Event(ABC):
    """A marker in a stream. On the emulated device the elapsed time is host time, never to be shown as a GPU's."""

    handle: int

    @abstractmethod
    def synchronize(self) -> None:
        """Wait until the event has happened."""

    @abstractmethod
    def elapsed_us(self, start: Event) -> float:
        """Microseconds from ``start`` to this event; both must have happened."""


@dataclass(frozen=True)
class KernelNode:
    """One kernel launch inside a graph, as the runtime recorded it."""

    name: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    dynamic_shared_bytes: int


class Graph(ABC):
    """An instantiated CUDA graph; ``filled_bytes`` is what its memsets write."""

    num_nodes: int
    kernel_nodes: tuple[KernelNode, ...]
    filled_bytes: int = 0

    @abstractmethod
    def launch(self, stream: Stream) -> None:
        """Queue one replay."""


class Device(ABC):
    """A CUDA device, real or emulated. Obtain it with :func:`device.open_device`."""

    is_emulated: bool
    properties: DeviceProperties

    @abstractmethod
    def allocate(self, size_bytes: int) -> Buffer:
        """Allocate device memory, 256-byte aligned. Raises :class:`DeviceError` with code 2 when out of memory."""

    @abstractmethod
    def create_stream(self, *, non_blocking: bool = True) -> Stream:
        """Create a stream; a non-blocking one does not synchronise with the legacy default stream."""

    @abstractmethod
    def create_event(self, *, timing: bool = True) -> Event:
        """Create an event."""

    @abstractmethod
    @contextmanager
    def capture(self, stream: Stream) -> Iterator[list[Graph]]:
        """Capture the block's work on ``stream``; on a clean exit the yielded list holds the one instantiated graph."""

    @abstractmethod
    def synchronize(self) -> None:
        """Wait for all work on the device; raise :class:`DeviceError` if any of it failed."""

    @abstractmethod
    def bind_thread(self) -> None:
        """Make the device's context current on the calling thread.

        Driver functions that a launcher calls (encoders of tensor maps) need that, and looking one up through the runtime does not do it: a
        thread whose first CUDA call is a launch must be bound before.
        """

    @abstractmethod
    def take_last_error(self) -> tuple[int, str]:
        """Return and clear the runtime's last error: (0, "no error") when there is none."""

    @property
    def observer(self) -> Observer | None:
        """The sanitizer and counters, or None on a real device."""
        return None

    def empty(self, shape: Sequence[int], dtype: DTypeLike = np.float32) -> DeviceArray:
        """Return an uninitialised contiguous array."""
        dt = np.dtype(dtype)
        size = math.prod(map(int, shape)) * dt.itemsize
        return self.allocate(max(size, 1)).view(tuple(shape), dt)

    def asarray(self, values: NDArray[Any]) -> DeviceArray:
        """Return a contiguous device copy of a host array, in the machine's byte order; raises TypeError for one with a mask."""
        native = values.astype(values.dtype.newbyteorder("="), copy=False)
        array = self.empty(native.shape, native.dtype)
        array.copy_from_host(native)
        return array
