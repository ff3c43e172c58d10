"""What timing needs on the device besides the timed kernel: holding a stream, reading the SM's clock, an empty launch.

A held stream starts nothing until the host has queued all of a batch, so that no launch waits for the host while it is timed (as nvbench's
blocking kernel does). The clock of a sample is that of one multiprocessor, read before and after it, over the nanoseconds between.
"""

from __future__ import annotations

import ctypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from device.interface import DeviceError, Stream
from device.toolchain import Toolchain, find_toolchain
from harness.build.builder import open_store
from harness.build.compiler import Compiler, compile_steadily, describe_failure
from harness.build.store import Store, full_disk_as_error, hash_text
from harness.errors import BuildError

_LIBRARY = "instruments.so"
_FLAGS = (
    "-std=c++20",
    "-O3",
    "-Xcompiler",
    "-fPIC,-fvisibility=hidden",
    "-cudart",
    "shared",
    "-gencode",
    "arch=compute_75,code=compute_75",
)
_NUM_STAMPS = 4096
_BOARD_BYTES = 64
_STAMP = np.dtype([("cycles", "<u8"), ("nanoseconds", "<u8"), ("sm", "<u8")])


class Instruments(Protocol):
    """What a timer uses; the GPU's are :class:`CudaInstruments`."""

    def hold(self, stream: Stream) -> int:
        """Let nothing queued from now on start before :meth:`release`; return the hold's ticket."""
        ...

    def release(self) -> None:
        """Let the held stream go."""
        ...

    def has_expired(self, ticket: int) -> bool:
        """Return whether a hold ran into its limit: then what was queued did not wait for :meth:`release`."""
        ...

    def stamp(self, stream: Stream, index: int) -> None:
        """Queue a reading of the clocks into place ``index``."""
        ...

    def read_clocks_mhz(self, count: int, first: int = 0) -> NDArray[np.float64]:
        """Return the SM clock between each two neighbours of ``count`` + 1 stamps from ``first``, NaN where it is not known."""
        ...

    def read_span_us(self, count: int, first: int = 0) -> float:
        """Return the microseconds between the stamps in places ``first`` and ``first`` + ``count``, by the GPU's own clock."""
        ...

    def launch_nothing(self, stream: Stream) -> None:
        """Queue an empty kernel."""
        ...

    def reset_persisting_cache(self) -> None:
        """Give back the part of the L2 cache that an access policy set aside."""
        ...

    def close(self) -> None:
        """Free what is held."""
        ...


def build_instruments(toolchain: Toolchain, store: Store | None = None) -> Path:
    """Compile the library, or take it from the cache; raises :class:`BuildError` with the compiler's text."""
    cache = store or open_store()
    source = Path(__file__).with_name("instruments.cu")
    request = hash_text("instruments 1", str(source), *_FLAGS, toolchain.identity)
    if entry := cache.find("instruments", request):
        return entry.folder / _LIBRARY
    with cache.lock(request), cache.scratch() as scratch:
        if entry := cache.find("instruments", request):
            return entry.folder / _LIBRARY
        made = scratch / "made"
        with full_disk_as_error(cache.root):
            made.mkdir()
        compiler = [
            str(toolchain.nvcc),
            "-ccbin",
            str(toolchain.cxx),
            *_FLAGS,
            "-MMD",
            "-MF",
            "deps.d",
            "-c",
            str(source),
            "-o",
            "object.o",
        ]
        link = [str(toolchain.cxx), "-shared", "-o", str(made / _LIBRARY), "object.o", str(toolchain.cudart_library)]
        status, log, files = compile_steadily(Compiler(), (compiler, link), scratch, (source.parent,))
        if status != 0:
            raise BuildError(f"{source} does not compile:\n{describe_failure(log, cache.root)}")
        entry = cache.add("instruments", request, made, files, {})
    return entry.folder / _LIBRARY


