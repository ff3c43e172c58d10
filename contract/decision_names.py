"""The numbers that the decision core uses for the names in an op's row of the index, and the conditions in the core's form."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from contract import decision_structs as c
from contract.axes import ANY, Axes
from contract.conditions import INT64_MAX
from contract.errors import FrozenError

Row = Mapping[str, Any]
_ON_ATTRIBUTE, _ON_COUNT, _ON_ADDRESS, _ON_STRIDE = range(4)
_GONE = -2


@dataclass(frozen=True)
class Names:
    """How an op's sizes, attributes, tensors and classes are numbered: sizes and attributes by name, the others as they are declared."""

    op: str
    interface: Row
    sizes: tuple[str, ...]
    attributes: Mapping[str, tuple[Any, ...]]
    tensors: tuple[str, ...]
    axes: Axes
    classes: tuple[tuple[Row, ...], ...]

    @classmethod
    def of(cls, description: Row) -> Names:
        """Return those of an op's row in the index; raises :class:`FrozenError` for more than the core has room for."""
        interface = description["interface"]
        sizes = tuple(sorted(interface["sizes"]))
        attributes = {a["name"]: tuple(a["choices"]) for a in sorted(interface["attributes"], key=lambda a: str(a["name"]))}
        tensors = tuple(t["name"] for t in interface["tensors"])
        given = {axis["name"]: tuple(axis["classes"]) for axis in description["axes"]}
        axes = Axes.of(description["axes"])
        classes = tuple(given.get(name, ({"name": ANY, "when": []},)) for name in axes.names)
        for what, count, most in (
            ("sizes", len(sizes), c.MAX_SIZES),
            ("attributes", len(attributes), c.MAX_ATTRIBUTES),
            ("tensors", len(tensors), c.MAX_TENSORS),
            ("choices of an attribute", max(map(len, attributes.values()), default=0), 64),
            ("classes of an axis", max(map(len, classes), default=0), 64),
        ):
            if count > most:
                raise FrozenError(f"{description['op']}: {count} {what}; a decision looks at {most} at most")
        return cls(str(description["op"]), interface, sizes, attributes, tensors, axes, classes)

    def find_choice(self, attribute: str, value: Any) -> int:
        """Return the number of an attribute's value: 1 is not true, and 1.0 is 1."""
        for i, choice in enumerate(self.attributes[attribute]):
            if choice == value and isinstance(choice, bool) == isinstance(value, bool):
                return i
        raise FrozenError(f"{self.op}: attribute {attribute} has no choice {value!r}")

    def find_class(self, axis: int, name: str) -> int:
        """Return the number of an axis' class; -2, which no call has, where the axis does not know it any more."""
        return next((i for i, each in enumerate(self.classes[axis]) if each["name"] == name), _GONE)

    def list_sizes(self, values: Row) -> list[int]:
        """Return sizes in order."""
        return [values[name] for name in self.sizes]

    def list_choices(self, values: Row) -> list[int]:
        """Return the numbers of all attributes' values, in order."""
        return [self.find_choice(name, values[name]) for name in self.attributes]


def make_conditions(names: Names, row: Row) -> list[c.AicfCondition]:
    """Return a condition of the frozen set as what the core tests: one of a tensor is up to two, and none where nothing is asked."""
    if "attribute" in row:
        choices = sum(1 << i for i in {names.find_choice(row["attribute"], value) for value in row["in"]})
        return [c.AicfCondition(kind=_ON_ATTRIBUTE, place=list(names.attributes).index(row["attribute"]), choices=choices)]
    if "count" in row:
        made = c.AicfCondition(kind=_ON_COUNT, least=row.get("min", 1), most=row.get("max", INT64_MAX), multiple=row.get("multiple", 1))
        for name, step in row["count"].items():
            made.steps[names.sizes.index(name)] = step
        return [made]
    if "tensor" not in row:
        raise FrozenError(f"{names.op}: condition {dict(row)}: has none of attribute, count and tensor")
    place, made_of = names.tensors.index(row["tensor"]), []
    if "address" in row:
        made_of.append(c.AicfCondition(kind=_ON_ADDRESS, place=place, most=INT64_MAX, multiple=row["address"]))
    if "stride" in row or "max_stride" in row:
        most, multiple = row.get("max_stride", INT64_MAX), row.get("stride", 1)
        made_of.append(c.AicfCondition(kind=_ON_STRIDE, place=place, most=most, multiple=multiple))
    return made_of
