"""Validation of the frozen set's documents by the project's own JSON schemas, ``frozen/schema``, wherever the set lies."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

from aicf.errors import FrozenError
from device.settings import find_project_root

FORMAT = 1
LINES = ("op", "entry", "median", "survey")
_DOCUMENTS = ("index", "manifest", "tree")


@cache
def _load_validators(folder: Path) -> dict[str, Any]:
    from jsonschema import Draft202012Validator
    from referencing import Registry, Resource

    try:
        schemas = {name: json.loads((folder / f"{name}.schema.json").read_text()) for name in _DOCUMENTS}
    except (OSError, ValueError) as error:
        raise FrozenError(f"{folder}: the schemas cannot be read: {error}; `git checkout {folder}` restores them") from error
    registry: Any = Registry().with_resources((s["$id"], Resource.from_contents(s)) for s in schemas.values())
    made = {kind: Draft202012Validator(schemas[kind], registry=registry) for kind in ("manifest", "tree")}
    for kind in LINES:  # a line is held against what it says it is: "none of four" would not say what is wrong
        made[kind] = Draft202012Validator({"$ref": f"aicf:index#/$defs/{kind}"}, registry=registry)
    return made


def check_version(value: Any, where: str) -> None:
    """Raise :class:`FrozenError` for a document of another format than this version reads, whatever else it may say."""
    version = value.get("schema", FORMAT) if isinstance(value, Mapping) else FORMAT
    if isinstance(version, int) and version != FORMAT:
        raise FrozenError(f"{where}: schema: is of format {version}, and this version reads format {FORMAT}: use the version that wrote it")


def check_document(kind: str, value: Any, where: str) -> None:
    """Raise :class:`FrozenError` naming place, field and fault unless ``value`` is a valid manifest, tree or line of the index."""
    if not isinstance(value, Mapping):
        raise FrozenError(f"{where}: is no JSON object")
    check_version(value, where)
    validator = _load_validators(find_project_root() / "frozen" / "schema")[kind]
    try:
        fault = min(validator.iter_errors(value), key=lambda e: [str(p) for p in e.absolute_path], default=None)
    except RecursionError:
        raise FrozenError(f"{where}: is nested too deeply") from None
    if fault is not None:
        field = "/".join(map(str, fault.absolute_path))
        message = fault.message if len(fault.message) <= 200 else fault.message[:200] + "..."
        raise FrozenError(f"{where}: {field + ': ' if field else ''}{message}")
