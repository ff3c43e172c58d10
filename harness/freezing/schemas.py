"""Validation of what is read from the frozen set, by the JSON schemas that lie in it."""

from __future__ import annotations

import json
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from harness.errors import FrozenError
from harness.freezing.layout import SCHEMA, SCHEMA_VERSION, dump_line, find_frozen_dir

# What the schemas of format 1 are: whoever loosens one in the folder loosens no check.
DIGESTS = {
    "event": "a3437ce70fed4289d1fe65bc807402e668a1be0f59c28f3fe6acdc094d6dc468",
    "evidence": "a244e23e7b729f90bc168a95b016af7d3b5c30c7c3f19c7c5c0eaefa4780c838",
    "index": "6cdf60df7b2fdfb5c4d176bf191a387bdb82d2d698ee33f9a97f02ea826fa081",
    "journal": "494e405257ff1b282ad86f765099397661cf2120627543722a2b4aedad7bd492",
    "manifest": "4c6ac40bc5a45765626c07aa568f0c69b8b817ca4f8e84a97820fa01efa1e1ba",
    "tree": "46579b0c33c31ae7ee3f2d3e35cf200d5047f8537b38b26987cdba8d4c6ddc37",
}


@cache
def _load_validators(folder: Path) -> dict[str, Draft202012Validator]:
    try:
        schemas = {name: json.loads((folder / f"{name}.schema.json").read_text()) for name in DIGESTS}
    except (OSError, ValueError) as error:
        raise FrozenError(f"the schemas of the frozen set cannot be read: {error}; `git checkout {folder}` restores them") from error
    registry: Registry[Any] = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in schemas.values())
    return {name: Draft202012Validator(schema, registry=registry) for name, schema in schemas.items()}


def find_version_fault(value: Any) -> str:
    """Return "" unless a document says that it is of another format than this version of the project reads."""
    version = value.get("schema") if isinstance(value, dict) else None
    if not isinstance(version, int) or version == SCHEMA_VERSION:
        return ""
    return f"is of format {version}, and this version reads format {SCHEMA_VERSION}: use the version of the project that wrote it"


def find_schema_fault(document: str, value: Any, folder: Path | None = None) -> str:
    """Return what is wrong with a document (``index``: one line of it; else a key of ``DIGESTS``), "" where nothing is."""
    if fault := find_version_fault(value):
        return fault
    place = folder or find_frozen_dir() / SCHEMA
    try:
        if document == "index":
            return _find_row_fault(place, dump_line(value))
        if document == "event":
            return _find_event_fault(place, value)
        return _find_fault(_load_validators(place)[document], value)
    except RecursionError:
        return "is nested too deeply"


def _find_event_fault(folder: Path, event: Any) -> str:
    """Check an event and its rows apart: a row of the index is in several events, and is checked once."""
    bare = dict(event) if isinstance(event, dict) else event
    rows: list[tuple[str, Any]] = []
    for key in ("removed", "added"):
        if isinstance(bare, dict) and isinstance(bare.get(key), list):
            rows += [(f"{key}/{i}", row) for i, row in enumerate(bare[key])]
            bare[key] = []
    if fault := _find_fault(_load_validators(folder)["event"], bare):
        return fault
    faults = ((where, _find_row_fault(folder, dump_line(row))) for where, row in rows)
    return next((f"{where}: {fault}" for where, fault in faults if fault), "")


@lru_cache(maxsize=4096)
def _find_row_fault(folder: Path, line: str) -> str:
    row = json.loads(line)
    validator = _load_validators(folder)["index"]
    # A line is checked as what it says it is: "none of four" would not say what is wrong with it.
    if isinstance(row, dict) and row.get("kind") in ("op", "entry", "median", "survey"):
        validator = validator.evolve(schema={"$ref": f"aicf:index#/$defs/{row['kind']}"})
    return _find_fault(validator, row)


def _find_fault(validator: Draft202012Validator, value: Any) -> str:
    error = next(iter(sorted(validator.iter_errors(value), key=lambda e: list(map(str, e.absolute_path)))), None)
    if error is None:
        return ""
    where = "/".join(map(str, error.absolute_path))
    message = error.message if len(error.message) <= 200 else error.message[:200] + "..."
    return f"{where + ': ' if where else ''}{message}"
