"""The tables of surveys in the C dispatcher: weights of each kernel's model, and by group the problems that set it right."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import Any

from deploy.conditions import Names
from deploy.errors import DeployError
from deploy.selection import Row

_AXES = ("dtypes", "layout")
_NUM_TERMS = 5


def render_surveys(names: Names) -> str:
    """Return the definition of ``<op>_surveys``, one row an architecture; without surveys it holds one row that is never asked."""
    op = names.op
    tables, rows = [], []
    for number, survey in enumerate(op.surveys):
        prefix = f"{op.name}_survey{number}"
        of_arch = [k.manifest["arch"] == survey["arch"] for k in op.kernels]
        known = [of and k.name in survey["weights"] for of, k in zip(of_arch, op.kernels, strict=True)]
        weights = [survey["weights"][k.name] if has else [0.0] * _NUM_TERMS for has, k in zip(known, op.kernels, strict=True)]
        tables.append(_render_table(f"double {prefix}_weights[][NUM_TERMS]", (_list(map(_number, w)) for w in weights)))
        points = [(group, point) for group in survey["groups"] for point in group["points"]]
        if points:
            errors = [_list(map(_number, _list_errors(names, known, *p))) for p in points]
            tables.append(_render_table(f"double {prefix}_errors[][{len(op.kernels)}]", errors))
            places = [_render_point(names, *p, f"{prefix}_errors[{i}]") for i, p in enumerate(points)]
            tables.append(_render_table(f"Point {prefix}_points[]", places))
        listed = f"{prefix}_points" if points else "NULL"
        rows.append(f"{{{_bits(of_arch)}, {_bits(known)}, {prefix}_weights, {listed}, {len(points)}}}")
    tables.append(_render_table(f"Survey {op.name}_surveys[]", rows or ["{0, 0, NULL, NULL, 0}"]))
    return "".join(tables)


def _list_errors(names: Names, known: list[bool], group: Row, point: list[Any]) -> list[float | None]:
    """Return a point's errors by kernel of the library, None where the kernel was not timed or has no model."""
    num_sizes, kernels = len(names.sizes), group["kernels"]
    if len(point) != num_sizes + len(kernels):
        raise DeployError(f"{names.op.name}: survey: a point of {group['group']} must have {num_sizes} sizes and {len(kernels)} errors")
    if any(size is None or size < 1 for size in point[:num_sizes]):
        raise DeployError(f"{names.op.name}: survey: a point of {group['group']} has sizes of at least 1, not {point[:num_sizes]}")
    errors = dict(zip(kernels, point[num_sizes:], strict=True))
    return [errors.get(k.name) if has else None for has, k in zip(known, names.op.kernels, strict=True)]


def _render_point(names: Names, group: Row, point: list[Any], errors: str) -> str:
    classes = [names.op.find_class(axis, name) for axis, name in zip(_AXES, group["group"].split("/"), strict=True)]
    logs = [math.log2(size).hex() for size in point[: len(names.sizes)]]
    return f"{{{_list(map(str, classes))}, {_list(logs)}, {errors}}}"


def _render_table(what: str, rows: Iterable[str]) -> str:
    return f"static const {what} = {{\n{''.join(f'    {row},{chr(10)}' for row in rows)}}};\n"


def _bits(flags: list[bool]) -> str:
    return f"{sum(1 << i for i, flag in enumerate(flags) if flag):#x}u"


def _number(value: float | None) -> str:
    return "NAN" if value is None else repr(float(value))


def _list(values: Iterable[str]) -> str:
    return "{" + ", ".join(values) + "}"
