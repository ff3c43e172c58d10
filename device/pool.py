"""Memory of work on the default stream, kept when it is freed and given to later work of that stream.

Such work runs in the order in which it is queued: a block that is freed while work on it waits can go to later work at once, and nothing
is waited for, as ``cudaFree`` does. That holds for the default stream alone: a block whose address was given to anybody else
(:attr:`Block.is_lent`) goes back by ``cudaFree``, which waits for all streams.
"""

from __future__ import annotations

import sys
from contextlib import suppress
from functools import lru_cache

from device.cudart import ERROR_MEMORY_ALLOCATION, Cudart
from device.interface import DeviceError
from device.memory import RuntimeArray, RuntimeBuffer

_LEAST_BYTES = 512
_SMALL_BYTES = 1 << 20


@lru_cache(maxsize=16384)
def find_class(size_bytes: int) -> int:
    """Return the size in bytes of a block that holds so many: 512, or one of four steps between powers of two."""
    if size_bytes <= _LEAST_BYTES:
        return _LEAST_BYTES
    step = 1 << max((size_bytes - 1).bit_length() - 3, 9)
    return -(-size_bytes // step) * step


class Pool:
    """Freed blocks by size. Any thread may take and give: lists are changed by one operation at a time, without a lock.

    A freed block of more than 1 MiB is kept as long as no more than ``limit_bytes`` are kept then; others go back to the device.
    """

    def __init__(self, cudart: Cudart, limit_bytes: int) -> None:
        self.limit_bytes = limit_bytes
        self.cudart = cudart
        self._free: dict[int, list[int]] = {}
        self._keeps = True

    @property
    def kept_bytes(self) -> int:
        """Bytes of freed blocks."""
        return sum(size * len(kept) for size, kept in self._free.copy().items())  # a copy: blocks are given back meanwhile

    def take(self, size_bytes: int) -> tuple[int, int]:
        """Return the address and the size of a block of at least so many bytes, 256-byte aligned; its contents are undefined.

        The size is 0 for a block that is not to be kept.
        Raises :class:`DeviceError` with code 2 where there is no memory, not even with all that is kept given back.
        """
        if not self._keeps:
            return self.allocate(size_bytes), 0
        size = find_class(size_bytes)
        try:
            return self._free[size].pop(), size
        except (KeyError, IndexError):  # the last one may be another thread's now
            return self.allocate(size), size

    def give(self, address: int, size_bytes: int, is_lent: bool) -> None:
        """Take back a block of the size that :meth:`take` returned. One that was lent is freed, which waits for whoever may use it."""
        is_kept = size_bytes and self._keeps and not is_lent
        if is_kept and (size_bytes <= _SMALL_BYTES or self.kept_bytes + size_bytes <= self.limit_bytes):
            try:
                self._free[size_bytes].append(address)
            except KeyError:
                self._free.setdefault(size_bytes, []).append(address)
        elif not sys.is_finalizing():  # the process gives all memory back; the runtime may be gone by then
            self.cudart.call_quietly("cudaFree", address)

    def allocate(self, size_bytes: int) -> int:
        """Return the address of new memory of the device; where there is none, what is kept is given back, and it is tried once more."""
        try:
            return self.cudart.create_handle("cudaMalloc", size_bytes)
        except DeviceError as error:
            if error.code != ERROR_MEMORY_ALLOCATION or not self.kept_bytes:
                raise
        self.trim()
        return self.cudart.create_handle("cudaMalloc", size_bytes)

    def trim(self) -> None:
        """Give all that is kept back to the device."""
        for kept in self._free.copy().values():
            with suppress(IndexError):  # when it is empty, whoever else takes of it
                while True:
                    self.cudart.call_quietly("cudaFree", kept.pop())

    def keep(self, wanted: bool) -> None:
        """Say whether freed blocks are kept. Where not, each allocation is of its exact size, and freed when its buffer is."""
        self._keeps = wanted
        if not wanted:
            self.trim()


class Block(RuntimeBuffer):
    """A buffer of a pool. Whoever is given its address, or that of an array in it, may use it on any stream, and makes it lent."""

    is_lent = False
    queued_address = 0  # where taking fails

    def __init__(self, pool: Pool, size_bytes: int, array_class: type[RuntimeArray]) -> None:
        self.array_class = array_class
        self.size_bytes = size_bytes
        self._pool = pool
        self.queued_address, self._taken_bytes = pool.take(size_bytes)

    @property
    def cudart(self) -> Cudart:  # type: ignore[override]  # one attribute less to set
        """The runtime of the device."""
        return self._pool.cudart

    @property
    def address(self) -> int:  # type: ignore[override]  # one that is watched
        """The first byte's address, for any use."""
        self.is_lent = True
        return self.queued_address

    @property
    def is_alive(self) -> bool:
        """Whether it was not freed yet."""
        return self.queued_address != 0

    def free(self) -> None:
        """Give the memory back; a second call does nothing."""
        address, self.queued_address = self.queued_address, 0
        if address:
            self._pool.give(address, self._taken_bytes, self.is_lent)

    __del__ = free
