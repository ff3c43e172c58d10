"""Whose turn it is to use a GPU, among processes, so that none disturbs another's timing."""

from __future__ import annotations

import fcntl
import getpass
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

_POLL_S = 5e-5
_SIGN_OF_LIFE_S = 5.0


# The turns that this process has now: what is measured within a turn needs no second one.
_held: set[Path] = set()


class GpuLock:
    """A lock on a GPU by its ``uuid``, of one process at a time. A process that dies gives it back: the kernel unlocks its files.

    While one process measures, others read inputs, load libraries, judge outputs and compute statistics. Turns may be nested: the
    outermost one counts. It is for one thread of a process, the one that measures.
    """

    def __init__(self, uuid: str, folder: Path | None = None) -> None:
        self._path = (folder or Path(tempfile.gettempdir())) / f"aicf-{getpass.getuser()}-{uuid}.turn"

    @contextmanager
    def hold(self, report: Callable[[str], None] = lambda text: None) -> Iterator[None]:
        """Wait for the turn and have it within the block; ``report`` is told now and then that this is a wait and no hang."""
        if self._path in _held:
            yield
            return
        with self._path.open("w") as file:
            told = time.monotonic()
            while not _lock(file):
                time.sleep(_POLL_S)
                if time.monotonic() - told > _SIGN_OF_LIFE_S:
                    told = time.monotonic()
                    report("waits for its turn on the GPU")
            _held.add(self._path)
            try:
                yield
            finally:
                _held.discard(self._path)


def _lock(file: IO[str]) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
