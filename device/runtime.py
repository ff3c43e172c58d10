"""Streams, events, capture and graphs over the CUDA runtime API, shared by the real and the emulated device."""

from __future__ import annotations

import ctypes
import gc
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

import numpy as np
from numpy.typing import NDArray

from device import cudart as api
from device.cudart import Cudart
from device.interface import Buffer, Device, DeviceError, Event, Graph, KernelNode, Stream
from device.layout import Layout
from device.memory import MAX_PITCH_BYTES, RuntimeArray, RuntimeBuffer
from device.pool import Block, Pool

# Of the device's memory, what freed memory of eager calls may stay allocated.
_POOL_SHARE = 8


class RuntimeStream(Stream):
    """A stream of the runtime, destroyed with the object."""

    def __init__(self, cudart: Cudart, *, non_blocking: bool) -> None:
        self._cudart = cudart
        self.handle = cudart.create_handle("cudaStreamCreateWithFlags", api.STREAM_NON_BLOCKING if non_blocking else 0)
        _destroy_with(self, cudart, "cudaStreamDestroy", self.handle)

    def synchronize(self) -> None:
        """Wait for all work queued so far; raise :class:`DeviceError` if any of it failed."""
        self._cudart.call("cudaStreamSynchronize", self.handle)

    def record(self, event: Event) -> None:
        """Queue an event behind all work so far."""
        self._cudart.call("cudaEventRecord", event.handle, self.handle)

    def wait(self, event: Event) -> None:
        """Hold later work of this stream until ``event`` has happened."""
        self._cudart.call("cudaStreamWaitEvent", self.handle, event.handle, 0)


class RuntimeEvent(Event):
    """An event of the runtime, destroyed with the object."""

    def __init__(self, cudart: Cudart, *, timing: bool) -> None:
        self._cudart = cudart
        self.handle = cudart.create_handle("cudaEventCreateWithFlags", 0 if timing else api.EVENT_DISABLE_TIMING)
        _destroy_with(self, cudart, "cudaEventDestroy", self.handle)

    def synchronize(self) -> None:
        """Wait until the event has happened."""
        self._cudart.call("cudaEventSynchronize", self.handle)

    def elapsed_us(self, start: Event) -> float:
        """Microseconds from ``start`` to this event; both must have happened."""
        milliseconds = ctypes.c_float()
        self._cudart.call("cudaEventElapsedTime", ctypes.byref(milliseconds), start.handle, self.handle)
        return milliseconds.value * 1e3


class RuntimeGraph(Graph):
    """An instantiated graph; takes over the captured ``cudaGraph_t``, which is read and destroyed here."""

    def __init__(self, cudart: Cudart, captured: int) -> None:
        self._cudart = cudart
        try:
            nodes = _list_nodes(cudart, captured)
            self.num_nodes = len(nodes)
            self.kernel_nodes = tuple(_read_kernel_nodes(cudart, nodes))
            self.filled_bytes = sum(_read_filled_bytes(cudart, node) for node, kind in nodes if kind == api.NODE_TYPE_MEMSET)
            self.handle = cudart.create_handle("cudaGraphInstantiate", captured, 0)
        finally:
            cudart.call_quietly("cudaGraphDestroy", captured)
        _destroy_with(self, cudart, "cudaGraphExecDestroy", self.handle)

    def launch(self, stream: Stream) -> None:
        """Queue one replay."""
        self._cudart.call("cudaGraphLaunch", self.handle, stream.handle)


