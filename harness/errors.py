"""The harness's own errors and exit codes; each message says what is wrong, where, and what to do."""

from __future__ import annotations

from enum import IntEnum

from contract.errors import FrozenError
from device.toolchain import BuildError

__all__ = (
    "BuildError",
    "CacheUseError",
    "ExitCode",
    "FrozenError",
    "FrozenUseError",
    "RecordError",
    "RecordUseError",
    "SpecError",
    "ToolError",
    "UseError",
)


class ExitCode(IntEnum):
    """What a verb's exit status means."""

    DONE = 0
    CHECK_FAILED = 1
    WRONG_USE = 2
    NOT_AVAILABLE = 3
    INTERRUPTED = 130


class UseError(ValueError):
    """A name, a value or a file that the user gave cannot be used."""


class SpecError(UseError):
    """An op's description, or a name that a user gave for one of its parts, is wrong."""


class CacheUseError(BuildError, UseError):
    """What ``AICF_CACHE_DIR`` names cannot be a cache."""


class RecordError(RuntimeError):
    """Records cannot be read or written."""


class RecordUseError(RecordError, UseError):
    """There is no such run, record or database, or the file that was given holds none."""


class FrozenUseError(FrozenError, UseError):
    """The frozen set has no such bucket, kernel or event, or the file that was given holds no times."""


class ToolError(RuntimeError):
    """A profiler or checker ran, and what it says cannot be used."""
