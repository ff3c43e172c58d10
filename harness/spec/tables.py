"""Functions of a problem's attributes as tables, for those who cannot call them: C, and readers of the frozen set."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any

from harness.errors import SpecError
from harness.spec.arguments import Attribute, Tensor
from harness.spec.conditions import AttributeValue
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
    sizes = op.problems[0].sizes
    names = [a.name for a in op.attributes]
    values = {
        combination: function(Problem(sizes, dict(zip(names, combination, strict=True))))
        for combination in itertools.product(*(a.choices for a in op.attributes))
    }
    matters = [i for i, a in enumerate(op.attributes) if any(_differs(values, i, a.choices, c) for c in values)]
    rows = {tuple(c[i] for i in matters): value for c, value in values.items()}
    return [{"when": {names[i]: v for i, v in zip(matters, key, strict=True)}, "value": value} for key, value in rows.items()]


def _differs(
    values: Mapping[tuple[AttributeValue, ...], Any], index: int, choices: tuple[AttributeValue, ...], at: tuple[AttributeValue, ...]
) -> bool:
    return any(values[(*at[:index], choice, *at[index + 1 :])] != values[at] for choice in choices)


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
