"""Errors that prevent a library from being built; each message says what to do."""

from __future__ import annotations

from contract.errors import FrozenError


class DeployError(FrozenError):
    """What was asked for cannot be built from the frozen set."""
