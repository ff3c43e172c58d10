"""Memory over the CUDA runtime API: buffers, and arrays in them, of the real and the emulated device."""

from __future__ import annotations

import itertools
import weakref
from collections.abc import Callable, Sequence
from typing import Any, Self

import numpy as np
from numpy.typing import DTypeLike, NDArray

from device import cudart as api
from device.cudart import Cudart
from device.interface import Buffer, DeviceArray, DeviceError, Stream
from device.layout import Layout, check_dtype, check_strides, check_unmasked, contiguous_strides, find_layout, split_rows

# cudaDevAttrMaxPitch.
MAX_PITCH_BYTES = 2**31 - 1


class RuntimeBuffer(Buffer):
    """A buffer in the memory of the device behind ``cudart``. ``release`` gives the memory back.

    ``queued_address`` is the address for work on the default stream and for what is over when a call returns; ``address`` is for any use.
    ``is_lent`` says whether anybody may have been given the latter.
    """

    array_class: type[RuntimeArray]
    queued_address: int
    is_lent: bool

    @property
    def is_alive(self) -> bool:
        """Whether it was not freed yet."""
        return self._finalizer.alive

    def __init__(self, cudart: Cudart, address: int, size_bytes: int, release: Callable[[], None]) -> None:
        self.cudart = cudart
        self.address = self.queued_address = address
        self.size_bytes = size_bytes
        self.is_lent = True
        self._finalizer = weakref.finalize(self, release)
        self._finalizer.atexit = False  # the process gives all memory back; the runtime may be gone by then

    def read(self, offset_bytes: int = 0, size_bytes: int | None = None) -> NDArray[np.uint8]:
        """Copy bytes to the host, after all work on the default stream."""
        size = self.check_range(offset_bytes, size_bytes)
        out = np.empty(size, np.uint8)
        self.read_into(out, offset_bytes)
        return out

    def read_into(self, out: NDArray[np.uint8], offset_bytes: int = 0) -> None:
        """Copy as many bytes as a contiguous host array has into it, after all work on the default stream."""
        size = self.check_range(offset_bytes, out.nbytes)
        if size:
            self.cudart.call("cudaMemcpy", out.ctypes.data, self.queued_address + offset_bytes, size, api.MEMCPY_DEVICE_TO_HOST)

    def write(self, data: NDArray[Any], offset_bytes: int = 0) -> None:
        """Copy a C-contiguous array's bytes from the host; they are there when this returns."""
        check_unmasked("data", data)
        if not data.flags.c_contiguous:
            raise ValueError("data must be C-contiguous: pass numpy.ascontiguousarray(data)")
        size = self.check_range(offset_bytes, data.nbytes)
        if size:
            self.cudart.call("cudaMemcpy", self.queued_address + offset_bytes, data.ctypes.data, size, api.MEMCPY_HOST_TO_DEVICE)
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
        extents, kind = tuple(int(n) for n in shape), np.dtype(dtype)
        check_dtype(kind)
        if any(n < 0 for n in extents):
            raise ValueError(f"shape {extents}: sizes must not be negative")
        if offset_bytes % kind.alignment:
            raise ValueError(f"offset_bytes={offset_bytes}: {kind} needs a multiple of {kind.alignment}")
        steps = contiguous_strides(extents, kind.itemsize) if strides_bytes is None else tuple(int(n) for n in strides_bytes)
        check_strides(extents, steps, kind)
        made = self.array_class(self, find_layout(extents, kind, steps), offset_bytes)
        self.check_range(offset_bytes, made.span_bytes)
        return made

    def free(self) -> None:
        """Free now; a second call does nothing."""
        self._finalizer()

    def check_range(self, offset_bytes: int, size_bytes: int | None) -> int:
        """Return the size in bytes of a range of this buffer, which is alive; ``None`` means up to its end."""
        if not self.is_alive:
            raise DeviceError(f"the buffer of {self.size_bytes} bytes at {self.queued_address:#x} was freed")
        size = self.size_bytes - offset_bytes if size_bytes is None else size_bytes
        if offset_bytes < 0 or size < 0 or offset_bytes + size > self.size_bytes:
            raise ValueError(f"bytes {offset_bytes}..{offset_bytes + size} are not inside the buffer's {self.size_bytes} bytes")
        return size


class RuntimeArray(DeviceArray):
    """An array over part of a :class:`RuntimeBuffer`, which it keeps alive.

    ``queued_address`` and ``address`` are to it what they are to its buffer. ``layout`` is one object for all arrays of the same shape,
    dtype and strides.
    """

    __slots__ = ("__weakref__", "buffer", "dtype", "layout", "offset_bytes", "queued_address", "shape", "strides_bytes")

    def __init__(self, buffer: RuntimeBuffer, layout: Layout, offset_bytes: int = 0) -> None:
        """Take a layout's place in a buffer, which is alive and large enough: nothing is checked, as eager calls make one per output."""
        self.buffer, self.layout, self.offset_bytes = buffer, layout, offset_bytes
        self.queued_address = buffer.queued_address + offset_bytes
        self.shape, self.dtype, self.strides_bytes = layout.shape, layout.dtype, layout.strides_bytes

    def reshaped(self, layout: Layout) -> Self:
        """Return the memory of this array, which is contiguous, in another contiguous layout of as many bytes: nothing is checked."""
        return type(self)(self.buffer, layout, self.offset_bytes)

    @property
    def address(self) -> int:  # type: ignore[override]  # one that is watched
        """The first element's address, for any use."""
        self.buffer.is_lent = True
        return self.queued_address

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
            address = self.queued_address + sum(i * stride for i, (_, stride) in zip(index, leading, strict=True))
            to_device = kind == api.MEMCPY_HOST_TO_DEVICE
            target, source = (address, host_address) if to_device else (host_address, address)
            if num_rows == 1 or pitch_bytes > MAX_PITCH_BYTES:  # a plain copy has no such limit
                for row in range(num_rows):
                    device_at, host_at = row * pitch_bytes, row * row_bytes
                    target_at, source_at = (device_at, host_at) if to_device else (host_at, device_at)
                    call("cudaMemcpy", target + target_at, source + source_at, row_bytes, kind)
            else:
                target_pitch, source_pitch = (pitch_bytes, row_bytes) if to_device else (row_bytes, pitch_bytes)
                call("cudaMemcpy2D", target, target_pitch, source, source_pitch, row_bytes, num_rows, kind)
            host_address += row_bytes * num_rows


def finish_default_stream(cudart: Cudart) -> None:
    """Wait for the legacy default stream: copies from pageable memory and fills may still be on their way when they return."""
    cudart.call("cudaStreamSynchronize", api.DEFAULT_STREAM)
