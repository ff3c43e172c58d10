"""Which bucket a problem is in: one class of each axis that the op declares, and the architecture."""

from __future__ import annotations

from typing import Any

from contract.axes import ANY, Axes
from harness.errors import FrozenError
from harness.spec import Op, Problem
from harness.spec.conditions import Axis, OneOf


def list_axes(op: Op) -> tuple[Axis, ...]:
    """Return the op's axes in order. One with no axes but the common ones has all of these, what it leaves out with the class ``any``.

    An op that declares none, and has attributes, gets an axis ``epilogue`` for its first attribute: a bucket a value.
    """
    declared = {axis.name: axis for axis in op.axes}
    if not declared and op.attributes:
        first = op.attributes[0]
        declared["epilogue"] = Axis("epilogue", {_name_value(v): (OneOf(first.name, (v,)),) for v in first.choices})
    return tuple(declared.get(name, Axis(name, {ANY: ()})) for name in Axes.of([axis.to_json() for axis in op.axes]).names)


def _name_value(value: object) -> str:
    return "".join(c if c.isalnum() else "_" for c in str(value).lower())


def find_bucket(op: Op, problem: Problem, arch: str) -> dict[str, str]:
    """Return the bucket of a problem; raises :class:`FrozenError` where an axis has no class for it."""
    facts = op.find_facts(problem)
    bucket = {"arch": arch}
    for axis in list_axes(op):
        name = axis.find_class(facts)
        if name is None:
            raise FrozenError(
                f"op {op.name}: axis {axis.name} has no class for problem {problem.name}; its last class should ask for nothing"
            )
        bucket[axis.name] = name
    return bucket


def make_fallback_bucket(op: Op, arch: str) -> dict[str, str]:
    """Return the bucket under which fallbacks are kept."""
    return {"arch": arch} | dict.fromkeys(find_axes(op).names, ANY)


def describe_axes(op: Op) -> list[dict[str, Any]]:
    """Return the axes as plain values."""
    return [axis.to_json() for axis in list_axes(op)]


def find_axes(op: Op) -> Axes:
    """Return what the op's axes are for."""
    return Axes.of(describe_axes(op))
