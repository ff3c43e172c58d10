"""The state of a thread: whether gradients are recorded, which backend new tensors are on, and whether calls become a graph."""

from __future__ import annotations

import contextlib
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType

from aicf.backends import RecordingBackend
from aicf.errors import RecordError

# Frames that are not the user's: this package's, and those of its context managers.
_NOT_USERS = (str(Path(__file__).resolve().parent), contextlib.__file__)

# Code and an instruction in it, of which the line is found when it is asked for, or the place of a network that was imported.
Place = str | tuple[CodeType, int]


class _Modes(threading.local):
    grad_enabled: bool = True
    recorder: RecordingBackend | None = None
    place: str | None = None


MODES = _Modes()


@contextmanager
def no_grad() -> Iterator[None]:
    """Run the block's calls without recording them for a backward pass."""
    with set_grad_enabled(False):
        yield


@contextmanager
def set_grad_enabled(enabled: bool) -> Iterator[None]:
    """Run the block's calls with or without recording them for a backward pass."""
    before, MODES.grad_enabled = MODES.grad_enabled, enabled
    try:
        yield
    finally:
        MODES.grad_enabled = before


@contextmanager
def recording(recorder: RecordingBackend) -> Iterator[None]:
    """Make the block's calls nodes of a graph. Raises :class:`RecordError` inside of another recording."""
    if MODES.recorder is not None:
        raise RecordError(f"{find_source()}: a program is being recorded already; compile outside of recorded functions")
    MODES.recorder = recorder
    try:
        yield
    finally:
        MODES.recorder = None


@contextmanager
def placed(place: str) -> Iterator[None]:
    """Make a place of a network that was imported the source of the block's calls."""
    before, MODES.place = MODES.place, place
    try:
        yield
    finally:
        MODES.place = before


def refuse_while_recording(what: str, remedy: str) -> None:
    """Raise :class:`RecordError` with the caller's source line where calls are being recorded."""
    if MODES.recorder is not None:
        raise RecordError(f"{find_source()}: {what} while a program is recorded: a replay would not do it again; {remedy}")


def find_source() -> str:
    """Return ``file:line`` of the innermost frame outside of this package, or the place of the imported call that runs."""
    return say_place(find_place())


def find_place(depth: int = 0) -> Place:
    """Return what :func:`say_place` says :func:`find_source` of, later: calls are many, and few of them are ever asked.

    The caller and ``depth`` frames around it are known to be this package's, and not looked at: a frame that is looked at is made first.
    """
    if MODES.place is not None:
        return MODES.place
    frame = sys._getframe(depth + 1)
    while _ours[frame.f_code.co_filename] and (around := frame.f_back) is not None:
        frame = around
    return frame.f_code, frame.f_lasti


def say_place(place: Place) -> str:
    """Return a place as users read it."""
    if isinstance(place, str):
        return place
    code, at = place
    lines = [line for first, stop, line in code.co_lines() if first <= at < stop and line is not None]
    return f"{code.co_filename}:{lines[0] if lines else code.co_firstlineno}"


class _Ours(dict[str, bool]):
    """Whether a file is of those that are not the user's, found once."""

    def __missing__(self, path: str) -> bool:
        found = self[path] = path.startswith(_NOT_USERS)
        return found


_ours = _Ours()
