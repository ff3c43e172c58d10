"""Reading the frozen set's documents with Python's standard library alone: strict JSON, held against the project's JSON schemas.

What is read here becomes C and CMake text and flags of a compiler, so that nothing comes in that its schema does not allow.
"""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from typing import Any

SCHEMAS = Path(__file__).resolve().parents[1] / "frozen" / "schema"
FORMAT = 1
_TYPES: dict[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "integer": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool) and v == int(v),
}
_NOTES = frozenset({"$schema", "$id", "$comment", "$defs", "title"})


class DeployError(RuntimeError):
    """What was asked for cannot be built from the frozen set; the message says what to do."""


def read_plain_file(path: Path) -> bytes:
    """Return a file's content; raises :class:`DeployError` where it is not there, or is a link, a pipe or a device."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
        with os.fdopen(handle, "rb") as file:
            if stat.S_ISREG(os.fstat(handle).st_mode):
                return file.read()
    except OSError as error:
        raise DeployError(f"{path} cannot be read: {error.strerror}; `python -m harness frozen verify` says more") from error
    raise DeployError(f"{path} is not a plain file; `python -m harness frozen verify` says more")


def read_document(kind: str, content: bytes, where: str) -> Any:
    """Return a document's value; ``kind`` is a schema's name (``index``: one line). Raises :class:`DeployError` naming place and fault."""
    try:
        value = json.loads(content.decode(), object_pairs_hook=_make_object, parse_constant=_refuse, parse_float=_read_float)
        version = value.get("schema", FORMAT) if isinstance(value, dict) else FORMAT
        if isinstance(version, int) and version != FORMAT:
            raise DeployError(f"{where}: is of format {version}, and this version reads format {FORMAT}: use the version that wrote it")
        fault = find_fault(_load(kind), value)
    except RecursionError:
        raise DeployError(f"{where}: is nested too deeply") from None
    except ValueError as error:
        raise DeployError(f"{where}: is not JSON: {error}") from None
    if fault:
        raise DeployError(f"{where}: {fault}")
    return value


def _make_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    if len(dict(pairs)) != len(pairs):
        raise ValueError("a key is given twice")
    return dict(pairs)


def _refuse(name: str) -> Any:
    raise ValueError(f"{name} is not a number of JSON")


def _read_float(text: str) -> float:
    value = float(text)
    if math.isinf(value):
        raise ValueError(f"{text[:40]} is too large a number")
    return value


@cache
def _load(kind: str) -> Mapping[str, Any]:
    loaded: Mapping[str, Any] = json.loads((SCHEMAS / f"{kind}.schema.json").read_text())
    return loaded


def find_fault(schema: Any, value: Any, at: str = "", home: str = "index") -> str:
    """Return what of a JSON schema (2020-12, as far as the project's go) a value breaks, "" where nothing. ``home`` has its ``$defs``."""
    if isinstance(schema, bool):
        return "" if schema else f"{at}: is not allowed"
    home = str(schema.get("$id", f"aicf:{home}")).removeprefix("aicf:")
    if isinstance(value, dict) and "kind" in value and schema.get("$id") == "aicf:index":
        kind = value["kind"] if value["kind"] in ("op", "entry", "median", "survey") else "entry"
        return find_fault({"$ref": f"#/$defs/{kind}"}, value, at, home)  # "none of four" would not say what is wrong
    for keyword, rule in schema.items():
        if keyword in _NOTES:
            continue
        if fault := _RULES[keyword](rule, schema, value, at, home):
            return fault
    return ""


def _follow(reference: str, schema: Any, value: Any, at: str, home: str) -> str:
    owner, _, name = reference.partition("#/$defs/")
    owner = owner.removeprefix("aicf:") or home
    return find_fault(_load(owner)["$defs"][name] if name else _load(owner), value, at, owner)


def _check_properties(rule: Any, schema: Any, value: Any, at: str, home: str) -> str:
    if not isinstance(value, dict):
        return ""
    return next(filter(None, (find_fault(rule[k], v, f"{at}/{k}", home) for k, v in value.items() if k in rule)), "")


def _check_additional(rule: Any, schema: Any, value: Any, at: str, home: str) -> str:
    if not isinstance(value, dict):
        return ""
    extra = {k: v for k, v in value.items() if k not in schema.get("properties", {})}
    return next(filter(None, (find_fault(rule, v, f"{at}/{k}"[:200], home) for k, v in extra.items())), "")


def _check_names(rule: Any, schema: Any, value: Any, at: str, home: str) -> str:
    names = value if isinstance(value, dict) else ()
    return next(filter(None, (find_fault(rule, name, f"{at}: name {name[:80]!r}", home) for name in names)), "")


def _check_items(rule: Any, schema: Any, value: Any, at: str, home: str) -> str:
    rest = value[len(schema.get("prefixItems", ())) :] if isinstance(value, list) else ()
    return next(filter(None, (find_fault(rule, v, f"{at}/{i}", home) for i, v in enumerate(rest))), "")


def _check_prefix(rule: Any, schema: Any, value: Any, at: str, home: str) -> str:
    pairs = zip(rule, value, strict=False) if isinstance(value, list) else ()
    return next(filter(None, (find_fault(r, v, f"{at}/{i}", home) for i, (r, v) in enumerate(pairs))), "")


def _count(rule: Any, value: Any, at: str, home: str) -> int:
    return sum(not find_fault(each, value, at, home) for each in rule)


def _is_same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _check_simple(kinds: tuple[type, ...], holds: Callable[[Any, Any], bool], words: str) -> Callable[[Any, Any, Any, str, str], str]:
    """Return a check of values of some types, by what must hold of rule and value."""

    def check(rule: Any, schema: Any, value: Any, at: str, home: str) -> str:
        applies = isinstance(value, kinds) and not (isinstance(value, bool) and bool not in kinds)
        return f"{at}: {repr(value)[:80]} {words} {rule}" if applies and not holds(rule, value) else ""

    return check


_ANY = (dict, list, str, int, float, bool, type(None))
_RULES: dict[str, Callable[[Any, Any, Any, str, str], str]] = {
    "$ref": _follow,
    "properties": _check_properties,
    "additionalProperties": _check_additional,
    "propertyNames": _check_names,
    "items": _check_items,
    "prefixItems": _check_prefix,
    "allOf": lambda rule, schema, value, at, home: next(filter(None, (find_fault(r, value, at, home) for r in rule)), ""),
    "anyOf": lambda rule, schema, value, at, home: "" if _count(rule, value, at, home) else f"{at}: {repr(value)[:80]} fits nothing",
    "oneOf": lambda rule, schema, value, at, home: "" if _count(rule, value, at, home) == 1 else f"{at}: does not fit one thing",
    "type": _check_simple(_ANY, lambda r, v: any(_TYPES[t](v) for t in ([r] if isinstance(r, str) else r)), "is not of type"),
    "const": _check_simple(_ANY, _is_same, "is not"),
    "enum": _check_simple(_ANY, lambda r, v: any(_is_same(each, v) for each in r), "is not one of"),
    "required": _check_simple((dict,), lambda r, v: all(name in v for name in r), "has not all of"),
    "minProperties": _check_simple((dict,), lambda r, v: len(v) >= r, "has fewer keys than"),
    "minItems": _check_simple((list,), lambda r, v: len(v) >= r, "is shorter than"),
    "maxItems": _check_simple((list,), lambda r, v: len(v) <= r, "is longer than"),
    "uniqueItems": _check_simple(
        (list,), lambda r, v: not r or len({json.dumps(x, sort_keys=True) for x in v}) == len(v), "repeats itself:"
    ),
    "pattern": _check_simple((str,), lambda r, v: re.search(r, v) is not None, "does not match"),
    "minLength": _check_simple((str,), lambda r, v: len(v) >= r, "is shorter than"),
    "minimum": _check_simple((int, float), lambda r, v: v >= r, "is less than"),
    "maximum": _check_simple((int, float), lambda r, v: v <= r, "is more than"),
    "exclusiveMinimum": _check_simple((int, float), lambda r, v: v > r, "is not more than"),
}
