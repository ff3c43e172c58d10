"""The CUDA runtime's C functions through ctypes, and the PTX that the tests of the runtime launch.

Everything here works on the emulator's ``libcudart.so.13`` and on NVIDIA's alike, so that the same tests can run on a GPU
(``AICF_DEVICE=cuda``) and say whether the emulator behaves as CUDA does.
"""

from __future__ import annotations

import ctypes
import json
import os
import subprocess
import sys
from ctypes import byref, c_char_p, c_int, c_size_t, c_uint, c_void_p
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

ROOT = Path(__file__).resolve().parents[2]

HOST_TO_HOST, HOST_TO_DEVICE, DEVICE_TO_HOST, DEVICE_TO_DEVICE, COPY_DEFAULT = range(5)
GLOBAL, THREAD_LOCAL, RELAXED = range(3)
LEGACY_STREAM, PER_THREAD_STREAM = 1, 2
# Options of the emulator that say what was counted, and cannot be set.
COUNTS = {"dependence", "instructions", "matrix_work", "suppressed"}

PTX = r"""
.version 8.0
.target sm_80
.address_size 64

.visible .global .align 4 .u32 counter = 7;
.visible .const .align 4 .b8 table[16] = {1, 0, 0, 0, 2, 0, 0, 0, 3, 0, 0, 0, 4, 0, 0, 0};

// *p = v
.visible .entry put(.param .u64 p, .param .u32 v)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<2>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [v];
    cvta.to.global.u64 %rd2, %rd1;
    st.global.u32 [%rd2], %r1;
    ret;
}

// *p += v
.visible .entry add(.param .u64 p, .param .u32 v)
{
    .reg .b64 %rd<3>;
    .reg .b32 %r<4>;
    ld.param.u64 %rd1, [p];
    ld.param.u32 %r1, [v];
    cvta.to.global.u64 %rd2, %rd1;
    ld.global.u32 %r2, [%rd2];
    add.u32 %r3, %r2, %r1;
    st.global.u32 [%rd2], %r3;
    ret;
}

.visible .entry bounded() .maxntid 64, 1, 1
{
    ret;
}

.visible .entry exact() .reqntid 32, 2, 1
{
    ret;
}

.visible .entry with_shared()
{
    .shared .align 4 .b8 buffer[1024];
    .reg .b32 %r<2>;
    mov.u32 %r1, 5;
    st.shared.u32 [buffer], %r1;
    ret;
}
"""


class Dim3(ctypes.Structure):
    """``dim3``."""

    _fields_ = (("x", c_uint), ("y", c_uint), ("z", c_uint))


class KernelNodeParams(ctypes.Structure):
    """``cudaKernelNodeParams``."""

    _fields_ = (
        ("func", c_void_p),
        ("grid", Dim3),
        ("block", Dim3),
        ("shared_bytes", c_uint),
        ("args", ctypes.POINTER(c_void_p)),
        ("extra", c_void_p),
    )


class MemsetParams(ctypes.Structure):
    """``cudaMemsetParams``."""

    _fields_ = (("dst", c_void_p), ("pitch", c_size_t), ("value", c_uint), ("element", c_uint), ("width", c_size_t), ("height", c_size_t))


class UpdateInfo(ctypes.Structure):
    """``cudaGraphExecUpdateResultInfo``."""

    _fields_ = (("result", c_int), ("node", c_void_p), ("from_node", c_void_p))


class CudaError(AssertionError):
    """A call that the test did not expect to fail."""


class Args:
    """Kernel arguments, kept alive with the array of pointers to them."""

    def __init__(self, *values: Any) -> None:
        self.values = values
        self.array = (c_void_p * max(len(values), 1))(*(ctypes.cast(ctypes.pointer(v), c_void_p) for v in values))


