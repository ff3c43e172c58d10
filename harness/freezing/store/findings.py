"""Faults found in the frozen set: where, of what kind, and in words."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

from contract.errors import BrokenDocument
from contract.layout import EVIDENCE, HISTORY, KERNELS, TREE


@dataclass(frozen=True)
class Finding:
    """One disagreement: the file it is in, relative to the op's folder, a keyword, and what is wrong.

    ``kind`` is ``unreadable``, ``schema``, ``changed``, ``missing``, ``added``, ``link``, ``interrupted``, ``skew``, ``rebuild`` or
    ``reference``. ``op`` is "" for what lies beside the ops.
    """

    op: str
    path: str
    kind: str
    detail: str

    @classmethod
    def of(cls, error: BrokenDocument) -> Self:
        """Return what is wrong with a document of an op."""
        path = error.path
        depth = 3 if path.name == TREE else 2 if path.parent.name in (KERNELS, EVIDENCE, HISTORY) else 1
        folder = path.parents[depth - 1]
        return cls(folder.name, str(path.relative_to(folder)), error.kind, error.detail)

    def describe(self) -> str:
        """Return one line."""
        return f"{self.op}{'/' if self.op else ''}{self.path}: {self.kind}: {self.detail}"
