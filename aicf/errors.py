"""The framework's own errors; each message says what is wrong, where, and what to do."""

from __future__ import annotations


class FrozenError(RuntimeError):
    """The frozen set cannot be read: a file is missing, is not what its schema asks for, or disagrees with another."""


class NotFrozenError(FrozenError):
    """The frozen set has no kernel of an op; the message lists the ops that it has."""


class SelectionError(LookupError):
    """No frozen kernel serves the problem, or none has what is preferred; the message says why each was dropped."""


class LaunchError(RuntimeError):
    """A kernel refused its parameters, or a CUDA call in its launcher failed."""
