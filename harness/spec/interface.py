"""An op's Params struct: which fields it has, in order, and what they hold."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from harness.errors import SpecError
from harness.spec.arguments import Attribute, Role, Scalar, Strides, Tensor
from harness.spec.conditions import AttributeValue
from harness.spec.op import Op
from harness.spec.tables import find_dtype_source, find_presence, list_sizes, tabulate

_DTYPES = ("float32", "bfloat16", "float16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
_ELEMENTS = {"float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t", "bool": "uint8_t"}
_SCALARS = {"float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t"}
# Choices whose numbers shared device code knows: an attribute by this name takes them from common/activations.h.
_ACTIVATIONS = ("none", "relu", "gelu_tanh", "gelu_erf", "silu")


@dataclass(frozen=True)
class Interface:
    """The C side of an op's arguments, by the rules that ``docs/adding-an-op.md`` gives."""

    op: Op

    @property
    def struct(self) -> str:
        """The struct's name."""
        return self.camel + "Params"

    @property
    def camel(self) -> str:
        """The op's name in camel case."""
        return "".join(part.capitalize() for part in self.op.name.split("_"))

    @cached_property
    def sizes(self) -> list[str]:
        """The sizes' names, in the order of their fields."""
        return list_sizes(self.op)

    @cached_property
    def presences(self) -> dict[str, Tensor]:
        """The optional tensors by the switches that tell of them."""
        found = {a.name: find_presence(self.op, a) for a in self.op.attributes if not a.passed}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    @cached_property
    def dtype_sources(self) -> dict[str, Tensor]:
        """The tensors by the attributes that their dtype tells."""
        unpassed = [a for a in self.op.attributes if not a.passed and a.name not in self.presences]
        return {a.name: find_dtype_source(self.op, a) for a in unpassed}

    @cached_property
    def fields(self) -> list[tuple[str, str, str]]:
        """C type, name and remark of each field."""
        op = self.op
        growths = sorted({0, *(t.since for t in op.tensors), *(a.since for a in op.attributes)})
        rows = [row for since in growths for row in self._list_fields(since)]
        names = [name for _, name, _ in rows]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise SpecError(f"op {op.name}: the C struct would have field {', '.join(twice)} twice; rename a size, tensor or scalar")
        return rows

    def _list_fields(self, since: int) -> list[tuple[str, str, str]]:
        """Return the fields of one growth of the op; sizes and scalars are all of the first."""
        op = self.op
        tensors = [t for t in op.tensors if t.since == since]
        derived = {d.name: d for d in op.derived}
        rows = [(self._find_pointer(t), t.name, self._describe_tensor(t)) for t in tensors]
        if since == 0:
            rows += [("int64_t", s.lower(), derived[s].formula if s in derived else "at least 1") for s in self.sizes]
        for tensor in tensors:
            fields = self.list_strides(tensor)
            rows += [("int64_t", f, f"elements, of dimension {i} of {tensor.name}") for i, f in enumerate(fields) if f is not None]
        if since == 0:
            rows += [(_SCALARS[s.dtype], s.name, _describe_scalar(s)) for s in op.scalars]
        attributes = [a for a in op.attributes if a.since == since and a.name not in self.presences]
        return [*rows, *(("int32_t", a.name, self._describe_attribute(a)) for a in attributes)]

    def find_rank(self, tensor: Tensor) -> int:
        """Return the most dimensions that a tensor has."""
        return max(len(row["value"]) for row in tabulate(self.op, tensor.name_sizes))

    def list_strides(self, tensor: Tensor) -> list[str | None]:
        """Return the field that holds the stride of each dimension, None where it follows from the others."""
        rank = self.find_rank(tensor)
        if tensor.strides is Strides.ROWS:
            return [f"ld{tensor.name}" if dim == rank - 2 else None for dim in range(rank)]
        if tensor.is_strided:
            return [f"{tensor.name}_stride{d}" if d < rank - 1 or tensor.strides is Strides.ANY else None for d in range(rank)]
        return [None] * rank

    def _find_pointer(self, tensor: Tensor) -> str:
        dtypes = {row["value"] for row in tabulate(self.op, tensor.resolve_dtype)}
        element = _ELEMENTS.get(dtypes.pop(), "void") if len(dtypes) == 1 else "void"
        return f"{'const ' if tensor.role is Role.INPUT else ''}{element}*"

    def _describe_tensor(self, tensor: Tensor) -> str:
        shapes = list(dict.fromkeys("[" + ", ".join(map(str, row["value"])) + "]" for row in tabulate(self.op, tensor.name_sizes)))
        dtypes = list(dict.fromkeys(str(row["value"]) for row in tabulate(self.op, tensor.resolve_dtype)))
        optional = [row["value"] for row in tabulate(self.op, tensor.present)] != [True]
        parts = [
            f"{tensor.role.value} {' or '.join(shapes)}",
            *([] if len(dtypes) == 1 and dtypes[0] in _ELEMENTS else [" or ".join(dtypes)]),
        ]
        fields = [f for f in self.list_strides(tensor) if f is not None]
        parts += [f"stride{'s' if len(fields) > 1 else ''} {', '.join(fields)}"] if fields else []
        return "; ".join(parts + (["NULL where it is not wanted"] if optional else []))

    def _describe_attribute(self, attribute: Attribute) -> str:
        if not isinstance(attribute.choices[0], str):
            return f"{attribute.name}: one of {', '.join(str(int(c)) for c in attribute.choices)}"
        return " or ".join(self.name_code(attribute, c) for c in attribute.choices)

    def has_own_codes(self, attribute: Attribute) -> bool:
        """Return whether the choices have enumerators of this op, and no shared ones."""
        shared = set(attribute.choices) <= set(_DTYPES) or (attribute.name == "act" and set(attribute.choices) <= set(_ACTIVATIONS))
        return isinstance(attribute.choices[0], str) and not shared

    def name_code(self, attribute: Attribute, choice: AttributeValue) -> str:
        """Return the enumerator of a choice."""
        text = re.sub(r"\W", "_", str(choice)).upper()
        if self.has_own_codes(attribute):
            return f"AICF_{self.op.name.upper()}_{attribute.name.upper()}_{text}"
        return f"AICF_{'DTYPE' if set(attribute.choices) <= set(_DTYPES) else 'ACT'}_{text}"

    def find_code(self, attribute: Attribute, choice: AttributeValue) -> int:
        """Return what the attribute's field holds for a choice."""
        if isinstance(choice, float):
            raise SpecError(f"op {self.op.name}: attribute {attribute.name} has choice {choice}; make it a Scalar with choices")
        if not isinstance(choice, str):
            return int(choice)
        if self.has_own_codes(attribute):
            return attribute.codes[attribute.choices.index(choice)] if attribute.codes else attribute.choices.index(choice)
        return (_DTYPES if set(attribute.choices) <= set(_DTYPES) else _ACTIVATIONS).index(choice)


def _describe_scalar(scalar: Scalar) -> str:
    if scalar.choices:
        return f"one of {', '.join(map(str, scalar.choices))}"
    return f"from {scalar.low:g} to {scalar.high:g}"
