"""Memory, streams, events, capture and graphs over the CUDA runtime API, shared by the real and the emulated device."""

from __future__ import annotations

import ctypes
import gc
import itertools
import threading
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import DTypeLike, NDArray

from device import cudart as api
from device.cudart import Cudart
from device.interface import Buffer, Device, DeviceArray, DeviceError, Event, Graph, KernelNode, Stream
from device.layout import check_dtype, check_strides, check_unmasked, contiguous_strides, split_rows

# cudaDevAttrMaxPitch.
_MAX_PITCH_BYTES = 2**31 - 1


class RuntimeBuffer(Buffer):
    """A buffer in the memory of the device behind ``cudart``. ``release`` gives the memory back."""

    array_class: type[RuntimeArray]

    def __init__(self, cudart: Cudart, address: int, size_bytes: int, release: Callable[[], None]) -> None:
        self.cudart = cudart
        self.address = address
        self.size_bytes = size_bytes
        self._finalizer = weakref.finalize(self, release)
        self._finalizer.atexit = False  # the process gives all memory back; the runtime may be gone by then

    def read(self, offset_bytes: int = 0, size_bytes: int | None = None) -> NDArray[np.uint8]:
        """Copy bytes to the host, after all work on the default stream."""
        size = self.check_range(offset_bytes, size_bytes)
        out = np.empty(size, np.uint8)
        if size:
            self.cudart.call("cudaMemcpy", out.ctypes.data, self.address + offset_bytes, size, api.MEMCPY_DEVICE_TO_HOST)
        return out

    def write(self, data: NDArray[Any], offset_bytes: int = 0) -> None:
        """Copy a C-contiguous array's bytes from the host; they are there when this returns."""
        check_unmasked("data", data)
        if not data.flags.c_contiguous:
            raise ValueError("data must be C-contiguous: pass numpy.ascontiguousarray(data)")
        size = self.check_range(offset_bytes, data.nbytes)
        if size:
            self.cudart.call("cudaMemcpy", self.address + offset_bytes, data.ctypes.data, size, api.MEMCPY_HOST_TO_DEVICE)
            finish_default_stream(self.cudart)

    def fill(self, byte: int, offset_bytes: int = 0, size_bytes: int | None = None, *, stream: Stream | None = None) -> None:
        """Set bytes to one value in 0..255: queued on ``stream``, or done when this returns."""
        if not 0 <= byte <= 255:
            raise ValueError(f"byte={byte}: must be in 0..255")
        size = self.check_range(offset_bytes, size_bytes)
        if size and stream is not None:
            self.cudart.call("cudaMemsetAsync", self.address + offset_bytes, byte, size, stream.handle)
        elif size:
            self.cudart.call("cudaMemset", self.address + offset_bytes, byte, size)
            finish_default_stream(self.cudart)

    def copy_from(self, source: Buffer, stream: Stream) -> None:
        """Queue a copy of another buffer of the same size on a stream."""
        if source.size_bytes != self.size_bytes:
            raise ValueError(f"the buffer has {self.size_bytes} bytes, the source {source.size_bytes}")
        size = self.check_range(0, None)
        self.cudart.call("cudaMemcpyAsync", self.address, source.address, size, api.MEMCPY_DEVICE_TO_DEVICE, stream.handle)

    def view(
        self, shape: Sequence[int], dtype: DTypeLike, offset_bytes: int = 0, strides_bytes: Sequence[int] | None = None
    ) -> DeviceArray:
        """Return an array over part of the buffer; raises ValueError when it does not fit, is misaligned, or overlaps itself."""
        return self.array_class(self, tuple(int(n) for n in shape), np.dtype(dtype), offset_bytes, strides_bytes)

    def free(self) -> None:
        """Free now; a second call does nothing."""
        self._finalizer()

    def check_range(self, offset_bytes: int, size_bytes: int | None) -> int:
        """Return the size in bytes of a range of this buffer, which is alive; ``None`` means up to its end."""
        if not self._finalizer.alive:
            raise DeviceError(f"the buffer of {self.size_bytes} bytes at {self.address:#x} was freed")
        size = self.size_bytes - offset_bytes if size_bytes is None else size_bytes
        if offset_bytes < 0 or size < 0 or offset_bytes + size > self.size_bytes:
            raise ValueError(f"bytes {offset_bytes}..{offset_bytes + size} are not inside the buffer's {self.size_bytes} bytes")
        return size


