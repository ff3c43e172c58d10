"""A CUDA device made of host memory and Python functions, so that the harness can be tested without nvcc, emulator or GPU.

Device addresses are host addresses. A "kernel" is a Python function that :meth:`FakeDevice.enqueue` runs at once, or records into a
graph while its stream is being captured. The device's time passes only when a kernel says so or memory is filled; the host catches up
with it where it synchronises.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from device.interface import Buffer, Device, DeviceArray, DeviceError, DeviceProperties, Event, Graph, KernelNode, Stream
from device.observer import LaunchCounters, Observer, Report
from harness.verify.allocations import POISON_NAN

Work = Callable[[], None]
PROPERTIES = DeviceProperties(
    name="Fake device",
    compute_capability=(9, 0),
    num_sms=132,
    l2_bytes=1 << 20,
    memory_bytes=1 << 30,
    shared_per_block_optin_bytes=232448,
    shared_per_sm_bytes=233472,
    registers_per_sm=65536,
    max_threads_per_sm=2048,
    max_blocks_per_sm=32,
    warp_size=32,
    clock_khz=1_980_000,
    uuid="GPU-00000000-0000-0000-0000-000000000000",
    driver_version=13000,
    runtime_version=13000,
)


class FakeArray(DeviceArray):
    def __init__(self, host: NDArray[Any], owner: FakeBuffer) -> None:
        self.host = host
        self.owner = owner
        self.address = host.ctypes.data
        self.shape = host.shape
        self.dtype = host.dtype
        self.strides_bytes = host.strides

    def copy_to_host(self) -> NDArray[Any]:
        return self.host.copy()

    def copy_from_host(self, values: NDArray[Any]) -> None:
        assert values.shape == self.shape and values.dtype == self.dtype
        self.host[...] = values


class FakeBuffer(Buffer):
    def __init__(self, device: FakeDevice, size_bytes: int) -> None:
        self.device = device
        self.host = np.zeros(size_bytes, np.uint8)
        self.address = self.host.ctypes.data
        self.size_bytes = size_bytes
        self.freed = False
        device.num_live += 1

    def read(self, offset_bytes: int = 0, size_bytes: int | None = None) -> NDArray[np.uint8]:
        self.device.check()
        assert not self.freed
        return self.host[offset_bytes : None if size_bytes is None else offset_bytes + size_bytes].copy()

    def read_into(self, out: NDArray[np.uint8], offset_bytes: int = 0) -> None:
        out[...] = self.read(offset_bytes, out.nbytes)

    def write(self, data: NDArray[Any], offset_bytes: int = 0) -> None:
        self.device.check()
        raw = np.ascontiguousarray(data).reshape(-1).view(np.uint8)
        self.host[offset_bytes : offset_bytes + raw.size] = raw

    def fill(self, byte: int, offset_bytes: int = 0, size_bytes: int | None = None, *, stream: Stream | None = None) -> None:
        end = None if size_bytes is None else offset_bytes + size_bytes
        self.device.enqueue(stream.handle if stream else 0, lambda: self.host[offset_bytes:end].fill(byte), "memset")

    def copy_from(self, source: Buffer, stream: Stream) -> None:
        assert isinstance(source, FakeBuffer)
        host = source.host

        def copy() -> None:
            np.copyto(self.host, host)
            self.device.clock_us += self.device.copied_us_per_byte * host.size

        self.device.enqueue(stream.handle, copy, "memcpy")

    def view(
        self, shape: Sequence[int], dtype: DTypeLike, offset_bytes: int = 0, strides_bytes: Sequence[int] | None = None
    ) -> DeviceArray:
        strides = None if strides_bytes is None else tuple(strides_bytes)
        return FakeArray(np.ndarray(tuple(shape), dtype, self.host.data, offset_bytes, strides), self)

    def free(self) -> None:
        if not self.freed:
            self.freed = True
            self.device.num_live -= 1


class FakeEvent(Event):
    def __init__(self, device: FakeDevice, handle: int) -> None:
        self.device = device
        self.handle = handle
        self.at_us = 0.0

    def synchronize(self) -> None:
        self.device.check()
        self.device.host_us = max(self.device.host_us, self.at_us)

    def elapsed_us(self, start: Event) -> float:
        assert isinstance(start, FakeEvent)
        return self.at_us - start.at_us


class FakeStream(Stream):
    def __init__(self, device: FakeDevice, handle: int) -> None:
        self.device = device
        self.handle = handle

    def synchronize(self) -> None:
        self.device.check()
        self.device.host_us = max(self.device.host_us, self.device.clock_us)

    def record(self, event: Event) -> None:
        assert isinstance(event, FakeEvent)
        event.at_us = self.device.clock_us

    def wait(self, event: Event) -> None:
        pass


class FakeGraph(Graph):
    def __init__(self, device: FakeDevice, work: list[tuple[str, Work]]) -> None:
        self.device = device
        self.work = work
        self.num_nodes = len(work)
        self.kernel_nodes = tuple(KernelNode(name, (1, 1, 1), (128, 1, 1), 0) for name, _ in work if name != "memset")

    def launch(self, stream: Stream) -> None:
        self.device.num_graph_launches += 1
        for name, run in self.work:
            self.device.enqueue(stream.handle, run, name)


class FakeObserver(Observer):
    """Reports what tests put into ``planned`` once its checks are on and a kernel has run."""

    def __init__(self) -> None:
        self.planned: list[Report] = []
        self.found: list[Report] = []
        self.counted: list[LaunchCounters] = []
        self.counts: dict[str, int] = {"warp_instructions": 1}
        self.options: dict[str, str] = {"memory_bytes": str(8 << 30)}
        self.state: tuple[tuple[str, ...], bool] = ((), False)

    def enable(self, checks: Sequence[str], *, counters: bool) -> None:
        self.state = (tuple(checks), counters)

    def enabled(self) -> tuple[tuple[str, ...], bool]:
        return self.state

    def set_option(self, name: str, value: str) -> None:
        self.options[name] = value

    def get_option(self, name: str) -> str:
        return self.options.get(name, "0" if name in ("instructions", "matrix_work") else "")

    def note_launch(self, name: str) -> None:
        if self.state[0]:
            self.found += self.planned
        if self.state[1]:
            self.counted.append(LaunchCounters(name, (1, 1, 1), (128, 1, 1), dict(self.counts)))

    def take_reports(self) -> list[Report]:
        found, self.found = self.found, []
        return found

    def take_counters(self) -> list[LaunchCounters]:
        counted, self.counted = self.counted, []
        return counted

    def find_written(self, address: int, size_bytes: int) -> list[tuple[int, int]]:
        # Whatever is poison no longer, word by word: a byte of a number may be as poison is.
        word = 4 if size_bytes % 4 == 0 else 1
        image = np.frombuffer((ctypes.c_uint8 * size_bytes).from_address(address), f"u{word}")
        is_written = image != np.frombuffer(bytes([POISON_NAN]) * word, image.dtype)[0]
        edges = word * np.flatnonzero(np.diff(np.concatenate([[False], is_written, [False]])))
        return [(int(begin), int(end)) for begin, end in edges.reshape(-1, 2)]

    def forget_written(self, address: int) -> None:
        """Nothing is kept: see find_written()."""


class FakeDevice(Device):
    def __init__(self, *, is_emulated: bool = False) -> None:
        self.is_emulated = is_emulated
        self.properties = PROPERTIES
        self.clock_us = 0.0
        self.host_us = 0.0
        self.fill_us = 100.0
        self.copied_us_per_byte = 0.0
        self.num_live = 0
        self.num_graph_launches = 0
        self.sticky: DeviceError | None = None
        self.last_error = (0, "no error")
        self.fake_observer = FakeObserver() if is_emulated else None
        self._capturing: dict[int, list[tuple[str, Work]]] = {}
        self._handles = 0x1000

    def check(self) -> None:
        if self.sticky is not None:
            raise self.sticky

    def enqueue(self, stream: int, work: Work, name: str = "kernel") -> None:
        """Run work now, or record it when its stream is being captured."""
        if stream in self._capturing:
            self._capturing[stream].append((name, work))
            return
        self.check()
        self.clock_us += self.fill_us if name == "memset" else 0.0
        work()
        if self.fake_observer is not None and name != "memset":
            self.fake_observer.note_launch(name)

    def _make_handle(self) -> int:
        self._handles += 16
        return self._handles

    def allocate(self, size_bytes: int) -> FakeBuffer:
        self.check()
        return FakeBuffer(self, size_bytes)

    def create_stream(self, *, non_blocking: bool = True) -> FakeStream:
        return FakeStream(self, self._make_handle())

    def create_event(self, *, timing: bool = True) -> FakeEvent:
        return FakeEvent(self, self._make_handle())

    @contextmanager
    def capture(self, stream: Stream) -> Iterator[list[Graph]]:
        self._capturing[stream.handle] = []
        graphs: list[Graph] = []
        try:
            yield graphs
            graphs.append(FakeGraph(self, self._capturing[stream.handle]))
        finally:
            del self._capturing[stream.handle]

    def synchronize(self) -> None:
        self.check()

    def bind_thread(self) -> None:
        """A fake has no context."""

    def take_last_error(self) -> tuple[int, str]:
        error, self.last_error = self.last_error, (0, "no error")
        return error

    @property
    def observer(self) -> FakeObserver | None:
        return self.fake_observer


class FakeInstruments:
    """Timing instruments of the fake device: ``clock_mhz`` is asked with its time, more samples than ``max_held`` overrun a hold."""

    def __init__(self, device: FakeDevice) -> None:
        self.device = device
        self.clock_mhz: Callable[[float], float] = lambda now_us: 1980.0
        self.max_held = 10**9
        self.calls: list[str] = []
        self.num_stamps: list[int] = []
        self.stamps_us: dict[int, float] = {}
        self.num_held: dict[int, int] = {}
        self.is_open = True
        self._ticket = 0
        self._first = 0

    def hold(self, stream: Stream) -> int:
        self.calls.append("hold")
        self._ticket += 1
        self._first = -1
        return self._ticket

    def release(self) -> None:
        self.calls.append("release")
        self.num_stamps.append(self.num_held.get(self._ticket, 0))

    def has_expired(self, ticket: int) -> bool:
        return self.num_held.get(ticket, 0) - 1 > self.max_held

    def stamp(self, stream: Stream, index: int) -> None:
        self._first = index if self._first < 0 else self._first
        held = self.num_held.get(self._ticket, 0)
        assert index == self._first + held
        self.num_held[self._ticket] = held + 1
        self.stamps_us[index] = self.device.clock_us

    def read_clocks_mhz(self, count: int, first: int = 0) -> NDArray[np.float64]:
        return np.array([self.clock_mhz(self.stamps_us[first + i]) for i in range(count)])

    def read_span_us(self, count: int, first: int = 0) -> float:
        return self.stamps_us[first + count] - self.stamps_us[first]

    def launch_nothing(self, stream: Stream) -> None:
        self.device.enqueue(stream.handle, lambda: None, "nothing")

    def reset_persisting_cache(self) -> None:
        self.calls.append("reset")

    def close(self) -> None:
        self.is_open = False
