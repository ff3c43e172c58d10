"""Validating values against JSON schemas (2020-12, as far as the frozen format uses it), with only Python's standard library.

Whether a value fits is known in a fraction of the time (:mod:`contract.fitting`); only of one that does not is it found out where and why.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

from contract.fitting import NOTES, TYPES, Load, fits, holds

_Check = Callable[["_Place", Any, Any, Any], str]
_MAX_SHOWN = 80


class _Place:
    """Where in a value and among the schema documents a check stands."""

    def __init__(self, load: Load, home: str, path: tuple[str, ...] = ()) -> None:
        self.load = load
        self.home = home
        self.path = path

    def enter(self, *steps: object) -> _Place:
        """Return the place of a part of the value."""
        return _Place(self.load, self.home, (*self.path, *(str(step)[:_MAX_SHOWN] for step in steps)))

    def say(self, text: str) -> str:
        """Return a fault of the value here."""
        return f"{'/'.join(self.path)}: {text}" if self.path else text


def find_fault(load: Load, home: str, schema: Any, value: Any) -> str:
    """Return the first thing in which a value breaks a schema, ``path/of/the/part: what``, "" where nothing does.

    ``home`` names the document that the schema is of: references without one lead there.
    Raises RecursionError for what is nested too deeply.
    """
    if fits(load, home, schema, value):
        return ""
    return _find_fault(_Place(load, home), schema, value)


def _find_fault(place: _Place, schema: Any, value: Any) -> str:
    if isinstance(schema, bool):
        return "" if schema else place.say("is not allowed")
    checks = (_CHECKS[keyword](place, rule, schema, value) for keyword, rule in schema.items() if keyword not in NOTES)
    return next(filter(None, checks), "")


def _first(faults: Iterable[str]) -> str:
    return next(filter(None, faults), "")


def _follow(place: _Place, reference: str, schema: Any, value: Any) -> str:
    owner, _, name = reference.partition("#/$defs/")
    owner = owner.removeprefix("aicf:") or place.home
    document = place.load(owner)
    return _find_fault(_Place(place.load, owner, place.path), document["$defs"][name] if name else document, value)


def _check_properties(place: _Place, rule: Any, schema: Any, value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    return _first(_find_fault(place.enter(k), rule[k], v) for k, v in value.items() if k in rule)


def _check_additional(place: _Place, rule: Any, schema: Any, value: Any) -> str:
    if not isinstance(value, dict):
        return ""
    extra = {k: v for k, v in value.items() if k not in schema.get("properties", {})}
    return _first(_find_fault(place.enter(k), rule, v) for k, v in extra.items())


def _check_names(place: _Place, rule: Any, schema: Any, value: Any) -> str:
    return _first(_find_fault(place, rule, name) for name in value) if isinstance(value, dict) else ""


def _check_items(place: _Place, rule: Any, schema: Any, value: Any) -> str:
    if not isinstance(value, list):
        return ""
    start = len(schema.get("prefixItems", ()))
    return _first(_find_fault(place.enter(i), rule, v) for i, v in enumerate(value[start:], start))


def _check_prefix(place: _Place, rule: Any, schema: Any, value: Any) -> str:
    pairs = enumerate(zip(rule, value, strict=False)) if isinstance(value, list) else ()
    return _first(_find_fault(place.enter(i), r, v) for i, (r, v) in pairs)


def _check_alternatives(most: int | None) -> _Check:
    """Return the check that at least one of some schemas fits, and at most so many."""

    def check(place: _Place, rule: Any, schema: Any, value: Any) -> str:
        num_fitting = sum(fits(place.load, place.home, each, value) for each in rule)
        if num_fitting and (most is None or num_fitting <= most):
            return ""
        words = (
            f"valid under {num_fitting} of the given schemas, and may be under {most}"
            if num_fitting
            else "not valid under any of the given schemas"
        )
        return place.say(f"{_show(value)} is {words}")

    return check


def _check_simple(keyword: str, words: str) -> _Check:
    """Return the check of what must hold of rule and value."""

    def check(place: _Place, rule: Any, schema: Any, value: Any) -> str:
        return "" if holds(keyword, rule, value) else place.say(f"{_show(value)} {words} {rule!r}")

    return check


def _check_required(place: _Place, rule: Any, schema: Any, value: Any) -> str:
    missing = [name for name in rule if name not in value] if isinstance(value, dict) else []
    return place.say(f"{missing[0]!r} is a required property") if missing else ""


def _check_type(place: _Place, rule: Any, schema: Any, value: Any) -> str:
    names = [rule] if isinstance(rule, str) else rule
    if any(TYPES[name](value) for name in names):
        return ""
    return place.say(f"{_show(value)} is not of type {', '.join(map(repr, names))}")


def _show(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= _MAX_SHOWN else f"{text[:_MAX_SHOWN]}..."


_CHECKS: Mapping[str, _Check] = {
    "$ref": _follow,
    "properties": _check_properties,
    "additionalProperties": _check_additional,
    "propertyNames": _check_names,
    "items": _check_items,
    "prefixItems": _check_prefix,
    "allOf": lambda place, rule, schema, value: _first(_find_fault(place, each, value) for each in rule),
    "anyOf": _check_alternatives(None),
    "oneOf": _check_alternatives(1),
    "type": _check_type,
    "const": _check_simple("const", "is not"),
    "enum": _check_simple("enum", "is not one of"),
    "required": _check_required,
    "minProperties": _check_simple("minProperties", "has too few keys, the least is"),
    "minItems": _check_simple("minItems", "is too short, the least is"),
    "maxItems": _check_simple("maxItems", "is too long, the most is"),
    "uniqueItems": _check_simple("uniqueItems", "has an item twice, and unique items are"),
    "pattern": _check_simple("pattern", "does not match"),
    "minLength": _check_simple("minLength", "is too short, the least is"),
    "minimum": _check_simple("minimum", "is less than the minimum of"),
    "maximum": _check_simple("maximum", "is more than the maximum of"),
    "exclusiveMinimum": _check_simple("exclusiveMinimum", "is less than or equal to the minimum of"),
}