class RuntimeArray(DeviceArray):
    """An array over part of a :class:`RuntimeBuffer`, which it keeps alive."""

    def __init__(
        self, buffer: RuntimeBuffer, shape: tuple[int, ...], dtype: np.dtype[Any], offset_bytes: int, strides_bytes: Sequence[int] | None
    ) -> None:
        check_dtype(dtype)
        if any(n < 0 for n in shape):
            raise ValueError(f"shape {shape}: sizes must not be negative")
        if offset_bytes % dtype.alignment:
            raise ValueError(f"offset_bytes={offset_bytes}: {dtype} needs a multiple of {dtype.alignment}")
        self.buffer = buffer
        self.shape = shape
        self.dtype = dtype
        self.offset_bytes = offset_bytes
        self.strides_bytes = contiguous_strides(shape, dtype.itemsize) if strides_bytes is None else tuple(int(s) for s in strides_bytes)
        check_strides(self.shape, self.strides_bytes, dtype)
        buffer.check_range(offset_bytes, self.span_bytes)
        self.address = buffer.address + offset_bytes

    def copy_to_host(self) -> NDArray[Any]:
        """Return a contiguous NumPy copy, after all work on the default stream; bytes between padded rows are not read."""
        out = np.empty(self.shape, self.dtype)
        self._copy(out, api.MEMCPY_DEVICE_TO_HOST)
        return out

    def copy_from_host(self, values: NDArray[Any]) -> None:
        """Overwrite the elements, and nothing between padded rows, from an array of the same shape and dtype, which has no mask."""
        check_unmasked("values", values)
        if values.shape != self.shape or values.dtype != self.dtype:
            raise ValueError(f"the array is {self.dtype}{list(self.shape)}, the values are {values.dtype}{list(values.shape)}")
        self._copy(np.ascontiguousarray(values), api.MEMCPY_HOST_TO_DEVICE)
        finish_default_stream(self.buffer.cudart)

    def _copy(self, host: NDArray[Any], kind: int) -> None:
        """Copy between this array and a contiguous host array, one strided 2-D copy per innermost plane."""
        self.buffer.check_range(self.offset_bytes, self.span_bytes)
        if not host.size:
            return
        call = self.buffer.cudart.call
        row_bytes, outer = split_rows(self.shape, self.strides_bytes, self.dtype.itemsize)
        *leading, (num_rows, pitch_bytes) = outer or [(1, row_bytes)]
        host_address = host.ctypes.data
        for index in itertools.product(*(range(n) for n, _ in leading)):
            address = self.address + sum(i * stride for i, (_, stride) in zip(index, leading, strict=True))
            to_device = kind == api.MEMCPY_HOST_TO_DEVICE
            target, source = (address, host_address) if to_device else (host_address, address)
            if num_rows == 1 or pitch_bytes > _MAX_PITCH_BYTES:  # a plain copy has no such limit
                for row in range(num_rows):
                    device_at, host_at = row * pitch_bytes, row * row_bytes
                    target_at, source_at = (device_at, host_at) if to_device else (host_at, device_at)
                    call("cudaMemcpy", target + target_at, source + source_at, row_bytes, kind)
            else:
                target_pitch, source_pitch = (pitch_bytes, row_bytes) if to_device else (row_bytes, pitch_bytes)
                call("cudaMemcpy2D", target, target_pitch, source, source_pitch, row_bytes, num_rows, kind)
            host_address += row_bytes * num_rows


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

    def allocate(self, size_bytes: int) -> Buffer:
        """Allocate device memory, 256-byte aligned."""
        if size_bytes < 1:
            raise ValueError(f"size_bytes={size_bytes}: must be at least 1")
        address, release = self._allocate_memory(size_bytes)
        return self.buffer_class(self.cudart, address, size_bytes, release)

    def _allocate_memory(self, size_bytes: int) -> tuple[int, Callable[[], None]]:
        """Return the address of new memory, and what gives it back."""
        address = self.cudart.create_handle("cudaMalloc", size_bytes)
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


def finish_default_stream(cudart: Cudart) -> None:
    """Wait for the legacy default stream: copies from pageable memory and fills may still be on their way when they return."""
    cudart.call("cudaStreamSynchronize", api.DEFAULT_STREAM)


def _destroy_with(owner: object, cudart: Cudart, name: str, handle: int) -> None:
    finalizer = weakref.finalize(owner, cudart.call_quietly, name, handle)
    finalizer.atexit = False  # the process gives everything back; the runtime may be gone by then


def _list_nodes(cudart: Cudart, graph: int) -> list[int]:
    count = ctypes.c_size_t()
    cudart.call("cudaGraphGetNodes", graph, None, ctypes.byref(count))
    nodes = (ctypes.c_void_p * count.value)()
    if count.value:
        cudart.call("cudaGraphGetNodes", graph, nodes, ctypes.byref(count))
    return [node or 0 for node in nodes]


def _read_kernel_nodes(cudart: Cudart, nodes: Sequence[int]) -> Iterator[KernelNode]:
    """Yield the kernel launches among ``nodes``, those of child graphs included."""
    for node in nodes:
        kind = ctypes.c_int()
        cudart.call("cudaGraphNodeGetType", node, ctypes.byref(kind))
        if kind.value == api.NODE_TYPE_CHILD_GRAPH:
            child = ctypes.c_void_p()
            cudart.call("cudaGraphChildGraphNodeGetGraph", node, ctypes.byref(child))
            yield from _read_kernel_nodes(cudart, _list_nodes(cudart, child.value or 0))
        elif kind.value == api.NODE_TYPE_KERNEL:
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
