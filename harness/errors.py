"""The harness's own errors and exit codes; each message says what is wrong, where, and what to do."""

from __future__ import annotations

from enum import IntEnum

from device.toolchain import BuildError

__all__ = ("BuildError", "ExitCode", "FrozenError", "RecordError")


class ExitCode(IntEnum):
    """What a verb's exit status means."""

    DONE = 0
    CHECK_FAILED = 1
    WRONG_USE = 2
    NOT_AVAILABLE = 3
    INTERRUPTED = 130


class RecordError(RuntimeError):
    """Records cannot be read or written."""


class FrozenError(RuntimeError):
    """The frozen set cannot be read or written as asked: what is in it disagrees with itself, or a promotion is refused."""


class ToolError(RuntimeError):
    """A profiler or checker ran, and what it says cannot be used."""
