"""The framework's own errors; each message says what is wrong, where, and what to do."""

from __future__ import annotations

from contract.errors import FrozenError, NotFrozenError

__all__ = ("FrozenError", "LaunchError", "NotFrozenError", "SelectionError")


class SelectionError(LookupError):
    """No frozen kernel serves the problem, or none has what is preferred; the message says why each was dropped."""


class LaunchError(RuntimeError):
    """A kernel refused its parameters, or a CUDA call in its launcher failed."""
