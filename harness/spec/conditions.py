"""Conditions on a problem as an op writes them: what a kernel serves, and what belongs to a bucket of the frozen set.

They are plain enough to be evaluated anywhere; what they mean here is what :mod:`contract.conditions` makes of their rows.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from types import MappingProxyType
from typing import Any

from contract.conditions import make_condition

AttributeValue = bool | int | float | str


@dataclass(frozen=True)
class Facts:
    """What conditions ask of a call: sizes in elements, attributes, and per present tensor its address and row stride in elements.

    A tensor whose dimensions have strides of their own has one of each dimension. One with neither (a problem that is only planned) is
    taken to be aligned, with rows that follow each other.
    """

    sizes: Mapping[str, int]
    attributes: Mapping[str, AttributeValue]
    addresses: Mapping[str, int] = field(default_factory=dict)
    strides: Mapping[str, int | tuple[int, ...]] = field(default_factory=dict)

    @property
    def by_size(self) -> Mapping[str, int]:
        """The sizes, as the contract's conditions ask for them."""
        return self.sizes


class _Held:
    """What all conditions have in common: they hold where their row does."""

    def holds(self, facts: Facts) -> bool:
        """Return whether a call meets the condition; a tensor that is absent, or has no address yet, does."""
        return _make_held(self)(facts)

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        raise NotImplementedError


@lru_cache(maxsize=4096)
def _make_held(condition: _Held) -> Callable[[Facts], bool]:
    return make_condition(condition.to_json())


@dataclass(frozen=True)
class OneOf(_Held):
    """An attribute has one of these values."""

    attribute: str
    values: tuple[AttributeValue, ...]

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"attribute": self.attribute, "in": list(self.values)}


@dataclass(frozen=True)
class Count(_Held):
    """The product of sizes, each divided by its step and rounded up, is at least ``min``, at most ``max`` and divisible by ``multiple``.

    With steps of 1 it is a size or a number of elements, with a tile's edges a number of tiles.
    """

    steps: Mapping[str, int]
    min: int = 1
    max: int | None = None
    multiple: int = 1

    def __post_init__(self) -> None:
        object.__setattr__(self, "steps", MappingProxyType(dict(self.steps)))

    def __hash__(self) -> int:
        return hash((tuple(self.steps.items()), self.min, self.max, self.multiple))

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what is not asked for is left out."""
        row: dict[str, Any] = {"count": dict(self.steps)}
        if self.min > 1:
            row["min"] = self.min
        if self.max is not None:
            row["max"] = self.max
        return row | ({"multiple": self.multiple} if self.multiple > 1 else {})


@dataclass(frozen=True)
class Rows(_Held):
    """A tensor, where it is present, starts at a multiple of ``address_bytes`` and has a row stride (elements) that fits."""

    tensor: str
    address_bytes: int = 1
    stride_multiple: int = 1
    max_stride: int | None = None

    def to_json(self) -> dict[str, Any]:
        """Return plain values; what is not asked for is left out."""
        asked = {"address": self.address_bytes, "stride": self.stride_multiple}
        row: dict[str, Any] = {"tensor": self.tensor} | {name: value for name, value in asked.items() if value > 1}
        return row | ({} if self.max_stride is None else {"max_stride": self.max_stride})


Condition = OneOf | Count | Rows
Domain = Callable[[Mapping[str, int]], tuple[Condition, ...]]


@dataclass(frozen=True)
class Tie:
    """What calls of an op agree in, so that what disagrees is no call but a contradiction.

    Where ``when`` holds, the attributes ``then`` have these values, and in each pair of ``equal`` the first size is the second.
    """

    when: tuple[OneOf, ...]
    then: Mapping[str, AttributeValue] = field(default_factory=dict)
    equal: tuple[tuple[str, str], ...] = ()

    def __post_init__(self) -> None:
        object.__setattr__(self, "then", MappingProxyType(dict(self.then)))

    def __hash__(self) -> int:
        return hash((self.when, tuple(self.then.items()), self.equal))

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"when": [c.to_json() for c in self.when], "then": dict(self.then), "equal": [list(pair) for pair in self.equal]}


def settle(ties: Sequence[Tie], facts: Facts) -> Facts:
    """Return sizes and attributes with what the ties ask for, one tie after the other."""
    sizes, attributes = dict(facts.sizes), dict(facts.attributes)
    for tie in ties:
        if all(c.holds(Facts(sizes, attributes)) for c in tie.when):
            attributes |= tie.then
            sizes |= {first: sizes[second] for first, second in tie.equal}
    return Facts(sizes, attributes)


def read_condition(row: Mapping[str, Any]) -> Condition:
    """Return the condition that :meth:`to_json` wrote; raises ValueError for anything else."""
    if "attribute" in row:
        return OneOf(row["attribute"], tuple(row["in"]))
    if "count" in row:
        return Count(row["count"], row.get("min", 1), row.get("max"), row.get("multiple", 1))
    if "tensor" in row:
        return Rows(row["tensor"], row.get("address", 1), row.get("stride", 1), row.get("max_stride"))
    raise ValueError(f"{dict(row)} is not a condition: it has none of attribute, count and tensor")


def find_broken(conditions: Sequence[Condition], facts: Facts) -> Condition | None:
    """Return the first condition that does not hold, None where all do."""
    return next((c for c in conditions if not c.holds(facts)), None)


@dataclass(frozen=True)
class Axis:
    """One coordinate of a bucket, as named classes of conditions. Every problem is in the first class whose conditions all hold.

    An axis with a name of the op's own says its ``part``, one of :data:`contract.axes.PARTS`: a survey pools errors by the classes of part
    ``survey``, measured times stand for each other within the classes of parts ``survey`` and ``group``, and ``region`` divides by size.
    """

    name: str
    classes: Mapping[str, tuple[Condition, ...]]
    part: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "classes", MappingProxyType(dict(self.classes)))

    def __hash__(self) -> int:
        return hash((self.name, tuple(self.classes.items()), self.part))

    def to_json(self) -> dict[str, Any]:
        """Return plain values, classes in the order in which they are tried."""
        classes = [{"name": name, "when": [c.to_json() for c in when]} for name, when in self.classes.items()]
        return {"name": self.name, "classes": classes} | ({"part": self.part} if self.part else {})

    def find_class(self, facts: Facts) -> str | None:
        """Return the name of a problem's class, None where it is in none."""
        return next((name for name, conditions in self.classes.items() if find_broken(conditions, facts) is None), None)
