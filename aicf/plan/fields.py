"""Whether what was read from a file has the types that its dataclass asks for."""

from __future__ import annotations

import types
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any, ClassVar, TypeVar, Union, get_args, get_origin, get_type_hints

T = TypeVar("T")


def require_fields(made: T) -> T:
    """Return a dataclass as it is; raises TypeError naming a field whose value is not of its type."""
    kind: Any = type(made)
    for name, hint in _list_hints(kind):
        value = getattr(made, name)
        if not _fits(value, hint):
            raise TypeError(f"{name}: {str(value)[:40]!r} is not of type {hint if get_origin(hint) else hint.__name__}")
    return made


@cache
def _list_hints(kind: Any) -> tuple[tuple[str, Any], ...]:
    """Return names and types of what is read; what takes no part in comparisons is not in a file."""
    hints = get_type_hints(kind)
    return tuple(
        (field.name, hints[field.name]) for field in fields(kind) if field.compare and get_origin(hints[field.name]) is not ClassVar
    )


def _fits(value: Any, hint: Any) -> bool:
    """Say whether a value of JSON, with tuples for lists, fits a type; a whole number is a number too, and a truth value is neither."""
    if hint is Any:
        return True
    origin, inner = get_origin(hint), get_args(hint)
    if origin in (Union, types.UnionType):
        return any(_fits(value, each) for each in inner)
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        expected = inner[:1] * len(value) if inner[-1] is Ellipsis else inner
        return len(value) == len(expected) and all(map(_fits, value, expected))
    if origin is Mapping:
        return isinstance(value, Mapping) and all(_fits(k, inner[0]) and _fits(v, inner[1]) for k, v in value.items())
    if hint in (int, float):
        return isinstance(value, (int, float) if hint is float else int) and not isinstance(value, bool)
    return isinstance(value, hint)
