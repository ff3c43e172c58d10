"""How a verb is given an op: by its name, or as an object."""

from __future__ import annotations

from collections.abc import Sequence

from harness.discover import LoadedOp, find_op

OpLike = str | LoadedOp
# One name, several, or none for all.
Names = str | Sequence[str] | None


def take_op(op: OpLike) -> LoadedOp:
    """Return the op; raises :class:`harness.errors.SpecError` for a name that none has."""
    return find_op(op) if isinstance(op, str) else op


def list_names(names: Names) -> list[str]:
    """Return names as a list: one that stands alone is a list of one."""
    return [names] if isinstance(names, str) else list(names or ())
