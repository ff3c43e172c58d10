"""A call of an op as the frozen set sees it: a problem, and its checked form in a fixed order, ready for a decision."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from contract.conditions import INT64_MAX
from contract.errors import FrozenError

Value = bool | int | float | str
# Of a tensor's rows, or of each of its dimensions.
Stride = int | tuple[int, ...]


class Problem:
    """One call's sizes (elements), attributes and scalars, and of its tensors the row strides (elements) and addresses (bytes).

    A tensor whose dimensions have strides of their own has one for each of them, outermost first.

    Attributes and scalars that are left out have the op's defaults. Strides that are left out are those of rows that follow each other;
    tensors whose addresses are left out are taken to be aligned: their addresses must then be multiples of the handle's
    ``alignment_bytes``.
    """

    __slots__ = ("addresses", "attributes", "scalars", "sizes", "strides")

    def __init__(
        self,
        sizes: Mapping[str, int],
        attributes: Mapping[str, Value] | None = None,
        strides: Mapping[str, Stride] | None = None,
        addresses: Mapping[str, int] | None = None,
        scalars: Mapping[str, float] | None = None,
    ) -> None:
        self.sizes = sizes
        self.attributes = attributes or {}
        self.strides = strides or {}
        self.addresses = addresses or {}
        self.scalars = scalars or {}

    def __repr__(self) -> str:
        parts = [dict(self.sizes), dict(self.attributes), dict(self.strides), dict(self.addresses)]
        parts += [dict(self.scalars)] if self.scalars else []
        return f"Problem({', '.join(map(repr, parts))})"


@dataclass(frozen=True, slots=True)
class Query:
    """What decisions look at. ``strides`` and ``addresses`` hold only tensors that are present; ``attributes`` has all, by name.

    ``scalars`` are those that were given; decisions do not ask for them.
    """

    sizes: tuple[int, ...]
    values: tuple[Value, ...]
    by_size: Mapping[str, int]
    attributes: Mapping[str, Value]
    strides: Mapping[str, Stride]
    addresses: Mapping[str, int]
    scalars: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class TensorLayout:
    """A tensor as one setting of the attributes has it: its dtype, and its shape as names of sizes."""

    name: str
    role: str
    field: str
    stride_field: str | None
    dtype: str
    shape: tuple[str | int, ...]
    has_strides: bool = False

    def find_packed(self, sizes: Mapping[str, int]) -> Stride | None:
        """Return the strides of rows that follow each other, None of a tensor that has none of its own."""
        lengths = self.list_lengths(sizes)
        if self.stride_field is not None:
            return lengths[-1]
        return tuple([math.prod(lengths[i + 1 :]) for i in range(len(lengths))]) if self.has_strides else None

    def list_lengths(self, sizes: Mapping[str, int]) -> list[int]:
        """Return the lengths of its dimensions."""
        return [sizes[each] if isinstance(each, str) else each for each in self.shape]


class Interface:
    """An op's C interface as the index describes it. Sizes and attributes are in the order of their names."""

    def __init__(self, op: str, row: Mapping[str, Any]) -> None:
        self.op = op
        self.row = row
        self.size_names = tuple(sorted(row["sizes"]))
        self.attributes = tuple(sorted(row["attributes"], key=lambda a: str(a["name"])))
        self.attribute_names = tuple(a["name"] for a in self.attributes)
        self.tensors = tuple(row["tensors"])
        self.scalars = {s["name"]: s for s in row.get("scalars", ())}
        self.tensor_names = frozenset(t["name"] for t in self.tensors)
        self._choices = {a["name"]: {c: c for c in a["choices"]} for a in self.attributes}
        self._defaults = {a["name"]: a["default"] for a in self.attributes}
        self._layouts: dict[tuple[Value, ...], tuple[TensorLayout, ...]] = {}

    def make_query(self, problem: Problem) -> Query:
        """Check a problem and return it in order; raises ValueError naming what is wrong with it and what is allowed."""
        if problem.sizes.keys() != set(self.size_names):
            raise ValueError(f"{self.op}: sizes are {', '.join(self.size_names)}, got {', '.join(map(str, problem.sizes)) or 'none'}")
        sizes = tuple([problem.sizes[name] for name in self.size_names])
        for name, size in zip(self.size_names, sizes, strict=True):
            if type(size) is not int or not 1 <= size <= INT64_MAX:
                raise ValueError(f"{self.op}: {name} = {size!r}: must be a whole number of at least 1 and at most 2**63 - 1")
        attributes = self._fill_attributes(problem.attributes) if problem.attributes else self._defaults
        values = tuple(attributes.values())
        strides: dict[str, Stride] = {}
        addresses = problem.addresses
        for tensor in self.find_layouts(values):
            if tensor.stride_field is not None:
                row = tensor.shape[-1]
                strides[tensor.name] = problem.sizes[row] if isinstance(row, str) else row
            elif tensor.has_strides:
                strides[tensor.name] = packed = tensor.find_packed(problem.sizes) or ()
                if isinstance(packed, tuple) and max(packed, default=0) > INT64_MAX and tensor.name not in problem.strides:
                    shape = " x ".join(map(str, tensor.list_lengths(problem.sizes)))
                    raise ValueError(f"{self.op}: {tensor.name} of {shape} elements: its strides must be at most 2**63 - 1")
        if problem.strides:
            self._take_strides(problem, strides)
        if addresses:
            self._check_addresses(addresses, values)
        if problem.scalars:
            self._check_scalars(problem.scalars)
        return Query(sizes, values, problem.sizes, attributes, strides, addresses, problem.scalars)

    def _check_scalars(self, scalars: Mapping[str, float]) -> None:
        for name, value in scalars.items():
            row = self.scalars.get(name)
            if row is None:
                raise ValueError(f"{self.op}: no scalar {name!r}; there are: {', '.join(self.scalars) or 'none'}")
            allowed = value in row["choices"] if "choices" in row else row["low"] <= value <= row["high"]
            if isinstance(value, bool) or not isinstance(value, int | float) or not allowed:
                limits = f"one of {row['choices']}" if "choices" in row else f"from {row['low']} to {row['high']}"
                raise ValueError(f"{self.op}: {name} = {value!r}: must be {limits}")

    def _fill_attributes(self, given: Mapping[str, Value]) -> dict[str, Value]:
        filled = self._defaults.copy()
        for name, value in given.items():
            choices = self._choices.get(name)
            if choices is None:
                raise ValueError(f"{self.op}: no attribute {name!r}; there are: {', '.join(self.attribute_names) or 'none'}")
            try:
                filled[name] = choices[value]
            except (KeyError, TypeError):
                raise ValueError(f"{self.op}: {name} = {value!r}: must be one of {', '.join(map(repr, choices))}") from None
        return filled

    def _take_strides(self, problem: Problem, strides: dict[str, Stride]) -> None:
        for name, stride in problem.strides.items():
            least = strides.get(name)
            if isinstance(least, tuple):
                if (
                    not isinstance(stride, tuple)
                    or len(stride) != len(least)
                    or not all(type(s) is int and 0 <= s <= INT64_MAX for s in stride)
                ):
                    raise ValueError(f"{self.op}: strides of {name} = {stride!r}: must be a tuple of {len(least)} whole numbers")
                strides[name] = stride
                continue
            if least is None:
                raise ValueError(f"{self.op}: tensor {name!r} has no row stride here; those with one are: {', '.join(strides)}")
            if type(stride) is not int or not least <= stride <= INT64_MAX:
                raise ValueError(f"{self.op}: row stride of {name} = {stride!r}: must be at least the row's {least} elements")
            strides[name] = stride

    def _check_addresses(self, addresses: Mapping[str, int], values: tuple[Value, ...]) -> None:
        present = {t.name for t in self.find_layouts(values)}
        if missing := sorted(addresses.keys() - present):
            raise ValueError(f"{self.op}: tensor {missing[0]!r} is not part of this call; its tensors are: {', '.join(sorted(present))}")

    def find_layouts(self, values: tuple[Value, ...]) -> tuple[TensorLayout, ...]:
        """Return the tensors that are present, in the interface's order, for one setting of the attributes (in the order of names)."""
        found = self._layouts.get(values)
        if found is None:
            attributes = dict(zip(self.attribute_names, values, strict=True))
            found = tuple(self._find_layout(t, attributes) for t in self.tensors if find_row(t["present"], attributes))
            self._layouts[values] = found
        return found

    def _find_layout(self, row: Mapping[str, Any], attributes: Mapping[str, Value]) -> TensorLayout:
        dtype, shape = find_row(row["dtype"], attributes), find_row(row["shape"], attributes)
        if dtype is None or shape is None:
            raise FrozenError(f"{self.op}: interface/tensors: {row['name']} has no dtype or shape for {attributes}")
        return TensorLayout(row["name"], row["role"], row["field"], row["stride"], dtype, tuple(shape), "strides" in row)


def find_row(table: list[Mapping[str, Any]], attributes: Mapping[str, Any]) -> Any:
    """Return the value of the row of a table that fits the attributes; None where none does."""
    return next((row["value"] for row in table if all(attributes[k] == v for k, v in row["when"].items())), None)
