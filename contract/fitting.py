"""Whether a value fits a JSON schema, yes or no: schemas become functions once, and each is asked of many values."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

# Returns a schema document by the name in its ``$id``, ``aicf:<name>``.
Load = Callable[[str], Mapping[str, Any]]
# What says nothing of values.
NOTES = frozenset({"$schema", "$id", "$comment", "$defs", "title"})
# Says whether a value fits a schema, or one keyword of it.
_Fit = Callable[[Load, Any], bool]
# By a schema's identity and its document's name; the schema is kept, so that no other gets its identity.
_compiled: dict[tuple[int, str], tuple[Any, _Fit]] = {}
_MAX_COMPILED = 4096


def fits(load: Load, home: str, schema: Any, value: Any) -> bool:
    """Whether a value fits a schema of the document ``home``; raises RecursionError for what is nested too deeply."""
    return _compile(schema, home)(load, value)


def holds(keyword: str, rule: Any, value: Any) -> bool:
    """Whether a value keeps one of the rules that name no other schema; one of a type that the rule is not about does."""
    kinds, test = _SIMPLE[keyword]
    if not isinstance(value, kinds) or (isinstance(value, bool) and bool not in kinds):
        return True
    return test(rule, value)


def _is_same(a: Any, b: Any) -> bool:
    return bool(a == b) and isinstance(a, bool) == isinstance(b, bool)


def _is_unique(values: list[Any]) -> bool:
    return len({json.dumps(x, sort_keys=True) for x in values}) == len(values)


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


TYPES: Mapping[str, Callable[[Any], bool]] = {
    "object": lambda v: isinstance(v, dict),
    "array": lambda v: isinstance(v, list),
    "string": lambda v: isinstance(v, str),
    "boolean": lambda v: isinstance(v, bool),
    "null": lambda v: v is None,
    "number": _is_number,
    "integer": lambda v: _is_number(v) and (isinstance(v, int) or v.is_integer()),
}
# The types of which every value is of a schema's.
_PLAIN: Mapping[str, tuple[type, ...]] = {
    "object": (dict,),
    "array": (list,),
    "string": (str,),
    "boolean": (bool,),
    "null": (type(None),),
    "number": (int, float),
    "integer": (int,),
}
_ANY = (dict, list, str, int, float, bool, type(None))
_NUMBERS = (int, float)
# What must hold of a rule and a value that is of one of these types.
_SIMPLE: Mapping[str, tuple[tuple[type, ...], Callable[[Any, Any], bool]]] = {
    "const": (_ANY, _is_same),
    "enum": (_ANY, lambda r, v: any(_is_same(each, v) for each in r)),
    "minProperties": ((dict,), lambda r, v: len(v) >= r),
    "minItems": ((list,), lambda r, v: len(v) >= r),
    "maxItems": ((list,), lambda r, v: len(v) <= r),
    "uniqueItems": ((list,), lambda r, v: not r or _is_unique(v)),
    "pattern": ((str,), lambda r, v: re.search(r, v) is not None),
    "minLength": ((str,), lambda r, v: len(v) >= r),
    "minimum": (_NUMBERS, lambda r, v: v >= r),
    "maximum": (_NUMBERS, lambda r, v: v <= r),
    "exclusiveMinimum": (_NUMBERS, lambda r, v: v > r),
}


def _compile(schema: Any, home: str) -> _Fit:
    found = _compiled.get((id(schema), home))
    if found is not None:
        return found[1]
    if isinstance(schema, bool):
        return lambda load, value: schema
    fits = _join([_COMPILERS[keyword](rule, schema, home) for keyword, rule in schema.items() if keyword not in NOTES])
    if len(_compiled) >= _MAX_COMPILED:
        _compiled.clear()
    _compiled[id(schema), home] = schema, fits
    return fits


def _join(fits: list[_Fit]) -> _Fit:
    """Return what says whether all of some checks say yes."""
    if len(fits) == 1:
        return fits[0]

    def fit(load: Load, value: Any) -> bool:
        for each in fits:  # noqa: SIM110 # a generator takes longer
            if not each(load, value):
                return False
        return True

    return fit


def _compile_reference(rule: Any, schema: Any, home: str) -> _Fit:
    owner, _, name = rule.partition("#/$defs/")
    owner = owner.removeprefix("aicf:") or home

    def fit(load: Load, value: Any) -> bool:
        document = load(owner)
        return _compile(document["$defs"][name] if name else document, owner)(load, value)

    return fit


def _compile_properties(rule: Any, schema: Any, home: str) -> _Fit:
    fits = {name: _compile(each, home) for name, each in rule.items()}

    def fit(load: Load, value: Any) -> bool:
        if isinstance(value, dict):
            for name, part in value.items():
                known = fits.get(name)
                if known is not None and not known(load, part):
                    return False
        return True

    return fit


def _compile_additional(rule: Any, schema: Any, home: str) -> _Fit:
    known = frozenset(schema.get("properties", {}))
    if rule is False:
        return lambda load, value: not isinstance(value, dict) or value.keys() <= known
    fits = _compile(rule, home)

    def fit(load: Load, value: Any) -> bool:
        if isinstance(value, dict):
            for name, part in value.items():
                if name not in known and not fits(load, part):
                    return False
        return True

    return fit


def _compile_names(rule: Any, schema: Any, home: str) -> _Fit:
    fits = _compile(rule, home)
    return lambda load, value: not isinstance(value, dict) or all(fits(load, name) for name in value)


def _compile_items(rule: Any, schema: Any, home: str) -> _Fit:
    start, fits = len(schema.get("prefixItems", ())), _compile(rule, home)

    def fit(load: Load, value: Any) -> bool:
        if isinstance(value, list):
            for part in value[start:] if start else value:
                if not fits(load, part):
                    return False
        return True

    return fit


def _compile_prefix(rule: Any, schema: Any, home: str) -> _Fit:
    fits = [_compile(each, home) for each in rule]
    return lambda load, value: not isinstance(value, list) or all(fit(load, part) for fit, part in zip(fits, value, strict=False))


def _compile_alternatives(most: int | None) -> Callable[[Any, Any, str], _Fit]:
    def compile_rule(rule: Any, schema: Any, home: str) -> _Fit:
        fits = [_compile(each, home) for each in rule]
        if most is None:
            return lambda load, value: any(fit(load, value) for fit in fits)
        return lambda load, value: 0 < sum(fit(load, value) for fit in fits) <= most

    return compile_rule


def _compile_required(rule: Any, schema: Any, home: str) -> _Fit:
    names = frozenset(rule)
    return lambda load, value: not isinstance(value, dict) or names <= value.keys()


def _compile_type(rule: Any, schema: Any, home: str) -> _Fit:
    names = [rule] if isinstance(rule, str) else rule
    tests = [TYPES[name] for name in names]
    plain = frozenset(kind for name in names for kind in _PLAIN[name])
    # What a document holds is nearly always of these types themselves.
    return lambda load, value: type(value) in plain or any(test(value) for test in tests)


def _compile_simple(keyword: str, rule: Any) -> _Fit:
    kinds, test = _SIMPLE[keyword]
    takes_bool = bool in kinds

    def fit(load: Load, value: Any) -> bool:
        return not isinstance(value, kinds) or (isinstance(value, bool) and not takes_bool) or test(rule, value)

    return fit


_COMPILERS: Mapping[str, Callable[[Any, Any, str], _Fit]] = {
    "$ref": _compile_reference,
    "properties": _compile_properties,
    "additionalProperties": _compile_additional,
    "propertyNames": _compile_names,
    "items": _compile_items,
    "prefixItems": _compile_prefix,
    "allOf": lambda rule, schema, home: _join([_compile(each, home) for each in rule]),
    "anyOf": _compile_alternatives(None),
    "oneOf": _compile_alternatives(1),
    "type": _compile_type,
    "required": _compile_required,
    **{keyword: lambda rule, schema, home, keyword=keyword: _compile_simple(keyword, rule) for keyword in _SIMPLE},  # type: ignore[misc]
}
