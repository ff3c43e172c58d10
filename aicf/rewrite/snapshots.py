"""Moments of a run to which it can go back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from aicf.rewrite.records import RewriteRecord
from aicf.rewrite.structure import Frame


@dataclass(frozen=True)
class Snapshot:
    """A run at a moment: its structure with all state, the loader's place where it has one, and the rewrites until then."""

    name: str
    steps_done: int
    frame: Frame
    loader: Mapping[str, Any] | None
    records: tuple[RewriteRecord, ...]
    batch: int | None = None  # the loader's

    @property
    def size_bytes(self) -> int:
        """The bytes of its state."""
        return int(self.frame.state.nbytes)
