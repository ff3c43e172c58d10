"""The interface of a CUDA device, real or emulated, to the rest of the project.

Both backends implement these classes; nothing above this package knows which one it holds, except through
:attr:`Device.is_emulated` and the :class:`Observer` that only an emulated device has.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray


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


@dataclass(frozen=True)
class Report:
    """One finding of the emulated device's sanitizer.

    ``kind`` is one of the words in ``device/emulator/README.md`` (``out_of_bounds_write``, ``shared_race``, ...). ``text`` is the whole
    message for people; the other fields are for programs. ``count`` is how often the same finding occurred at the same place.
    ``inlined_at`` lists the calls that were inlined, from that of the function that ``source`` is in outwards; ``copies`` the PTX lines of
    other copies of the place, which unrolling made, that the finding stands for as well; ``kernel_name`` is ``kernel`` demangled;
    ``launched_at`` the host's call that launched it, where that is C++ (``step at prog.cu:42, called from main at prog.cu:57``), else "".
    """

    kind: str
    severity: str
    text: str
    kernel: str = ""
    ptx_line: int = 0
    source: str = ""
    block: tuple[int, int, int] = (0, 0, 0)
    thread: tuple[int, int, int] = (0, 0, 0)
    address: int = 0
    count: int = 1
    kernel_name: str = ""
    inlined_at: tuple[str, ...] = ()
    copies: tuple[int, ...] = ()
    launched_at: str = ""


@dataclass(frozen=True)
class LaunchCounters:
    """Exact counts of one emulated launch, at PTX level. ``counts`` maps the counter names of ``device/emulator/README.md`` to values."""

    kernel: str
    grid: tuple[int, int, int]
    block: tuple[int, int, int]
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class LineCounters:
    """The counts of one PTX line that are not zero. ``source`` is ``kernels.cu:42``, or empty where the build has no line information."""

    ptx_line: int
    source: str
    function: str
    instruction: str
    counts: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class KernelLines:
    """A kernel's counts by PTX line, in the order of the lines, summed over ``launches`` launches."""

    kernel: str
    launches: int
    lines: tuple[LineCounters, ...] = ()

    def by_source(self) -> dict[str, dict[str, int]]:
        """Return the counts summed by source line; lines with no known source come under the empty name."""
        totals: dict[str, dict[str, int]] = {}
        for line in self.lines:
            sums = totals.setdefault(line.source, {})
            for name, value in line.counts.items():
                sums[name] = sums.get(name, 0) + value
        return totals


class DeviceArray(ABC):
    """An n-dimensional array in device memory.

    It owns or borrows memory at :attr:`address`; ``strides_bytes`` are in bytes. Implements ``__cuda_array_interface__`` version 3 and
    DLPack.
    """

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
    """An instantiated CUDA graph."""

    num_nodes: int
    kernel_nodes: tuple[KernelNode, ...]

    @abstractmethod
    def launch(self, stream: Stream) -> None:
        """Queue one replay."""


class Observer(ABC):
    """Sanitizer and counters of an emulated device. Checks and counters are off unless switched on."""

    CHECKS: tuple[str, ...] = ("memcheck", "initcheck", "synccheck", "racecheck", "streamcheck")

    @contextmanager
    def observe(self, checks: Sequence[str] | None = None, *, counters: bool = False) -> Iterator[Observer]:
        """Switch the named checks (all when None) and the counters on for the block, and back to what they were after it."""
        before = self.enabled()
        self.enable(self.CHECKS if checks is None else tuple(checks), counters=counters)
        try:
            yield self
        finally:
            self.enable(before[0], counters=before[1])

    @abstractmethod
    def enable(self, checks: Sequence[str], *, counters: bool) -> None:
        """Run exactly these checks from now on."""

    @abstractmethod
    def enabled(self) -> tuple[tuple[str, ...], bool]:
        """Return the checks in force and whether counters are on."""

    @contextmanager
    def use_options(self, values: Mapping[str, str]) -> Iterator[Observer]:
        """Set the options for the block, and back to what they were after it; raises ValueError with the reason when one cannot be."""
        before = {name: self.get_option(name) for name in values}
        try:
            for name, value in values.items():
                self.set_option(name, value)
            yield self
        finally:
            for name, value in before.items():
                self.set_option(name, value)

    @abstractmethod
    def get_option(self, name: str) -> str:
        """Return an option's value; raises ValueError when there is no such option."""

    @abstractmethod
    def set_option(self, name: str, value: str) -> None:
        """Set an option of the emulator (``workers``, ``schedule``, ``seed``, ...); raises ValueError with the reason when it cannot be."""

    @abstractmethod
    def take_reports(self) -> list[Report]:
        """Return the findings since the last call, and forget them."""

    @abstractmethod
    def take_counters(self) -> list[LaunchCounters]:
        """Return one entry per launch since the last call, and forget them."""

    def find_written(self, address: int, size_bytes: int) -> list[tuple[int, int]]:
        """Return which of the bytes from ``address`` on were written since they were allocated: [begin, end) offsets, ascending."""
        raise NotImplementedError

    def clear_error(self) -> None:
        """Forget an error that has ended the context; memory, streams and modules stay as they are."""
        raise NotImplementedError

    def lines(self) -> list[KernelLines]:
        """Return the counts by PTX line of each kernel that was counted since the last call, and forget them."""
        return []


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
