"""cuBLASLt, found on this machine and opened through the project's own binding, ``cublaslt.cpp``, which is compiled on first use.

Opening needs neither a device nor a header of the library. A launch needs :func:`Binding.create` once, on the device that is current.
"""

from __future__ import annotations

import ctypes
import importlib.util
import os
from functools import cache
from pathlib import Path

from contract.structs import Status
from device.interface import UnavailableError
from device.native import build_library

SONAME = "libcublasLt.so.13"
SOURCE = Path(__file__).with_name("cublaslt.cpp")
_FLAGS = ("-std=c++20", "-fvisibility=hidden")
REMEDY = "`pip install nvidia-cublas` brings it"


class Product(ctypes.Structure):
    """``AicfProduct`` of the binding: row-major ``Y = act(A B + bias)``; addresses on the device, strides in elements."""

    _fields_ = (
        *((name, ctypes.c_void_p) for name in ("a", "b", "bias", "y")),
        *((name, ctypes.c_int64) for name in ("m", "n", "k", "lda", "ldb", "ldy")),
        *((name, ctypes.c_int32) for name in ("dtype", "compute", "act", "is_nk")),
    )


class Binding:
    """The binding, ``compiled``, with the library at ``path`` opened. A compiled binding opens one library in a process, the first.

    ``version`` is the library's own number. Raises :class:`UnavailableError` where it cannot be opened or lacks a function.
    """

    def __init__(self, path: str, compiled: Path) -> None:
        self.path = compiled
        self._library = ctypes.CDLL(str(compiled))
        for name, arguments, result in (
            ("open", [ctypes.c_char_p], Status),
            ("version", [], ctypes.c_size_t),
            ("create", [], Status),
            ("supports", [ctypes.POINTER(Product)], Status),
            ("workspace_bytes", [ctypes.POINTER(Product), ctypes.POINTER(ctypes.c_size_t)], Status),
            ("launch", [ctypes.POINTER(Product), ctypes.c_void_p, ctypes.c_void_p], Status),
        ):
            function = getattr(self._library, f"aicf_cublaslt_{name}")
            function.argtypes, function.restype = arguments, result
        opened: Status = self._library.aicf_cublaslt_open(path.encode())
        if opened.code:
            raise UnavailableError(f"{SONAME} cannot be opened: {opened.read_reason()}; {REMEDY}")
        self.version = int(self._library.aicf_cublaslt_version())

    def create(self) -> None:
        """Create the library's handle on the current device, once per process, never while a stream is captured."""
        _require(self._library.aicf_cublaslt_create())

    def find_fault(self, product: Product) -> str:
        """Return why the library does not serve a product, "" where it does."""
        status: Status = self._library.aicf_cublaslt_supports(ctypes.byref(product))
        return status.read_reason()

    def ask_workspace(self, product: Product) -> int:
        """Return the device memory in bytes that a launch wants; raises RuntimeError with the library's reason."""
        size = ctypes.c_size_t()
        _require(self._library.aicf_cublaslt_workspace_bytes(ctypes.byref(product), ctypes.byref(size)))
        return size.value

    def launch(self, product: Product, workspace: int, stream: int) -> None:
        """Queue a product on a stream (a ``cudaStream_t`` as a number); raises RuntimeError with the library's reason."""
        _require(self._library.aicf_cublaslt_launch(ctypes.byref(product), workspace or None, stream or None))

    @staticmethod
    def list_symbols(op: str) -> dict[str, str]:
        """Return the entry points that take an op's struct, as a manifest names those of a kernel."""
        return {call: f"{op}_{call}" for call in ("supports", "workspace_bytes", "launch")}


def _require(status: Status) -> None:
    if status.code:
        raise RuntimeError(status.read_reason())


def build_binding(cache_dir: Path | None = None) -> Path:
    """Return the compiled binding; raises what :func:`device.native.build_library` raises."""
    return build_library("cublaslt.so", SOURCE, _FLAGS, (), cache_dir)


def find_cublaslt() -> str:
    """Return what to open: the library that this process has loaded, one that pip installed, or what the loader finds by name."""
    try:
        ctypes.CDLL(SONAME, mode=os.RTLD_NOLOAD)
    except OSError:
        spec = importlib.util.find_spec("nvidia")
        for root in (spec.submodule_search_locations or []) if spec is not None else []:
            for path in sorted(Path(root).glob(f"*/lib/{SONAME}")):
                return str(path)
    return SONAME


@cache
def open_cublaslt() -> Binding:
    """Return the library that :func:`find_cublaslt` finds, opened once per process; raises :class:`UnavailableError`."""
    return Binding(find_cublaslt(), build_binding())
