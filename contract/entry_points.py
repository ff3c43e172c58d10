"""The C entry points of a kernel in a shared library, as its manifest names them."""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from contract.errors import FrozenError
from contract.structs import Status

_ARGUMENTS: dict[str, list[Any]] = {
    "supports": [],
    "workspace_bytes": [ctypes.POINTER(ctypes.c_size_t)],
    "launch": [ctypes.c_void_p, ctypes.c_void_p],
}
CALLS = tuple(_ARGUMENTS)


class EntryPoints:
    """A kernel's entry points, ``symbols`` by call; each call returns a :class:`Status`. The library stays loaded until the process ends.

    Whichever CUDA runtime is loaded first serves the library: open the device before. Raises :class:`FrozenError` where ``path`` cannot be
    loaded, or lacks one of them.
    """

    def __init__(self, symbols: Mapping[str, str], path: Path) -> None:
        try:
            library = ctypes.CDLL(str(path))
            functions = {call: library[symbol] for call, symbol in symbols.items()}
        except (OSError, AttributeError) as error:
            raise FrozenError(f"{path}: cannot be loaded: {error}; remove its folder, and it is built again") from error
        for call, function in functions.items():
            function.argtypes = [ctypes.c_void_p, *_ARGUMENTS[call]]  # a struct of another reading of the index is the same struct
            function.restype = Status
        self._functions = functions
        self.launch_address: int = ctypes.cast(functions["launch"], ctypes.c_void_p).value or 0

    def supports(self, params: ctypes.Structure) -> Status:
        """Return whether the kernel serves a call, and why not."""
        status: Status = self._functions["supports"](ctypes.byref(params))
        return status

    def ask_workspace(self, params: ctypes.Structure) -> tuple[Status, int]:
        """Return the device memory in bytes that a launch wants."""
        size = ctypes.c_size_t()
        status: Status = self._functions["workspace_bytes"](ctypes.byref(params), ctypes.byref(size))
        return status, size.value

    def launch(self, params: ctypes.Structure, workspace: int, stream: int) -> Status:
        """Queue the kernel on a stream (a ``cudaStream_t`` as a number), with the device address of its workspace."""
        status: Status = self._functions["launch"](ctypes.byref(params), workspace or None, stream or None)
        return status
