"""``contract.hpp``: an op's contract as data in C++, for the checks and the binding that all ops share; and the variant's tunables."""

from __future__ import annotations

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from harness.spec import Attribute, Derived, Op, Role, Scalar, SpecError, Strides, Tensor
from harness.spec.dtypes import find_dtype
from harness.spec.formulas import Formula
from harness.spec.interface import Interface
from harness.spec.tables import tabulate

ABOUT = "Generated from {op}/op.py by the build; change it there."
# As in ops/common/contract.hpp and ops/common/overlap.hpp.
_LIMITS = {"tensors": 64, "attributes": 32, "dimensions of a tensor": 8}


def list_tunables(op: Op) -> list[str]:
    """Return the names of all kernels' tunables."""
    return list(dict.fromkeys(t.name for k in op.kernels for t in k.tunables))


def write_contract(interface: Interface) -> str:
    """Return the contract as data in C++."""
    op, struct = interface.op, interface.struct
    tunables = list_tunables(op)
    _check_limits(op)
    tables = ["kSizes", "kAttributes", "kScalars", "kTensors", "check_derived" if op.derived else "nullptr"]
    lines = [
        f"// {ABOUT.format(op=op.name)} The contract of op {op.name} as data.",
        "#pragma once",
        "",
        "#include <cstddef>",
        "#include <cstdint>",
        "",
        '#include "common/contract.hpp"',
        f'#include "{op.name}/params.h"',
        "",
        f"namespace aicf::{op.name} {{",
        "",
        f"using Params = {struct};",
        "",
        *_write_array("contract::SizeField", "kSizes", [_write_size(interface, s) for s in interface.sizes]),
        *(line for a in op.attributes for line in _write_choices(interface, a)),
        *_write_array("contract::AttributeField", "kAttributes", [_write_attribute(interface, a) for a in op.attributes]),
        *(line for s in op.scalars for line in _write_array("double", f"kChoicesOf_{s.name}", [repr(float(c)) for c in s.choices])),
        *_write_array("contract::ScalarField", "kScalars", [_write_scalar(s) for s in op.scalars]),
        *(line for t in op.tensors for line in _write_tensor(interface, t)),
        *_write_array("contract::TensorField", "kTensors", [_write_tensor_field(interface, t) for t in op.tensors]),
        *_write_derived(interface, op.derived),
        f'inline constexpr contract::Description kContract = {{"{op.name}", {", ".join(tables)}}};',
    ]
    if tunables:
        lines += [
            "",
            "#ifdef AICF_VARIANT",
            "// The variant's tunables; one that its kernel does not have is 0. Meanings and units are in op.py.",
            "struct Tunables {",
            f"    int {', '.join(tunables)};",
            "};",
            "",
            f"inline constexpr Tunables kTunables = {{{', '.join(f'AICF_{t.upper()}' for t in tunables)}}};",
            "#endif",
        ]
    return "\n".join([*lines, "", f"}}  // namespace aicf::{op.name}", ""])


def _check_limits(op: Op) -> None:
    ranks = max((len(row["value"]) for t in op.tensors for row in tabulate(op, t.name_sizes)), default=0)
    found = {"tensors": len(op.tensors), "attributes": len(op.attributes), "dimensions of a tensor": ranks}
    for what, count in found.items():
        if count > _LIMITS[what]:
            raise SpecError(f"op {op.name} has {count} {what}, and common/contract.hpp has room for {_LIMITS[what]}; raise its limit")


def _write_array(kind: str, name: str, rows: Sequence[str]) -> list[str]:
    if not rows:
        return [f"inline constexpr contract::Table<{kind}> {name} = {{nullptr, 0}};", ""]
    listed = [f"inline constexpr {kind} {name}_[] = {{", *(f"    {row}," for row in rows), "};"]
    return [*listed, f"inline constexpr contract::Table {name} = contract::list({name}_);", ""]


def _write_size(interface: Interface, size: str) -> str:
    equal = next((second for tie in interface.op.ties for first, second in tie.equal if first == size), None)
    return f'{{"{size}", offsetof(Params, {size.lower()}), {interface.sizes.index(equal) if equal else -1}}}'


def _write_choices(interface: Interface, attribute: Attribute) -> list[str]:
    rows = [f'{{"{c}", {interface.find_code(attribute, c)}}}' for c in attribute.choices]
    return _write_array("contract::Choice", f"kChoicesOf_{attribute.name}", rows)


