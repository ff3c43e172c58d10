"""What each document of the frozen set may hold: the format's JSON schemas, in ``frozen/schema``, wherever the set itself lies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import Any

from contract.documents import DocumentError, parse_json, read_plain_file
from contract.errors import BrokenDocument, FrozenError
from contract.known_valid import KnownValid
from contract.layout import SCHEMA_DIR, SCHEMA_VERSION, dump_line, name_schema
from contract.validator import find_fault

# What the schemas of format 1 are: whoever loosens one in the folder loosens no check.
DIGESTS = {
    "event": "a3437ce70fed4289d1fe65bc807402e668a1be0f59c28f3fe6acdc094d6dc468",
    "evidence": "a244e23e7b729f90bc168a95b016af7d3b5c30c7c3f19c7c5c0eaefa4780c838",
    "index": "52610a06b1a994d710dd562118529915733691b3528f64386d6d093f02f6dd47",
    "journal": "b3f1e489edebb6d21ce32b4111317f80173d8e1036aa16850658cca9c1d74748",
    "manifest": "be9702eca1af764a9ab59960494bd9fe10d85cf24e6a6046e8edd090a050ad5c",
    "tree": "3112b7ddd6f7cac555db67f2a604fe2460d9ee7d897a2536f643300b60c02edf",
}
_known: list[KnownValid] = []  # one where it was asked for
# The kinds of lines that an index has.
LINES = ("op", "entry", "median", "survey", "library")


@cache
def load_schema(folder: Path, document: str) -> Mapping[str, Any]:
    """Return a schema; raises :class:`FrozenError` where it cannot be read."""
    try:
        loaded: Mapping[str, Any] = json.loads((folder / name_schema(document)).read_text())
    except (OSError, ValueError) as error:
        raise FrozenError(f"the schemas of the frozen set cannot be read: {error}; `git checkout {folder}` restores them") from error
    return loaded


def find_version_fault(value: Any) -> str:
    """Return "" unless a document says that it is of another format than this version of the project reads."""
    version = value.get("schema") if isinstance(value, dict) else None
    if not isinstance(version, int) or version == SCHEMA_VERSION:
        return ""
    return f"schema: is of format {version}, and this version reads format {SCHEMA_VERSION}: use the version that wrote it"


def find_schema_fault(document: str, value: Any) -> str:
    """Return what is wrong with a document (``index``: one line of it; else a key of ``DIGESTS``), "" where nothing is."""
    if fault := find_version_fault(value):
        return fault
    known = _known[-1] if _known and _known[-1].schemas == SCHEMA_DIR else None
    try:
        text = dump_line(value) if known is not None else ""
        if known is not None and known.has(document, text):
            return ""
        fault = _find_document_fault(document, value)
    except RecursionError:
        return "is nested too deeply"
    if known is not None and not fault:
        known.add(document, text)
    return fault


def remember_valid(cache: Path) -> None:
    """Keep in a folder which documents are valid, and check those no more that are known there."""
    _known[:] = [KnownValid(cache, SCHEMA_DIR)]


def _find_document_fault(document: str, value: Any) -> str:
    if document == "index":
        return _find_row_fault(SCHEMA_DIR, dump_line(value))
    if document == "event":
        return _find_event_fault(value)
    return _find_fault(SCHEMA_DIR, document, value)


def _find_fault(folder: Path, document: str, value: Any) -> str:
    return find_fault(partial(load_schema, folder), document, load_schema(folder, document), value)


def _find_event_fault(event: Any) -> str:
    """Check an event and its rows apart: a row of the index is in several events, and is checked once."""
    bare = dict(event) if isinstance(event, dict) else event
    rows: list[tuple[str, Any]] = []
    for key in ("removed", "added"):
        if isinstance(bare, dict) and isinstance(bare.get(key), list):
            rows += [(f"{key}/{i}", row) for i, row in enumerate(bare[key])]
            bare[key] = []
    folder = SCHEMA_DIR
    if fault := _find_fault(folder, "event", bare):
        return fault
    faults = ((where, _find_row_fault(folder, dump_line(row))) for where, row in rows)
    return next((f"{where}: {fault}" for where, fault in faults if fault), "")


@lru_cache(maxsize=4096)
def _find_row_fault(folder: Path, line: str) -> str:
    row = json.loads(line)
    if not isinstance(row, dict):
        return "is not a JSON object"
    # A line is checked as what it says it is: "none of four" would not say what is wrong with it.
    kind = row.get("kind")
    if kind not in LINES:
        return f"kind: must be one of {', '.join(LINES)}, is {kind!r}"
    return find_fault(partial(load_schema, folder), "index", load_schema(folder, "index")["$defs"][kind], row)


def load_document(path: Path, why: str = "") -> Any:
    """Return a document's value; raises :class:`BrokenDocument` where there is none, ending with ``why`` it is asked for."""
    try:
        return parse_json(read_plain_file(path))
    except FileNotFoundError:
        raise BrokenDocument(path, "missing", "the file is not there", why) from None
    except (OSError, DocumentError) as error:
        raise BrokenDocument(path, "unreadable", str(error), why) from error


def read_document(kind: str, path: Path, why: str = "") -> dict[str, Any]:
    """Return a document (``kind`` is a key of ``DIGESTS``) that its schema allows; raises :class:`BrokenDocument`."""
    value = load_document(path, why)
    if fault := find_schema_fault(kind, value):
        raise BrokenDocument(path, "schema", fault)
    return dict(value)
