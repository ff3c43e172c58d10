"""Libraries of others that may stand for a frozen kernel: found on this machine, opened, and loaded as a kernel is."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Protocol

from aicf.errors import LaunchError
from aicf.kernels.library import KernelLibrary
from contract.layout import hash_value
from contract.libraries.adapters import CUBLASLT, Adapter, describe_version, find_adapter
from contract.libraries.binding import Binding, open_cublaslt
from device import UnavailableError, open_device
from device.runtime import RuntimeDevice
from device.settings import read_settings
from device.toolchain import BuildError

Row = Mapping[str, Any]
_CAPTURE_MODE_RELAXED = 2  # cudaStreamCaptureModeRelaxed
_NAMES: Mapping[str, str] = {CUBLASLT: "cuBLASLt"}
_OPENERS: Mapping[str, Callable[[], Binding]] = {CUBLASLT: open_cublaslt}


def name_library(row: Row) -> str:
    """Return a library with its version, as people write it."""
    return f"{_NAMES.get(row['library'], row['library'])} {describe_version(row['version'])}"


def make_library_seal(op: str, row: Row) -> str:
    """Return what names a library's call of an op as a seal names a kernel: measuring it again changes nothing about it."""
    return hash_value({"op": op, **{key: row[key] for key in ("arch", "library", "version")}})


@dataclass(frozen=True)
class LibraryKernel:
    """An installed library that serves calls of an op: loaded and launched as a frozen kernel is. ``row`` is that of the index."""

    row: Row
    adapter: Adapter
    binding: Binding = field(repr=False)

    @property
    def seal(self) -> str:
        """What names it."""
        return make_library_seal(self.adapter.op, self.row)

    def load(self) -> KernelLibrary:
        """Return its entry points, with the library's handle created on the open device.

        Raises :class:`UnavailableError` where the library refuses.
        """
        return _load(self.binding, self.adapter.op, name_library(self.row))

    def find_fault(self, params: Any) -> str:
        """Return why the library does not serve a call, by the op's C struct, "" where it does. The device must be open."""
        try:
            self.load().check(params)
        except (LaunchError, UnavailableError) as error:
            return str(error)
        return ""


@cache
def _load(binding: Binding, op: str, name: str) -> KernelLibrary:
    open_device().bind_thread()
    try:
        with _may_allocate():
            binding.create()
    except RuntimeError as error:
        raise UnavailableError(f"{name}: {error}") from error
    return KernelLibrary(name, binding.list_symbols(op), binding.path)


@contextmanager
def _may_allocate() -> Iterator[None]:
    """Within the block, what allocates device memory does not end the capture of a stream: it is no part of the graph."""
    device = open_device()
    assert isinstance(device, RuntimeDevice)  # both kinds are
    exchange, mode = device.cudart.library.cudaThreadExchangeStreamCaptureMode, ctypes.c_int(_CAPTURE_MODE_RELAXED)
    exchange(ctypes.byref(mode))  # the mode before is in its place now
    try:
        yield
    finally:
        exchange(ctypes.byref(mode))


class Libraries(Protocol):
    """Finds libraries for the registry."""

    def find(self, op: str, row: Row, interface: Row) -> LibraryKernel | str:
        """Return the library of a row of the index, or why it cannot be used here."""
        ...


class InstalledLibraries:
    """The libraries of this machine, for the device that is open. On the emulated device there are none."""

    def find(self, op: str, row: Row, interface: Row) -> LibraryKernel | str:
        """Return the library of a row of the index, or why it cannot be used here."""
        if not read_settings().libraries:
            return "AICF_LIBRARIES is off"
        try:
            is_emulated = open_device().is_emulated
        except UnavailableError as error:
            return f"no device is open: {str(error).partition(chr(10))[0]}"
        if is_emulated:
            return "the emulated device runs the project's own kernels alone"
        opener = _OPENERS.get(row["library"])
        return f"this version of the project cannot call {row['library']}" if opener is None else match_library(op, row, interface, opener)


def match_library(op: str, row: Row, interface: Row, opener: Callable[[], Binding]) -> LibraryKernel | str:
    """Return the library that ``opener`` opens, if it is of the version that was measured and takes the op's calls; else why not."""
    adapter = find_adapter(row["library"], op)
    if adapter is None:
        return f"this version of the project cannot call {row['library']} for {op}"
    if fault := adapter.find_fault(interface):
        return fault
    try:
        binding = opener()
    except (UnavailableError, BuildError) as error:
        return str(error).partition("\n")[0]
    if binding.version != row["version"]:
        return f"version {describe_version(binding.version)} is installed, and {describe_version(row['version'])} was measured"
    return LibraryKernel(row, adapter, binding)
