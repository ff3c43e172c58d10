"""Documents that were found valid before, by what they say: checking one against its schema takes longer than all else done with it.

The list is a file of hashes beside other caches. Its name is the hash of the schemas and of the validator, so that neither can change
under it. It is trusted as the compiled kernels beside it are.
"""

from __future__ import annotations

import contextlib
from hashlib import sha256
from pathlib import Path

from contract import fitting, validator
from contract.layout import name_schema

_DOCUMENTS = ("event", "evidence", "index", "journal", "manifest", "tree")


class KnownValid:
    """The documents that schemas in a folder allow; kept in ``cache``, or for this process alone where that cannot be written."""

    def __init__(self, cache: Path, schemas: Path) -> None:
        self.schemas = schemas
        rules = sha256(Path(validator.__file__).read_bytes() + Path(fitting.__file__).read_bytes())
        for document in _DOCUMENTS:
            rules.update(sha256((schemas / name_schema(document)).read_bytes()).digest())
        self._path = cache / f"valid-{rules.hexdigest()[:16]}.txt"
        self._known: set[str] = set()
        with contextlib.suppress(OSError):
            self._known = set(self._path.read_text().split())

    def has(self, document: str, text: str) -> bool:
        """Whether a document, as canonical text, was found valid."""
        return _hash(document, text) in self._known

    def add(self, document: str, text: str) -> None:
        """Keep that a document is valid."""
        digest = _hash(document, text)
        self._known.add(digest)
        with contextlib.suppress(OSError):
            self._path.parent.mkdir(parents=True, exist_ok=True)
            with self._path.open("a") as file:  # a short line at the end is one write: processes may add at once
                file.write(f"{digest}\n")


def _hash(document: str, text: str) -> str:
    return sha256(f"{document}\0{text}".encode()).hexdigest()
