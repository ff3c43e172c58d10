"""Functions of a problem's attributes as tables, for those who cannot call them: C, and readers of the frozen set."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from harness.errors import SpecError
from harness.spec.arguments import Attribute, Tensor
from harness.spec.op import Op
from harness.spec.problem import Problem

Table = list[dict[str, Any]]


def list_sizes(op: Op) -> list[str]:
    """Return the names of an op's sizes, in the order of its problems."""
    return list(dict.fromkeys(s for p in op.problems for s in p.sizes))


def tabulate(op: Op, function: Callable[[Problem], Any]) -> Table:
    """Return a function of a problem's attributes as rows ``{"when": {attribute: value}, "value": ...}``, of which exactly one fits.

    Rows name those attributes alone that the function depends on. Its value must not depend on the sizes.
    """
    values = [function(problem) for problem in op.settings]
    known: list[Any] = []
    numbers = np.array([_number(known, value) for value in values]).reshape([len(a.choices) for a in op.attributes])
    matters = [i for i in range(numbers.ndim) if (numbers != numbers.take([0], axis=i)).any()]
    names = [op.attributes[i].name for i in matters]
    rows = {tuple(p.attributes[n] for n in names): value for p, value in zip(op.settings, values, strict=True)}
    return [{"when": dict(zip(names, key, strict=True)), "value": value} for key, value in rows.items()]


def _number(known: list[Any], value: Any) -> int:
    """Return the place of a value among those that are known, where it is put if it is new."""
    if value not in known:
        known.append(value)
    return known.index(value)


def find_presence(op: Op, attribute: Attribute) -> Tensor | None:
    """Return the optional tensor that is there exactly where a switch is on, None where there is none."""
    for tensor in op.tensors:
        table = tabulate(op, tensor.present)
        if len(table) == 2 and all(row["when"] == {attribute.name: row["value"]} for row in table):
            return tensor
    return None


def find_dtype_source(op: Op, attribute: Attribute) -> Tensor:
    """Return the tensor whose dtype is the attribute's value; raises :class:`SpecError` where none is."""
    for tensor in op.tensors:
        table = tabulate(op, tensor.resolve_dtype)
        always = all(row["value"] for row in tabulate(op, tensor.present))
        if always and all(row["when"] == {attribute.name: row["value"]} for row in table):
            return tensor
    raise SpecError(
        f"op {op.name}: attribute {attribute.name} is not passed, and is neither the presence of a tensor nor the dtype of one that is "
        "always there; pass it, or let a tensor tell it"
    )
