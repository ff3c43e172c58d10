"""Declarations of the CUDA runtime functions that the project calls, on a loaded ``libcudart.so.13``.

NVIDIA's library and the emulated device's have the same functions. Prototypes and enumerators: CUDA Runtime API 13.0.
"""

from __future__ import annotations

import ctypes
from ctypes import POINTER, c_char_p, c_float, c_int, c_size_t, c_uint, c_ulonglong, c_void_p
from typing import Any

from device.interface import DeviceError, DeviceProperties, KernelNode

MEMCPY_HOST_TO_DEVICE = 1
MEMCPY_DEVICE_TO_HOST = 2
MEMCPY_DEVICE_TO_DEVICE = 3
STREAM_NON_BLOCKING = 1
EVENT_DISABLE_TIMING = 2
CAPTURE_MODE_GLOBAL = 0
NODE_TYPE_KERNEL = 0
NODE_TYPE_MEMSET = 2
NODE_TYPE_CHILD_GRAPH = 4
DEFAULT_STREAM = 0
ERROR_MEMORY_ALLOCATION = 2
ERROR_INITIALIZATION = 3
ERROR_INVALID_DEVICE_FUNCTION = 98

_ATTRIBUTES = {
    "warp_size": 10,
    "clock_khz": 13,
    "num_sms": 16,
    "l2_bytes": 38,
    "max_threads_per_sm": 39,
    "major": 75,
    "minor": 76,
    "shared_per_sm_bytes": 81,
    "registers_per_sm": 82,
    "shared_per_block_optin_bytes": 97,
    "max_blocks_per_sm": 106,
}

_REMEDIES = {
    ERROR_MEMORY_ALLOCATION: "free device memory, or use smaller problems",
    35: "there is no CUDA driver here, or it is older than CUDA 13.0: install one, or set AICF_DEVICE=emulated",
    100: "no GPU answers: check nvidia-smi, or set AICF_DEVICE=emulated",
    209: "the kernel was not built for this device: build it with PTX (-gencode code=[sm_90a,compute_90a])",
    900: "this call is not allowed while a stream is being captured",
    901: "an earlier call in the capture was not allowed",
    906: "work went to the legacy default stream during a capture: launch on the given stream",
}


class MemsetParams(ctypes.Structure):
    """``cudaMemsetParams``: ``height`` rows of ``width`` elements, ``pitch`` bytes apart."""

    _fields_ = (
        ("dst", c_void_p),
        ("pitch", c_size_t),
        ("value", c_uint),
        ("element_bytes", c_uint),
        ("width", c_size_t),
        ("height", c_size_t),
    )


