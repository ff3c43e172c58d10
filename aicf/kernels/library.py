"""A kernel's shared library, loaded: its three entry points."""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Mapping
from pathlib import Path

from aicf.errors import LaunchError
from contract.building import build_kernel
from contract.chain_building import build_chain
from contract.entry_points import EntryPoints
from contract.expressions.tree import Chain
from contract.kernels import FrozenKernel
from contract.structs import Status
from device import choose_device, open_device

_loaded: dict[tuple[Path, str], KernelLibrary] = {}
_lock = threading.Lock()


class KernelLibrary:
    """The entry points of one kernel. It stays loaded until the process ends: graphs and streams may still refer to its kernels."""

    def __init__(self, name: str, symbols: Mapping[str, str], path: Path) -> None:
        self.path = path
        # A process has one device. Asking for it again reads the settings, which takes longer than many launches.
        self._device = open_device()
        self.name = name
        self._calls = EntryPoints(symbols, path)
        self.launch_address = self._calls.launch_address

    @classmethod
    def of(cls, kernel: FrozenKernel, path: Path) -> KernelLibrary:
        """Return a frozen kernel's, built at ``path``."""
        return cls(f"{kernel.op}/{kernel.name}", kernel.manifest["entry_points"], path)

    def check(self, params: ctypes.Structure) -> None:
        """Raise :class:`LaunchError` with the kernel's reason where it does not serve the call."""
        self._check(self._calls.supports(params))

    def ask_workspace(self, params: ctypes.Structure) -> int:
        """Return the device memory in bytes that a launch wants."""
        status, size = self._calls.ask_workspace(params)
        self._check(status)
        return size

    def launch(self, params: ctypes.Structure, workspace: int, stream: int) -> None:
        """Queue the kernel, from any thread; raises :class:`LaunchError` with the reason where it refuses."""
        self._device.bind_thread()
        self._check(self._calls.launch(params, workspace, stream))

    def _check(self, status: Status) -> None:
        if status.code:
            raise LaunchError(f"{self.name}: {status.read_reason()}", status.cuda_code)


def is_loaded(kernel: FrozenKernel, chain: Chain | None = None) -> bool:
    """Whether a kernel, or that of a chain of its engine's sources, is loaded already."""
    return _name(kernel, chain) in _loaded


def _name(kernel: FrozenKernel, chain: Chain | None) -> tuple[Path, str]:
    seal = str(kernel.manifest["seal"])
    return kernel.folder, seal if chain is None else f"{seal} {chain.name} {chain.key}"


def load_kernel(kernel: FrozenKernel) -> KernelLibrary:
    """Return a kernel's library, built where it is not in the cache, loaded once a process.

    The device is opened first: it decides which CUDA runtime the library binds to. Raises what :func:`build_kernel` and
    :func:`device.open_device` raise.
    """
    key = _name(kernel, None)
    with _lock:
        found = _loaded.get(key)
        if found is None:
            open_device()
            found = _loaded[key] = KernelLibrary.of(kernel, build_kernel(kernel))
    return found


def compile_chain(engine: FrozenKernel, chain: Chain) -> tuple[FrozenKernel, Path]:
    """Build a chain for this process's device, which need not be open, as :func:`contract.chain_building.build_chain` does."""
    return build_chain(engine, chain, is_emulated=choose_device().name == "emulated")


def load_chain(engine: FrozenKernel, chain: Chain) -> KernelLibrary:
    """Return the library of a chain that no op lists, built of a frozen engine's sources unless it is in the cache; loaded once a process.

    Raises what :func:`contract.chain_building.build_chain` and :func:`device.open_device` raise.
    """
    key = _name(engine, chain)
    with _lock:
        found = _loaded.get(key)
        if found is None:
            open_device()
            found = _loaded[key] = KernelLibrary.of(*compile_chain(engine, chain))
    return found
