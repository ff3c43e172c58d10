"""The arrays that ops take (PyTorch, CuPy, NumPy and the device package), each described as a kernel needs it.

No framework is imported for one who does not use it: an array's framework is found by the module that its type comes from.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

import numpy as np

from device import DeviceArray, open_device
from device.layout import check_unmasked

Allocator = tuple[Callable[..., Any], bool, tuple[Any, ...]]  # a function, whether it takes the first input first, its further arguments


class View(NamedTuple):
    """What a kernel must know of an array. Strides are in elements; ``address`` is 0 for one in host memory."""

    address: int
    shape: tuple[int, ...]
    strides: tuple[int, ...]
    dtype: str


class Framework(Protocol):
    """How arrays of one framework are read and made; those in host memory are copied to the device and back."""

    @property
    def name(self) -> str:
        """The framework's name."""

    @property
    def is_host(self) -> bool:
        """Whether its arrays are in host memory."""

    def view(self, name: str, array: Any) -> View:
        """Return what a kernel must know of the argument ``name``; raises TypeError or ValueError naming it."""

    def find_allocator(self, first: Any, shape: tuple[int, ...], dtype: str) -> Allocator:
        """Return what makes an uninitialised array beside the first input."""

    def current_stream(self) -> int:
        """Return the stream that work is queued on, a ``cudaStream_t`` as a number."""

    def register(self, extension: Any, array: Any) -> bool:
        """Make the array's type known to the lean path; False where that cannot read it."""


def find_dtype(name: str) -> np.dtype[Any]:
    """Return NumPy's dtype of that name; bfloat16 is that of ml_dtypes."""
    if name == "bfloat16":
        import ml_dtypes

        made: np.dtype[Any] = np.dtype(ml_dtypes.bfloat16)
        return made
    return np.dtype(name)