@dataclass(frozen=True)
class Stamps:
    """Clock readings, in the order of their places."""

    cycles: NDArray[np.uint64]
    nanoseconds: NDArray[np.uint64]
    sm: NDArray[np.uint64]

    def find_clocks_mhz(self) -> NDArray[np.float64]:
        """Return the clock between neighbours; NaN where they ran on different multiprocessors, whose counters differ."""
        cycles = (self.cycles[1:] - self.cycles[:-1]).astype(np.float64)
        elapsed = (self.nanoseconds[1:] - self.nanoseconds[:-1]).astype(np.float64)
        with np.errstate(divide="ignore", invalid="ignore"):
            clocks = 1e3 * cycles / elapsed
        return np.where((self.sm[1:] == self.sm[:-1]) & (elapsed > 0), clocks, np.nan)


class CudaInstruments:
    """The instruments over the CUDA runtime. The device must be open: it decides which runtime the library binds to.

    ``limit_s`` ends a hold that nobody releases.
    """

    def __init__(self, library: Path | None = None, limit_s: float = 2.0) -> None:
        self._library: Any = ctypes.CDLL(str(library or build_instruments(find_toolchain())))
        self._limit_ns = int(limit_s * 1e9)
        self._ticket = 0
        self._address = ctypes.c_void_p()
        size = _BOARD_BYTES + _NUM_STAMPS * _STAMP.itemsize
        self._call("allocate", ctypes.c_uint64(size), ctypes.byref(self._address))
        memory = memoryview((ctypes.c_ubyte * size).from_address(self._address.value or 0))
        self._board = np.frombuffer(memory, np.uint32, 2)
        self._stamps = np.frombuffer(memory, _STAMP, _NUM_STAMPS, _BOARD_BYTES)
        self._board[:] = 0

    def close(self) -> None:
        """Free the shared memory."""
        if self._address.value:
            self._call("free", self._address)
            self._address = ctypes.c_void_p()

    def hold(self, stream: Stream) -> int:
        """Let nothing queued from now on start before :meth:`release`, or before the limit; return the hold's ticket."""
        self._ticket += 1
        self._call("hold", ctypes.c_void_p(stream.handle), self._address, ctypes.c_uint32(self._ticket), ctypes.c_uint64(self._limit_ns))
        return self._ticket

    def release(self) -> None:
        """Let the held stream go."""
        self._board[0] = self._ticket

    def has_expired(self, ticket: int) -> bool:
        """Return whether a hold ran into its limit; what it held must have ended, and no later hold its limit reached."""
        return bool(self._board[1] == ticket)

    def stamp(self, stream: Stream, index: int) -> None:
        """Queue a reading of the clocks into place ``index``."""
        if not 0 <= index < _NUM_STAMPS:
            raise ValueError(f"index={index}: there are {_NUM_STAMPS} places for stamps")
        place = ctypes.c_void_p((self._address.value or 0) + _BOARD_BYTES + index * _STAMP.itemsize)
        self._call("stamp", ctypes.c_void_p(stream.handle), place)

    def read_stamps(self, count: int, first: int = 0) -> Stamps:
        """Return ``count`` stamps from ``first``; their stamping must have ended."""
        taken = self._stamps[first : first + count].copy()
        return Stamps(taken["cycles"], taken["nanoseconds"], taken["sm"])

    def read_clocks_mhz(self, count: int, first: int = 0) -> NDArray[np.float64]:
        """Return the SM clock between each two neighbours of ``count`` + 1 stamps from ``first``, NaN where it is not known."""
        return self.read_stamps(count + 1, first).find_clocks_mhz()

    def read_span_us(self, count: int, first: int = 0) -> float:
        """Return the microseconds between the stamps in places ``first`` and ``first`` + ``count``, by the GPU's own clock."""
        nanoseconds = self._stamps["nanoseconds"]
        return float(int(nanoseconds[first + count]) - int(nanoseconds[first])) / 1e3

    def launch_nothing(self, stream: Stream) -> None:
        """Queue an empty kernel."""
        self._call("do_nothing", ctypes.c_void_p(stream.handle))

    def reset_persisting_cache(self) -> None:
        """Give back the part of the L2 cache that an access policy set aside."""
        self._call("reset_persisting_cache")

    def _call(self, name: str, *arguments: Any) -> None:
        if code := getattr(self._library, f"aicf_instruments_{name}")(*arguments):
            raise DeviceError(f"timing instruments: {name} failed with CUDA error {code}", code)
