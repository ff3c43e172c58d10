"""Validation of what is read from the frozen set, by the JSON schemas that lie in it."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from referencing import Registry, Resource

from harness.documents import parse_json
from harness.errors import FrozenError
from harness.freezing.layout import SCHEMA, SCHEMA_VERSION, find_frozen_dir

_DOCUMENTS = ("index", "manifest", "event", "evidence")


@cache
def _load_validators(folder: Path) -> dict[str, Draft202012Validator]:
    try:
        schemas = {name: parse_json((folder / f"{name}.schema.json").read_text()) for name in _DOCUMENTS}
    except (OSError, ValueError) as error:
        raise FrozenError(f"the schemas of the frozen set cannot be read: {error}; `git checkout {folder}` restores them") from error
    registry: Registry[Any] = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in schemas.values())
    return {name: Draft202012Validator(schema, registry=registry) for name, schema in schemas.items()}


def find_version_fault(value: Any) -> str:
    """Return "" unless a document says that it is of another format than this version of the project reads."""
    version = value.get("schema") if isinstance(value, dict) else None
    if version is None or version == SCHEMA_VERSION:
        return ""
    return f"is of format {version}, and this version reads format {SCHEMA_VERSION}: use the version of the project that wrote it"


def find_schema_fault(document: str, value: Any, folder: Path | None = None) -> str:
    """Return what is wrong with a document (``index``: one line of it, ``manifest``, ``event``, ``evidence``), "" where nothing is."""
    if fault := find_version_fault(value):
        return fault
    # A line of the index is checked as what it says it is: "none of four" would not say what is wrong with it.
    validator = _load_validators(folder or find_frozen_dir() / SCHEMA)[document]
    if document == "index" and isinstance(value, dict) and value.get("kind") in ("op", "entry", "median", "survey"):
        validator = validator.evolve(schema={"$ref": f"aicf:index#/$defs/{value['kind']}"})
    error = next(iter(sorted(validator.iter_errors(value), key=lambda e: list(map(str, e.absolute_path)))), None)
    if error is None:
        return ""
    where = "/".join(map(str, error.absolute_path))
    message = error.message if len(error.message) <= 200 else error.message[:200] + "..."
    return f"{where + ': ' if where else ''}{message}"