def _write_attribute(interface: Interface, attribute: Attribute) -> str:
    name = attribute.name
    names = [t.name for t in interface.op.tensors]
    kind = {bool: "kSwitch", int: "kNumber", str: "kName"}[type(attribute.choices[0])]
    source, tensor, place = "kPassed", 0, f"offsetof(Params, {name})"
    if name in interface.presences:
        source, tensor, place = "kPresent", names.index(interface.presences[name].name), "0"
    elif name in interface.dtype_sources:
        source, tensor = "kDtypeOf", names.index(interface.dtype_sources[name].name)
    scope = "contract::AttributeField"
    return f'{{"{name}", {scope}::{kind}, {scope}::{source}, {tensor}, {place}, kChoicesOf_{name}}}'


def _write_scalar(scalar: Scalar) -> str:
    limits = (min(scalar.choices), max(scalar.choices)) if scalar.choices else (scalar.low, scalar.high)
    # As the struct holds them: what lies between them still does once it is rounded to fp32.
    low, high = (float(np.float32(x)) if scalar.dtype == "float32" else x for x in limits)
    kind = {"float32": "kFloat", "float64": "kDouble", "int32": "kInt32", "int64": "kInt64"}[scalar.dtype]
    return (
        f'{{"{scalar.name}", contract::ScalarField::{kind}, offsetof(Params, {scalar.name}), {low!r}, {high!r}, kChoicesOf_{scalar.name}}}'
    )


def _write_tensor(interface: Interface, tensor: Tensor) -> list[str]:
    op = interface.op
    rows = tabulate(op, lambda p: (tensor.present(p), tensor.resolve_dtype(p), tensor.name_sizes(p)))
    cases = []
    for row in rows:
        present, dtype, dims = row["value"]
        if any(isinstance(dim, int) and dim < 1 for dim in dims):
            raise SpecError(f"op {op.name}, tensor {tensor.name}: a number in its shape must be at least 1")
        attributes = {name: _find_attribute(op, name) for name in row["when"]}
        when = [f"{{{i}, {interface.find_code(op.attributes[i], row['when'][name])}}}" for name, i in attributes.items()]
        shape = [str(-dim) if isinstance(dim, int) else str(interface.sizes.index(dim)) for dim in dims]
        numpy = find_dtype(dtype)
        typestr = "<V2" if dtype == "bfloat16" else numpy.str
        element = f'{"true" if present else "false"}, "{typestr}", {numpy.itemsize}'
        cases.append(f"{{{len(when)}, {{{', '.join(when)}}}, {element}, {len(shape)}, {{{', '.join(shape)}}}}}")
    return _write_array("contract::TensorCase", f"kCasesOf_{tensor.name}", cases)


def _write_tensor_field(interface: Interface, tensor: Tensor) -> str:
    role = {Role.INPUT: "kInput", Role.OUTPUT: "kOutput", Role.INOUT: "kInout"}[tensor.role]
    strides = {Strides.PACKED: "kPacked", Strides.ROWS: "kRows", Strides.OUTER: "kOuter", Strides.ANY: "kAny"}[tensor.strides]
    places = [f"offsetof(Params, {f})" if f else "contract::kNoField" for f in interface.list_strides(tensor)]
    scope, name = "contract::TensorField", tensor.name
    return f'{{"{name}", {scope}::{role}, {scope}::{strides}, offsetof(Params, {name}), {{{", ".join(places)}}}, kCasesOf_{name}}}'


def _find_attribute(op: Op, name: str) -> int:
    return [a.name for a in op.attributes].index(name)


def _write_derived(interface: Interface, derived: Sequence[Derived]) -> list[str]:
    if not derived:
        return []
    numbers = [a.name for a in interface.op.attributes if all(isinstance(c, int) for c in a.choices) and a.name not in interface.presences]
    fields = {s: f"params.{s.lower()}" for s in interface.sizes} | {name: f"params.{name}" for name in numbers}
    lines = ["inline AicfStatus check_derived(const void* data) {", "    const auto& params = *static_cast<const Params*>(data);"]
    for each in derived:
        formula = Formula(each.formula).to_c(functools.partial(_find_field, fields, each))
        wanted = f'params.{each.name.lower()}, {formula}, "{each.formula}"'
        lines.append(f'    AICF_RETURN_IF_NOT_OK(contract::check_derived_size("{each.name}", {wanted}));')
    return [*lines, "    return make_ok();", "}", ""]


def _find_field(fields: Mapping[str, str], derived: Derived, name: str) -> str:
    if name not in fields:
        raise SpecError(f"derived size {derived.name}: {derived.formula!r} asks for {name}, neither a size nor an integer attribute")
    return f"std::int64_t{{{fields[name]}}}"