class Runtime:
    """A ``libcudart.so.13``: ``code`` calls a function and returns its error, ``call`` expects success."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.library = ctypes.CDLL(str(path), mode=ctypes.RTLD_GLOBAL)
        self.is_emulated = hasattr(self.library, "aicfEmulatorVersion")
        for name in ("cudaGetErrorName", "cudaGetErrorString"):
            getattr(self.library, name).restype = c_char_p
        if self.is_emulated:
            for name in ("Version", "GetOption", "OptionNames", "TakeReports", "TakeCounters", "TakeLines", "Allocations", "Message"):
                getattr(self.library, f"aicfEmulator{name}").restype = c_char_p

    def code(self, name: str, *args: Any) -> int:
        """Call; integers are passed as 64-bit words, which suits pointers, sizes and handles."""
        converted = [c_void_p(a) if isinstance(a, int) else a for a in args]
        result: int = getattr(self.library, name)(*converted)
        return result

    def call(self, name: str, *args: Any) -> None:
        if code := self.code(name, *args):
            raise CudaError(f"{name} returned {code} ({self.library.cudaGetErrorName(code).decode()}): {self.message()}")

    def recover(self, *addresses: int) -> None:
        """Forget the error of a launch and free what it worked on; tests of other folders keep their memory in this process."""
        self.library.aicfEmulatorClearError()
        for address in addresses:
            self.call("cudaFree", address)

    def message(self) -> str:
        return self.library.aicfEmulatorMessage().decode() if self.is_emulated else ""

    def made(self, name: str, *args: Any) -> int:
        """Call a function whose first parameter takes the address of a new handle or pointer, and return that."""
        out = c_void_p()
        self.call(name, byref(out), *args)
        return out.value or 0

    def reports(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = json.loads(self.library.aicfEmulatorTakeReports())
        return found

    def set_option(self, name: str, value: object) -> int:
        return int(self.library.aicfEmulatorSetOption(name.encode(), str(value).encode()))

    def options(self) -> dict[str, str]:
        names = self.library.aicfEmulatorOptionNames().decode().split(",")
        return {n: self.library.aicfEmulatorGetOption(n.encode()).decode() for n in names}

    def stream(self, non_blocking: bool = True) -> int:
        return self.made("cudaStreamCreateWithFlags", c_uint(non_blocking))

    def event(self) -> int:
        return self.made("cudaEventCreateWithFlags", c_uint(2))

    def alloc(self, values: NDArray[Any]) -> int:
        address = self.made("cudaMalloc", values.nbytes)
        self.call("cudaMemcpy", address, values.ctypes.data, values.nbytes, c_int(HOST_TO_DEVICE))
        return address

    def read(self, address: int, count: int = 1, dtype: type = np.uint32) -> NDArray[Any]:
        out: NDArray[Any] = np.zeros(count, dtype)
        self.call("cudaMemcpy", out.ctypes.data, address, out.nbytes, c_int(DEVICE_TO_HOST))
        return out

    def load(self, ptx: str) -> int:
        return self.made("cudaLibraryLoadData", c_char_p(ptx.encode()), None, None, c_uint(0), None, None, c_uint(0))

    def kernel(self, library: int, name: str) -> int:
        return self.made("cudaLibraryGetKernel", library, c_char_p(name.encode()))

    def launch(
        self,
        kernel: int,
        args: Args,
        stream: int = 0,
        grid: tuple[int, int, int] = (1, 1, 1),
        block: tuple[int, int, int] = (1, 1, 1),
        shared: int = 0,
    ) -> int:
        """Launch and return the error that the launch itself gave."""
        return self.code("cudaLaunchKernel", kernel, Dim3(*grid), Dim3(*block), args.array, c_size_t(shared), stream)


def run_isolated(path: Path, body: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run Python statements in a process of their own, with ``cuda`` a :class:`Runtime` of the library at ``path``."""
    script = f"import sys; sys.path.insert(0, {str(ROOT)!r})\nfrom tests.emulator.cuda_runtime import *\n"
    script += f"cuda = Runtime(Path({str(path)!r}))\n{body}"
    return subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=120, env={**os.environ, **environment}, check=False
    )
