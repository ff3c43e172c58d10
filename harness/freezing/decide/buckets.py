"""Which bucket a problem is in: one class of each axis that the op declares, and the architecture."""

from __future__ import annotations

from typing import Any

from contract.layout import AXES, BUCKET_KEYS
from harness.errors import FrozenError
from harness.spec import Op, Problem, Variant
from harness.spec.conditions import Axis, OneOf, find_broken

# The class of an axis that an op does not divide, and of every axis for a fallback.
ANY = "any"


def meets_domain(op: Op, variant: Variant, problem: Problem) -> bool:
    """Return whether a variant's domain holds for a problem; one that declares none serves whatever it is asked to."""
    domain = op.find_kernel(variant.kernel).domain
    return domain is None or find_broken(domain(variant.tunables), op.find_facts(problem)) is None


def list_axes(op: Op) -> tuple[Axis, ...]:
    """Return the op's axes in the order of a bucket's name, where one is left out with the single class ``any``.

    An op that declares none, and has attributes, gets an axis ``epilogue`` for its first attribute: a bucket a value.
    """
    declared = {axis.name: axis for axis in op.axes}
    if not declared and op.attributes:
        first = op.attributes[0]
        declared["epilogue"] = Axis("epilogue", {_name_value(v): (OneOf(first.name, (v,)),) for v in first.choices})
    return tuple(declared.get(name, Axis(name, {ANY: ()})) for name in AXES)


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


def name_group(bucket: dict[str, str]) -> str:
    """Return what problems have in common whose times may stand for each other: the bucket without architecture and region."""
    return "/".join(bucket[key] for key in BUCKET_KEYS if key not in ("arch", "region"))


def make_fallback_bucket(arch: str) -> dict[str, str]:
    """Return the bucket under which fallbacks are kept."""
    return {"arch": arch} | dict.fromkeys(AXES, ANY)


def describe_axes(op: Op) -> list[dict[str, Any]]:
    """Return the axes as plain values, classes in the order in which they are tried."""
    return [
        {"name": axis.name, "classes": [{"name": n, "when": [c.to_json() for c in when]} for n, when in axis.classes.items()]}
        for axis in list_axes(op)
    ]
