"""Conditions and costs of the frozen set as C expressions over a call's ``p`` (its Params) and ``q`` (its sizes and attributes)."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from typing import Any

from deploy.errors import DeployError
from deploy.selection import DeployedOp, Row, find_named


class Names:
    """Where sizes, attributes and tensors of an op are found in C. Sizes and attributes are numbered in the order of their names."""

    def __init__(self, op: DeployedOp) -> None:
        interface = op.interface
        self.op = op
        self.sizes = sorted(interface["sizes"])
        self.attributes = sorted(interface["attributes"], key=lambda a: str(a["name"]))
        self.tensors = {t["name"]: t for t in interface["tensors"]}

    def find_code(self, attribute: str, value: Any) -> int:
        """Return the number of an attribute's value: its place among the choices."""
        row = self.find_attribute(attribute)
        for i, choice in enumerate(row["choices"]):
            if choice == value and isinstance(choice, bool) == isinstance(value, bool):
                return i
        raise DeployError(f"{self.op.name}: attribute {attribute} has no choice {value!r}")

    def find_attribute(self, name: str) -> Row:
        """Return an attribute's row."""
        return find_named(self.attributes, name, f"{self.op.name}: attributes")

    def find_place(self, attribute: str) -> int:
        """Return an attribute's number."""
        return self.attributes.index(self.find_attribute(attribute))

    def encode(self, attributes: Mapping[str, Any]) -> list[int]:
        """Return the numbers of all attributes' values."""
        return [self.find_code(a["name"], attributes[a["name"]]) for a in self.attributes]


def holds(row: Row, sizes: Mapping[str, int], attributes: Mapping[str, Any]) -> bool:
    """Return whether a condition of an axis holds for a problem that has no addresses; one on a tensor is none that an axis may have."""
    if "attribute" in row:
        return attributes[row["attribute"]] in row["in"]
    if "count" not in row:
        raise DeployError(f"{json.dumps(dict(row))}: an axis may ask for attributes and counts alone")
    count = math.prod(-(-sizes[name] // step) for name, step in row["count"].items())
    return bool(row.get("min", 1) <= count <= row.get("max", count) and count % row.get("multiple", 1) == 0)


def render_condition(names: Names, row: Row) -> str:
    """Return a condition as a C expression."""
    if "attribute" in row:
        place = names.find_place(row["attribute"])
        return "(" + " || ".join(f"q->attributes[{place}] == {names.find_code(row['attribute'], v)}" for v in row["in"]) + ")"
    if "count" in row:
        return _render_count(names, row)
    if "tensor" in row:
        return _render_rows(names, row)
    raise DeployError(f"{json.dumps(dict(row))} is no condition that this version knows")


def render_product(names: Names, steps: Mapping[str, int]) -> str:
    """Return the product of sizes over steps, each rounded up, as a C expression."""
    factors = []
    for name in sorted(steps):
        size = f"q->sizes[{names.sizes.index(name)}]"
        factors.append(size if steps[name] == 1 else f"divide_up({size}, {steps[name]})")
    text = factors[0]
    for factor in factors[1:]:
        text = f"multiply({text}, {factor})"
    return text


def _render_count(names: Names, row: Row) -> str:
    count = render_product(names, row["count"])
    # Sizes are at least 1, which was checked, and so is their product.
    parts = [f"{count} {sign} {row[key]}" for key, sign in (("min", ">="), ("max", "<=")) if key in row]
    if "multiple" in row:
        parts.append(f"{count} % {row['multiple']} == 0")
    return "(" + (" && ".join(parts) or "true") + ")"


def _render_rows(names: Names, row: Row) -> str:
    tensor = names.tensors[row["tensor"]]
    parts = []
    if "address" in row:
        parts.append(f"(uintptr_t)p->{tensor['field']} % {row['address']} == 0")
    if tensor["stride"] is not None:
        if "stride" in row:
            parts.append(f"p->{tensor['stride']} % {row['stride']} == 0")
        if "max_stride" in row:
            parts.append(f"p->{tensor['stride']} <= {row['max_stride']}")
    return f"(p->{tensor['field']} == NULL || ({' && '.join(parts) or 'true'}))"


def render_all(names: Names, rows: Sequence[Row]) -> str:
    """Return whether all conditions hold, as a C expression."""
    return "\n           && ".join(render_condition(names, r) for r in rows) or "true"


def render_when(names: Names, when: Mapping[str, Any]) -> str:
    """Return whether a table's row fits a call, as a C expression."""
    return " && ".join(f"q->attributes[{names.find_place(n)}] == {names.find_code(n, v)}" for n, v in sorted(when.items())) or "true"


def render_sum(names: Names, terms: Sequence[Sequence[Any]]) -> str:
    """Return a sum of products of sizes as a C expression of type double."""
    parts = []
    for coefficient, sizes in terms:
        factors = [f"(double)q->sizes[{names.sizes.index(s)}]" for s in sizes]
        parts.append(" * ".join([repr(float(coefficient)), *factors]))
    return " + ".join(parts) or "0.0"
