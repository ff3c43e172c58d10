"""What is wrong with a row in a file of records, in the terms of that file, which another program or a later version may have written."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from sqlalchemy import JSON, ColumnElement

from harness.records.tables import Environment, Result, Run

# Samples and clocks: lists of numbers in a file, bytes in the database.
BLOBS = ("samples", "clocks")
# Keys of the database that a row is from, and what it is joined with.
OWN_KEYS = frozenset({"id", "run_id", "environment_id", "run", "environment"})

_WORDS = {str: "text", int: "a whole number", bool: "true or false", dict: "an object"}


def find_row_fault(row: Any) -> str:
    """Return what is wrong with a result as :meth:`harness.records.tables.Result.to_json` gives it, "" where nothing is."""
    for where, table in (("", Result), ("run", Run), ("run.environment", Environment)):
        part = row
        for name in filter(None, where.split(".")):
            part = part.get(name)
        if not isinstance(part, Mapping):
            return f"{where or 'it'} is not an object"
        prefix = f"{where}." if where else ""
        columns = {c.name: c for c in table.__table__.columns if c.name not in OWN_KEYS}
        if unknown := sorted(set(part) - set(columns) - OWN_KEYS):
            return f"{prefix}{unknown[0]} is not known to this version of the project: use the version that wrote the file"
        for name, column in columns.items():
            if name not in part:
                if not column.nullable and column.server_default is None:
                    return f"{prefix}{name} is missing"
            elif name in BLOBS:
                if not _are_numbers(part[name]):
                    return f"{prefix}{name} must be a list of numbers"
                # A clock may be unknown, a time that was taken is one.
                if name == "samples" and not _is_finite(part[name]):
                    return f"{prefix}{name} must be finite numbers"
            elif type(part[name]) is not (kind := _find_kind(column)):
                return f"{prefix}{name} must be {_WORDS[kind]}"
            elif not _is_finite(part[name]):
                return f"{prefix}{name} holds NaN or infinity, which stand for no measurement"
    return ""


def _find_kind(column: ColumnElement[Any]) -> type[Any]:
    return dict if isinstance(column.type, JSON) else column.type.python_type


def _is_finite(value: Any) -> bool:
    """Return whether all numbers in plain values are finite."""
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or math.isfinite(value)


def _are_numbers(values: Any) -> bool:
    if values is None:
        return True
    return isinstance(values, list) and all(type(v) in (int, float) for v in values)