def _count_strides(name: str, strides_bytes: tuple[int, ...], itemsize: int) -> tuple[int, ...]:
    if any(s % itemsize for s in strides_bytes):
        raise ValueError(f"{name}: strides {strides_bytes} bytes: must be whole elements of {itemsize} bytes")
    return tuple(s // itemsize for s in strides_bytes)


@dataclass(frozen=True)
class NumpyFramework:
    """NumPy's arrays, in host memory."""

    name: str = "NumPy"
    is_host: bool = True

    def view(self, name: str, array: Any) -> View:
        """Return an array's facts; what will be copied has no address yet, and rows that follow each other in the machine's byte order."""
        check_unmasked(name, array)
        return View(0, array.shape, _row_major(array.shape), array.dtype.name)

    def find_allocator(self, first: Any, shape: tuple[int, ...], dtype: str) -> Allocator:
        """Return what makes an array."""
        return np.empty, False, (shape, first.dtype if first.dtype.name == dtype and first.dtype.isnative else find_dtype(dtype))

    def current_stream(self) -> int:
        """Return the default stream."""
        return 0

    def register(self, extension: Any, array: Any) -> bool:
        """Leave host arrays to the other path: copies take far longer than it does."""
        return False


@dataclass(frozen=True)
class DeviceFramework:
    """Arrays of the device package, real or emulated. It has no current stream: work goes to the default one."""

    name: str = "device"
    is_host: bool = False

    def view(self, name: str, array: Any) -> View:
        """Return an array's facts."""
        strides = _count_strides(name, array.strides_bytes, array.dtype.itemsize)
        return View(array.address, array.shape, strides, array.dtype.name)

    def find_allocator(self, first: Any, shape: tuple[int, ...], dtype: str) -> Allocator:
        """Return what makes an array."""
        return open_device().empty, False, (shape, find_dtype(dtype))

    def current_stream(self) -> int:
        """Return the default stream."""
        return 0

    def register(self, extension: Any, array: Any) -> bool:
        """Make the type known by its attributes."""
        names = {"address": "address", "shape": "shape", "strides": "strides_bytes", "dtype": "dtype"}
        return bool(extension.register_type(type(array), **names))


@dataclass(frozen=True)
class CupyFramework:
    """CuPy's arrays, on the stream that is current there."""

    name: str = "CuPy"
    is_host: bool = False

    def view(self, name: str, array: Any) -> View:
        """Return an array's facts."""
        _check_device(name, array.data.device_id)
        return View(array.data.ptr, array.shape, _count_strides(name, array.strides, array.itemsize), array.dtype.name)

    def find_allocator(self, first: Any, shape: tuple[int, ...], dtype: str) -> Allocator:
        """Return what makes an array."""
        import cupy

        return cupy.ndarray, False, (shape, find_dtype(dtype))  # as cupy.empty does

    def current_stream(self) -> int:
        """Return CuPy's current stream."""
        import cupy

        return int(cupy.cuda.get_current_stream().ptr)

    def register(self, extension: Any, array: Any) -> bool:
        """Make the type known by its attributes, and how its current stream is found: as CuPy's own Cython modules do, or by a call."""
        names = {"shape": "shape", "strides": "strides", "dtype": "dtype"}
        place = {"holder": "data", "address": "ptr", "device": "device_id"}
        function = _find_exported("cupy_backends.cuda.stream", "get_current_stream_ptr")
        known = extension.register_type(type(array), **place, **names, current_stream=self.current_stream, stream_function=function)
        return bool(known)


@dataclass(frozen=True)
class TorchFramework:
    """PyTorch's tensors: on a GPU on its current stream, or in host memory."""

    is_host: bool
    name: str = "PyTorch"

    def view(self, name: str, array: Any) -> View:
        """Return a tensor's facts."""
        if self.is_host:
            return View(0, tuple(array.shape), _row_major(tuple(array.shape)), _name_torch_dtype(array))
        _check_device(name, array.device.index)
        return View(array.data_ptr(), tuple(array.shape), tuple(array.stride()), _name_torch_dtype(array))

    def find_allocator(self, first: Any, shape: tuple[int, ...], dtype: str) -> Allocator:
        """Return what makes a tensor beside the first input."""
        import torch

        if _name_torch_dtype(first) == dtype:
            # The quickest of PyTorch's ways: new_empty and empty work out the strides, which costs 0.3 us.
            return torch.Tensor.new_empty_strided, True, (shape, _row_major(shape))
        wanted, device = getattr(torch, dtype), first.device
        return (lambda size: torch.empty(size, dtype=wanted, device=device)), False, (shape,)

    def current_stream(self) -> int:
        """Return PyTorch's current stream; the default one for tensors in host memory."""
        import torch

        return 0 if self.is_host else int(torch.cuda.current_stream().cuda_stream)

    def register(self, extension: Any, array: Any) -> bool:
        """Make tensors and parameters known through DLPack's exchange API, which PyTorch has from 2.10 on.

        Those in host memory have the same type, and plans cannot stand for them; subclasses mean something of their own.
        """
        import torch

        types = (torch.Tensor, torch.nn.Parameter)
        if self.is_host or type(array) not in types:
            return False
        found = [extension.register_type(t, is_tracked="requires_grad", is_tracking=torch.is_grad_enabled) for t in types]
        return all(found)


_NUMPY, _DEVICE, _CUPY = NumpyFramework(), DeviceFramework(), CupyFramework()
_TORCH, _TORCH_HOST = TorchFramework(is_host=False), TorchFramework(is_host=True)


def find_framework(name: str, array: Any) -> Framework:
    """Return the framework of an argument; raises TypeError, naming it, for what is no array or of none that is known."""
    if isinstance(array, np.ndarray):
        return _NUMPY
    if isinstance(array, DeviceArray):
        return _DEVICE
    torch, cupy = sys.modules.get("torch"), sys.modules.get("cupy")
    if torch is not None and isinstance(array, torch.Tensor):
        if array.device.type not in ("cuda", "cpu"):
            raise TypeError(f"{name}: expected a tensor on cuda or cpu, got one on {array.device}")
        return _TORCH if array.device.type == "cuda" else _TORCH_HOST
    if cupy is not None and isinstance(array, cupy.ndarray):
        return _CUPY
    kind = f"{type(array).__module__}.{type(array).__qualname__}"
    hint = ": cupy.from_dlpack(array) shares its memory" if hasattr(array, "__dlpack__") else ""
    raise TypeError(f"{name}: expected an array of PyTorch, CuPy, NumPy or the device, got {kind}{hint}")


def copy_to_numpy(framework: Framework, array: Any) -> np.ndarray[Any, Any]:
    """Return a host array as a contiguous NumPy array in the machine's byte order.

    bfloat16 tensors go by their bits, which NumPy alone cannot name.
    """
    if isinstance(array, np.ndarray):
        return np.ascontiguousarray(array, array.dtype.newbyteorder("="))
    import torch

    tensor = array.detach().contiguous()
    if tensor.dtype == torch.bfloat16:
        bits: np.ndarray[Any, Any] = tensor.view(torch.int16).numpy()
        return bits.view(find_dtype("bfloat16"))
    made: np.ndarray[Any, Any] = tensor.numpy()
    return made


def copy_from_numpy(framework: Framework, values: np.ndarray[Any, Any], like: Any) -> Any:
    """Return a host array of the framework with these values; ``like`` is the first input."""
    if isinstance(like, np.ndarray):
        return values
    import torch

    if values.dtype.name == "bfloat16":
        return torch.from_numpy(values.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(values)


def overwrite_from_numpy(framework: Framework, target: Any, values: np.ndarray[Any, Any]) -> None:
    """Put values into a host array of the framework, whose shape and dtype they have."""
    if isinstance(target, np.ndarray):
        target[...] = values
    else:
        target.detach().copy_(copy_from_numpy(framework, values, target))


def _find_exported(module: str, name: str) -> Any:
    """Return what a Cython module exports for the C of others under that name, a capsule; None where it does not."""
    return getattr(sys.modules.get(module), "__pyx_capi__", {}).get(name)


def _row_major(shape: tuple[int, ...]) -> tuple[int, ...]:
    strides, step = [], 1
    for size in reversed(shape):
        strides.append(step)
        step *= size
    return tuple(reversed(strides))


def _check_device(name: str, index: int | None) -> None:
    if index not in (0, None):
        raise ValueError(f"{name}: expected an array on device 0, got one on device {index}; CUDA_VISIBLE_DEVICES chooses which GPU is 0")


def _name_torch_dtype(tensor: Any) -> str:
    return str(tensor.dtype).removeprefix("torch.")
