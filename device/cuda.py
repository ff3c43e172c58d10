"""The real device: an NVIDIA GPU, sharing its context with CuPy.

Kernel libraries are linked against the shared ``libcudart.so.13`` while CuPy carries a runtime of its own; both use the GPU's primary
context, so addresses, streams and events of one are good in the other. Each buffer is an allocation of its own, so that
compute-sanitizer sees its true bounds, and ``cupy.asarray(array)`` shares it. CuPy takes the better part of a second to import, and is
imported where an array is handed to it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from device.cudart import Cudart
from device.interface import UnavailableError
from device.loader import find_gpus, load_cuda
from device.memory import RuntimeArray, RuntimeBuffer
from device.runtime import RuntimeDevice

if TYPE_CHECKING:
    from types import ModuleType

_REMEDY = "pip install cupy-cuda13x, or set AICF_DEVICE=emulated"


class CudaArray(RuntimeArray):
    """An array in GPU memory."""

    __slots__ = ()

    def as_cupy(self) -> Any:
        """Return a ``cupy.ndarray`` over the same memory, which it keeps alive."""
        cupy: Any = import_cupy()
        memory = cupy.cuda.UnownedMemory(self.address, max(self.span_bytes, 1), self, 0)
        return cupy.ndarray(self.shape, self.dtype, cupy.cuda.MemoryPointer(memory, 0), strides=self.strides_bytes)

    def __dlpack_device__(self) -> tuple[int, int]:
        """Return DLPack's (kDLCUDA, 0)."""
        device: tuple[int, int] = self.as_cupy().__dlpack_device__()
        return device

    def __dlpack__(self, **options: Any) -> Any:
        """Export without a copy; CuPy orders the consumer's stream behind the default stream, and refuses what it cannot do."""
        return self.as_cupy().__dlpack__(**{key: value for key, value in options.items() if value is not None})


class CudaBuffer(RuntimeBuffer):
    """A buffer in GPU memory."""

    array_class = CudaArray


class CudaDevice(RuntimeDevice):
    """GPU 0 of those that ``CUDA_VISIBLE_DEVICES`` leaves visible."""

    buffer_class = CudaBuffer

    def __init__(self) -> None:
        finding = find_gpus()
        if not finding.count:
            raise UnavailableError(f"no GPU: {finding.reason}; set AICF_DEVICE=emulated to work without one")
        super().__init__(Cudart(load_cuda()))
        # The context is made now, and not when something is to be timed.
        self.cudart.call("cudaFree", None)


class _Handle:
    """A ``cudaStream_t`` as CUDA's stream protocol has it."""

    def __init__(self, handle: int) -> None:
        self._handle = handle

    def __cuda_stream__(self) -> tuple[int, int]:
        return 0, self._handle


def share_stream(handle: int) -> Any:
    """Return CuPy's stream for a ``cudaStream_t`` that is not CuPy's; it is current within a ``with`` block.

    By the stream protocol, which CuPy has from version 14 on and deprecates ``ExternalStream`` for.
    """
    cuda: Any = import_cupy().cuda
    if hasattr(cuda.Stream, "from_external"):
        return cuda.Stream.from_external(_Handle(handle))
    return cuda.ExternalStream(handle)


def import_cupy() -> ModuleType:
    """Import CuPy, or raise :class:`UnavailableError` with the remedy."""
    try:
        import cupy
    except ImportError as error:
        raise UnavailableError(f"CuPy cannot be imported: {error}\n({_REMEDY})") from error
    module: ModuleType = cupy
    return module