class RuntimeDevice(Device):
    """Device 0 of the runtime behind ``cudart``."""

    buffer_class: type[RuntimeBuffer]

    def __init__(self, cudart: Cudart) -> None:
        self.cudart = cudart
        self.is_emulated = cudart.is_emulated
        self.properties = cudart.read_properties()
        self.pool = Pool(cudart, self.properties.memory_bytes // _POOL_SHARE)

    def empty_queued(self, layout: Layout) -> RuntimeArray:
        """Return an uninitialised array for work on the default stream, of memory that earlier such work is done with, or will be.

        Its ``queued_address`` is for that work; who asks for its ``address`` may do with it what they like.
        """
        array_class = self.buffer_class.array_class
        return array_class(Block(self.pool, layout.size_bytes or 1, array_class), layout)

    def allocate_queued(self, size_bytes: int) -> Block:
        """Allocate memory for work on the default stream, as :meth:`empty_queued` does."""
        return Block(self.pool, size_bytes, self.buffer_class.array_class)

    def allocate(self, size_bytes: int) -> Buffer:
        """Allocate device memory, 256-byte aligned."""
        if size_bytes < 1:
            raise ValueError(f"size_bytes={size_bytes}: must be at least 1")
        address, release = self._allocate_memory(size_bytes)
        return self.buffer_class(self.cudart, address, size_bytes, release)

    def _allocate_memory(self, size_bytes: int) -> tuple[int, Callable[[], None]]:
        """Return the address of new memory, and what gives it back."""
        address = self.pool.allocate(size_bytes)
        return address, partial(self.cudart.call_quietly, "cudaFree", address)

    def create_stream(self, *, non_blocking: bool = True) -> Stream:
        """Create a stream; a non-blocking one does not synchronise with the legacy default stream."""
        return RuntimeStream(self.cudart, non_blocking=non_blocking)

    def create_event(self, *, timing: bool = True) -> Event:
        """Create an event."""
        return RuntimeEvent(self.cudart, timing=timing)

    @contextmanager
    def capture(self, stream: Stream) -> Iterator[list[Graph]]:
        """Capture the block's work on ``stream``; on a clean exit the yielded list holds the one instantiated graph.

        The capture is of the global mode: calls that could break it fail, in whatever stream they are made. So no garbage is collected
        meanwhile: a buffer that becomes free by that would end the capture.
        """
        with _without_collector():
            self.cudart.call("cudaStreamBeginCapture", stream.handle, api.CAPTURE_MODE_GLOBAL)
            graphs: list[Graph] = []
            try:
                yield graphs
            except BaseException:
                captured = ctypes.c_void_p()
                self.cudart.call_quietly("cudaStreamEndCapture", stream.handle, ctypes.byref(captured))
                if captured.value:
                    self.cudart.call_quietly("cudaGraphDestroy", captured.value)
                raise
            captured = ctypes.c_void_p()
            self.cudart.call("cudaStreamEndCapture", stream.handle, ctypes.byref(captured))
            graphs.append(RuntimeGraph(self.cudart, captured.value or 0))

    def copy(self, target: int, source: int, size_bytes: int, stream: Stream | None = None) -> None:
        """Queue a copy from one device address to another, on a stream or the default one; it may be captured."""
        handle = api.DEFAULT_STREAM if stream is None else stream.handle
        self.cudart.call("cudaMemcpyAsync", target, source, size_bytes, api.MEMCPY_DEVICE_TO_DEVICE, handle)

    def copy_rows(
        self, target: int, target_pitch: int, source: int, source_pitch: int, row_bytes: int, num_rows: int, stream: Stream
    ) -> None:
        """Queue a copy of rows from one device address to another; pitches are bytes from row to row."""
        if max(target_pitch, source_pitch) > MAX_PITCH_BYTES:
            for row in range(num_rows):
                self.copy(target + row * target_pitch, source + row * source_pitch, row_bytes, stream)
            return
        kind = api.MEMCPY_DEVICE_TO_DEVICE
        self.cudart.call("cudaMemcpy2DAsync", target, target_pitch, source, source_pitch, row_bytes, num_rows, kind, stream.handle)

    def allocate_pinned(self, size_bytes: int) -> NDArray[np.uint8]:
        """Allocate host memory that copies to and from the device read without a detour; it is freed with the array and its views."""
        if size_bytes < 1:
            raise ValueError(f"size_bytes={size_bytes}: must be at least 1")
        address = self.cudart.create_handle("cudaMallocHost", size_bytes)
        block = (ctypes.c_uint8 * size_bytes).from_address(address)
        weakref.finalize(block, self.cudart.call_quietly, "cudaFreeHost", address)
        pinned: NDArray[np.uint8] = np.ctypeslib.as_array(block)
        return pinned

    def upload(self, target: int, source: NDArray[np.uint8], stream: Stream) -> None:
        """Queue a copy of pinned memory to a device address; it must not be changed until the stream is past the copy."""
        self.cudart.call("cudaMemcpyAsync", target, source.ctypes.data, source.nbytes, api.MEMCPY_HOST_TO_DEVICE, stream.handle)

    def download(self, target: NDArray[np.uint8], source: int, stream: Stream) -> None:
        """Queue a copy from a device address to pinned memory; it is there when the stream is past the copy."""
        self.cudart.call("cudaMemcpyAsync", target.ctypes.data, source, target.nbytes, api.MEMCPY_DEVICE_TO_HOST, stream.handle)

    def synchronize(self) -> None:
        """Wait for all work on the device; raise :class:`DeviceError` if any of it failed."""
        self.cudart.call("cudaDeviceSynchronize")

    def bind_thread(self) -> None:
        """Make the device's context current on the calling thread, once a thread."""
        if not getattr(_thread, "is_bound", False):
            self.cudart.call("cudaSetDevice", self.cudart.query_int("cudaGetDevice"))
            _thread.is_bound = True

    def take_last_error(self) -> tuple[int, str]:
        """Return and clear the runtime's last error: (0, "no error") when there is none."""
        return self.cudart.take_last_error()


_thread = threading.local()


@contextmanager
def _without_collector() -> Iterator[None]:
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _destroy_with(owner: object, cudart: Cudart, name: str, handle: int) -> None:
    finalizer = weakref.finalize(owner, cudart.call_quietly, name, handle)
    finalizer.atexit = False  # the process gives everything back; the runtime may be gone by then


def _list_nodes(cudart: Cudart, graph: int) -> list[tuple[int, int]]:
    """Return a graph's nodes, each with its type."""
    count = ctypes.c_size_t()
    cudart.call("cudaGraphGetNodes", graph, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    if count.value:
        cudart.call("cudaGraphGetNodes", graph, nodes, ctypes.byref(count))
    kind, listed = ctypes.c_int(), []
    for node in nodes:
        cudart.call("cudaGraphNodeGetType", node, ctypes.byref(kind))
        listed.append((node or 0, kind.value))
    return listed


def _read_filled_bytes(cudart: Cudart, node: int) -> int:
    """Return what a memset writes."""
    params = api.MemsetParams()
    cudart.call("cudaGraphMemsetNodeGetParams", node, ctypes.byref(params))
    return int(params.element_bytes * params.width * params.height)


def _read_kernel_nodes(cudart: Cudart, nodes: Sequence[tuple[int, int]]) -> Iterator[KernelNode]:
    """Yield the kernel launches among ``nodes``, those of child graphs included."""
    for node, kind in nodes:
        if kind == api.NODE_TYPE_CHILD_GRAPH:
            child = ctypes.c_void_p()
            cudart.call("cudaGraphChildGraphNodeGetGraph", node, ctypes.byref(child))
            yield from _read_kernel_nodes(cudart, _list_nodes(cudart, child.value or 0))
        elif kind == api.NODE_TYPE_KERNEL:
            params = api.KernelNodeParams()
            try:
                cudart.call("cudaGraphKernelNodeGetParams", node, ctypes.byref(params))
            except DeviceError as error:
                if error.code != api.ERROR_INVALID_DEVICE_FUNCTION:
                    raise
                # Kernels that a library loaded through the driver API, as CuPy does, are unknown to the runtime.
                yield api.read_driver_node(node)
                continue
            name = ctypes.c_char_p()
            cudart.call("cudaFuncGetName", ctypes.byref(name), params.func)
            gx, gy, gz = params.grid
            bx, by, bz = params.block
            yield KernelNode((name.value or b"").decode(), (gx, gy, gz), (bx, by, bz), params.shared_bytes)