class KernelNodeParams(ctypes.Structure):
    """``cudaKernelNodeParams``: sizes in threads and blocks, shared memory in bytes."""

    _fields_ = (
        ("func", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("kernel_params", c_void_p),
        ("extra", c_void_p),
    )


class _DriverNodeParams(ctypes.Structure):
    """``CUDA_KERNEL_NODE_PARAMS_v2`` of the driver API; one of ``function`` and ``kernel`` is set."""

    _fields_ = (
        ("function", c_void_p),
        ("grid", c_uint * 3),
        ("block", c_uint * 3),
        ("shared_bytes", c_uint),
        ("kernel_params", c_void_p),
        ("extra", c_void_p),
        ("kernel", c_void_p),
        ("context", c_void_p),
    )


def read_driver_node(node: int) -> KernelNode:
    """Ask the CUDA driver about a kernel node of a graph."""
    driver = ctypes.CDLL("libcuda.so.1")
    params, name = _DriverNodeParams(), c_char_p()
    if code := driver.cuGraphKernelNodeGetParams_v2(c_void_p(node), ctypes.byref(params)):
        raise DeviceError(f"cuGraphKernelNodeGetParams: error {code}", code)
    if params.function:
        driver.cuFuncGetName(ctypes.byref(name), c_void_p(params.function))
    elif params.kernel:
        driver.cuKernelGetName(ctypes.byref(name), c_void_p(params.kernel))
    (gx, gy, gz), (bx, by, bz) = params.grid, params.block
    return KernelNode((name.value or b"").decode(), (gx, gy, gz), (bx, by, bz), params.shared_bytes)


class _DeviceProp(ctypes.Structure):
    """The head of ``cudaDeviceProp``; the rest is space for what the runtime writes behind it."""

    _fields_ = (
        ("name", ctypes.c_char * 256),
        ("uuid", ctypes.c_ubyte * 16),
        ("luid", ctypes.c_ubyte * 8),
        ("luid_device_node_mask", c_uint),
        ("total_global_mem", c_size_t),
        ("rest", ctypes.c_ubyte * 4096),
    )


_PROTOTYPES: dict[str, tuple[Any, ...]] = {
    "cudaDeviceGetAttribute": (POINTER(c_int), c_int, c_int),
    "cudaDeviceSynchronize": (),
    "cudaDriverGetVersion": (POINTER(c_int),),
    "cudaEventCreateWithFlags": (POINTER(c_void_p), c_uint),
    "cudaEventDestroy": (c_void_p,),
    "cudaEventElapsedTime": (POINTER(c_float), c_void_p, c_void_p),
    "cudaEventRecord": (c_void_p, c_void_p),
    "cudaEventSynchronize": (c_void_p,),
    "cudaFree": (c_void_p,),
    "cudaFuncGetName": (POINTER(c_char_p), c_void_p),
    "cudaGetDevice": (POINTER(c_int),),
    "cudaGetDeviceCount": (POINTER(c_int),),
    "cudaGetDeviceProperties": (POINTER(_DeviceProp), c_int),
    "cudaGetLastError": (),
    "cudaGraphChildGraphNodeGetGraph": (c_void_p, POINTER(c_void_p)),
    "cudaGraphDestroy": (c_void_p,),
    "cudaGraphExecDestroy": (c_void_p,),
    "cudaGraphGetNodes": (c_void_p, POINTER(c_void_p), POINTER(c_size_t)),
    "cudaGraphInstantiate": (POINTER(c_void_p), c_void_p, c_ulonglong),
    "cudaGraphKernelNodeGetParams": (c_void_p, POINTER(KernelNodeParams)),
    "cudaGraphLaunch": (c_void_p, c_void_p),
    "cudaGraphMemsetNodeGetParams": (c_void_p, POINTER(MemsetParams)),
    "cudaGraphNodeGetType": (c_void_p, POINTER(c_int)),
    "cudaMalloc": (POINTER(c_void_p), c_size_t),
    "cudaMallocHost": (POINTER(c_void_p), c_size_t),
    "cudaFreeHost": (c_void_p,),
    "cudaMemcpy": (c_void_p, c_void_p, c_size_t, c_int),
    "cudaMemcpy2D": (c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int),
    "cudaMemcpy2DAsync": (c_void_p, c_size_t, c_void_p, c_size_t, c_size_t, c_size_t, c_int, c_void_p),
    "cudaMemcpyAsync": (c_void_p, c_void_p, c_size_t, c_int, c_void_p),
    "cudaMemset": (c_void_p, c_int, c_size_t),
    "cudaMemsetAsync": (c_void_p, c_int, c_size_t, c_void_p),
    "cudaRuntimeGetVersion": (POINTER(c_int),),
    "cudaSetDevice": (c_int,),
    "cudaStreamBeginCapture": (c_void_p, c_int),
    "cudaStreamCreateWithFlags": (POINTER(c_void_p), c_uint),
    "cudaStreamDestroy": (c_void_p,),
    "cudaStreamEndCapture": (c_void_p, POINTER(c_void_p)),
    "cudaStreamSynchronize": (c_void_p,),
    "cudaStreamWaitEvent": (c_void_p, c_void_p, c_uint),
}


class Cudart:
    """The runtime functions of one loaded library, each call checked."""

    def __init__(self, library: ctypes.CDLL) -> None:
        self.library = library
        self.is_emulated = hasattr(library, "aicfEmulatorVersion")
        self._functions: dict[str, Any] = {}
        for name, argtypes in _PROTOTYPES.items():
            function = getattr(library, name)
            function.argtypes = argtypes
            function.restype = c_int
            self._functions[name] = function
        for name in ("cudaGetErrorName", "cudaGetErrorString"):
            getattr(library, name).argtypes = (c_int,)
            getattr(library, name).restype = c_char_p
        if self.is_emulated:
            library.aicfEmulatorMessage.restype = c_char_p

    def call(self, name: str, *args: Any) -> None:
        """Call a function of :data:`_PROTOTYPES`; raise :class:`DeviceError` unless it returns ``cudaSuccess``.

        The error is also taken out of the runtime's own last-error slot, so that a later query does not find it again.
        """
        code = self._functions[name](*args)
        if code:
            error = DeviceError(self.describe(name, code), code)
            self._functions["cudaGetLastError"]()
            raise error

    def call_quietly(self, name: str, *args: Any) -> None:
        """Call a function and drop its result: for clean-up after an error that has been reported already."""
        if self._functions[name](*args):
            self._functions["cudaGetLastError"]()

    def take_last_error(self) -> tuple[int, str]:
        """Return and clear the last error as (code, text)."""
        code = int(self._functions["cudaGetLastError"]())
        return code, self._text("cudaGetErrorString", code)

    def describe(self, name: str, code: int) -> str:
        """Say in words that ``name`` returned ``code``, with the emulated device's long message and a remedy where there is one."""
        parts = [f"{name}: {self._text('cudaGetErrorName', code)} ({code}), {self._text('cudaGetErrorString', code)}"]
        if self.is_emulated and (detail := self.library.aicfEmulatorMessage()):
            parts.append(detail.decode("utf-8", "replace").rstrip())
        if remedy := _REMEDIES.get(code):
            parts.append(f"({remedy})")
        return "\n".join(parts)

    def create_handle(self, name: str, *args: Any) -> int:
        """Call a function whose first parameter receives a handle or address, and return that as an integer (0 for NULL)."""
        handle = c_void_p()
        self.call(name, ctypes.byref(handle), *args)
        return handle.value or 0

    def query_int(self, name: str, *args: Any) -> int:
        """Call a function whose first parameter receives an ``int``."""
        value = c_int()
        self.call(name, ctypes.byref(value), *args)
        return value.value

    def read_properties(self, index: int = 0) -> DeviceProperties:
        """Read the facts about device ``index``."""
        prop = _DeviceProp()
        self.call("cudaGetDeviceProperties", ctypes.byref(prop), index)
        values = {key: self.query_int("cudaDeviceGetAttribute", number, index) for key, number in _ATTRIBUTES.items()}
        raw = bytes(prop.uuid).hex()
        return DeviceProperties(
            name=prop.name.decode("utf-8", "replace"),
            compute_capability=(values.pop("major"), values.pop("minor")),
            memory_bytes=prop.total_global_mem,
            uuid=f"GPU-{raw[:8]}-{raw[8:12]}-{raw[12:16]}-{raw[16:20]}-{raw[20:]}",
            driver_version=self.query_int("cudaDriverGetVersion"),
            runtime_version=self.query_int("cudaRuntimeGetVersion"),
            **values,
        )

    def _text(self, name: str, code: int) -> str:
        text = getattr(self.library, name)(code)
        return text.decode("utf-8", "replace") if text else f"error {code}"
