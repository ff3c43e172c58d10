"""A table of the decision core as C text, for the deployed library."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Iterable
from typing import Any

from contract import decision_structs as c
from contract.decision_tables import DecisionTable

_SCALARS = {c.INT32: "int32_t", c.DOUBLE: "double"}


def render_table(name: str, table: DecisionTable) -> str:
    """Return the definition of ``static const AicfTable <name>`` and of the arrays that it points to."""
    parts, fields = [], []
    for key, kind in c.LISTS.items():
        rows = table.lists[key]
        if not rows:
            continue  # a list that is left out is NULL, with a count of 0
        # Errors and weights are lists of rows of equal length.
        width = {"weights": c.NUM_TERMS, "errors": len(table.kernels)}.get(key, 1)
        lines = [", ".join(map(_render, rows[i : i + width])) for i in range(0, len(rows), width)]
        parts.append(_define(f"{_SCALARS.get(kind, kind.__name__)} {name}_{key}[]", lines))
        fields.append(f".{key} = {name}_{key}")
    numbers = [f".{key} = {value}" for key, value in table.numbers.items() if value]
    facts = [f".l2_bytes_per_s = {table.l2_bytes_per_s!r}", f".surveyed = {_render(table.fill_mask(table.surveyed))}"]
    return "".join([*parts, _define(f"AicfTable {name}", [*numbers, *facts, *fields])])


def _define(what: str, lines: Iterable[str]) -> str:
    return f"static const {what} = {{\n{''.join(f'    {line},{chr(10)}' for line in lines)}}};\n"


def _render(value: Any) -> str:
    """Return a value as a C initialiser; zeros at the end of a list are what C fills in."""
    if isinstance(value, ctypes.Structure):
        return f"{{{', '.join(_render(getattr(value, each[0])) for each in value._fields_)}}}"
    if isinstance(value, ctypes.Array):
        texts = [_render(each) for each in value]
        while len(texts) > 1 and texts[-1] in ("0", "0.0"):
            texts.pop()
        return f"{{{', '.join(texts)}}}"
    if isinstance(value, float):
        return "NAN" if math.isnan(value) else repr(value)
    return f"{value:#x}u" if value >= 2**63 else str(int(value))
