"""Errors of the frozen set; each message says what is wrong, where, and what to do."""

from __future__ import annotations

from pathlib import Path


class FrozenError(RuntimeError):
    """The frozen set cannot be read or written as asked: a file is missing, is not what its schema asks for, or disagrees with another."""


class NotFrozenError(FrozenError):
    """The frozen set has no kernel of an op; the message lists the ops that it has."""


class BrokenDocument(FrozenError):  # noqa: N818 - it says what is broken
    """A document is ``missing``, ``unreadable``, or not what its ``schema`` allows: ``kind`` says which, ``detail`` what is wrong."""

    def __init__(self, path: Path, kind: str, detail: str, why: str = "") -> None:
        cannot = "" if kind == "schema" else "cannot be read: "
        super().__init__(f"{path}: {cannot}{detail}{'; ' + why if why else ''}")
        self.path = path
        self.kind = kind
        self.detail = detail
