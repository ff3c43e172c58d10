"""The C side of an op's contract, generated from its ``op.py``.

Three headers in the build's own folder, included as ``<op>/...`` like the op's files: ``params.h`` (C: the Params struct, its enumerators
and the entry points' types), ``contract.hpp`` (the same as data, for the checks and the binding that all ops share; and the variant's tunables)
and ``entry_points.hpp`` (the exported functions around the op's own ``launch``). An op whose ``api.hpp`` includes ``<op>/params.h`` has them;
any other op writes its interface by hand.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from harness.discover import LoadedOp
from harness.domain import AttributeValue, Condition, Count, OneOf
from harness.dtypes import find_dtype
from harness.spec import Attribute, Derived, Op, Role, Scalar, SpecError, Strides, Tensor, Variant
from harness.spec.formulas import Formula
from harness.spec.tables import find_dtype_source, find_presence, list_sizes, tabulate

_DTYPES = ("float32", "bfloat16", "float16", "float64", "int8", "uint8", "int16", "int32", "int64", "bool")
_ELEMENTS = {"float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t", "uint8": "uint8_t", "bool": "uint8_t"}
_SCALARS = {"float32": "float", "float64": "double", "int32": "int32_t", "int64": "int64_t"}
# Choices whose numbers shared device code knows: an attribute by this name takes them from common/activations.h.
_ACTIVATIONS = ("none", "relu", "gelu_tanh", "gelu_erf", "silu")
_ABOUT = "Generated from {op}/op.py by the build; change it there."


def includes_generated(folder: Path) -> bool:
    """Return whether the op of a folder takes its interface from its ``op.py``."""
    api = folder / "api.hpp"
    return api.is_file() and re.search(rf'^\s*#\s*include\s*"{folder.name}/params\.h"', api.read_text(), re.MULTILINE) is not None


def generate_sources(loaded: LoadedOp) -> dict[str, str]:
    """Return the generated headers by their path below an include folder.

    None for an op whose interface is written by hand, and for sealed sources, which hold them.
    """
    if not includes_generated(loaded.folder) or (loaded.folder / "params.h").is_file():
        return {}
    interface = Interface(loaded.op)
    return {
        f"{loaded.op.name}/params.h": write_params(interface),
        f"{loaded.op.name}/contract.hpp": write_contract(interface),
        f"{loaded.op.name}/entry_points.hpp": write_entry_points(interface),
    }


def define_variant(op: Op, variant: Variant) -> dict[str, str]:
    """Return what the build defines for a variant of a generated op: every tunable of the op (0 where its kernel has none) and its domain."""
    tunables = dict.fromkeys(list_tunables(op), 0) | variant.tunables
    domain = op.find_kernel(variant.kernel).domain
    conditions = domain(variant.tunables) if domain is not None else ()
    return {f"AICF_{name.upper()}": str(value) for name, value in tunables.items()} | {"AICF_DOMAIN": encode_domain(op, conditions)}


def list_tunables(op: Op) -> list[str]:
    """Return the names of all kernels' tunables."""
    return list(dict.fromkeys(t.name for k in op.kernels for t in k.tunables))


def encode_domain(op: Op, conditions: Sequence[Condition]) -> str:
    """Return conditions as one C identifier, which ``common/domain.hpp`` reads: a compiler's flag can hold nothing else safely."""
    interface = Interface(op)
    words: list[int | str] = ["D"]
    for condition in conditions:
        if isinstance(condition, Count):
            steps = [value for name, step in condition.steps.items() for value in (interface.sizes.index(name), step)]
            words += ["C", condition.min, condition.max or 0, condition.multiple, len(condition.steps), *steps]
        elif isinstance(condition, OneOf):
            attribute = next(a for a in op.attributes if a.name == condition.attribute)
            codes = [interface.find_code(attribute, value) for value in condition.values]
            words += ["A", op.attributes.index(attribute), len(codes), *codes]
        else:
            index = [t.name for t in op.tensors].index(condition.tensor)
            words += ["T", index, condition.address_bytes, condition.stride_multiple, condition.max_stride or 0]
    return "_".join(str(w).replace("-", "m") for w in words)


@dataclass(frozen=True)
class Interface:
    """An op's Params struct: which fields it has, in order, and what they hold."""

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
        rows = [(self._find_pointer(t), t.name, self._describe_tensor(t)) for t in op.tensors]
        derived = {d.name: d for d in op.derived}
        rows += [("int64_t", s.lower(), derived[s].formula if s in derived else "at least 1") for s in self.sizes]
        for tensor in op.tensors:
            fields = self.list_strides(tensor)
            rows += [("int64_t", f, f"elements, of dimension {i} of {tensor.name}") for i, f in enumerate(fields) if f is not None]
        rows += [(_SCALARS[s.dtype], s.name, _describe_scalar(s)) for s in op.scalars]
        rows += [("int32_t", a.name, self._describe_attribute(a)) for a in op.attributes if a.name not in self.presences]
        names = [name for _, name, _ in rows]
        if twice := sorted({n for n in names if names.count(n) > 1}):
            raise SpecError(f"op {op.name}: the C struct would have field {', '.join(twice)} twice; rename a size, tensor or scalar")
        return rows

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
        parts = [f"{tensor.role.value} {' or '.join(shapes)}", *([] if len(dtypes) == 1 and dtypes[0] in _ELEMENTS else [" or ".join(dtypes)])]
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
            return attribute.choices.index(choice)
        return (_DTYPES if set(attribute.choices) <= set(_DTYPES) else _ACTIVATIONS).index(choice)


def _describe_scalar(scalar: Scalar) -> str:
    if scalar.choices:
        return f"one of {', '.join(map(str, scalar.choices))}"
    return f"from {scalar.low:g} to {scalar.high:g}"


def write_params(interface: Interface) -> str:
    """Return the C header of an op's parameters."""
    op, camel, struct = interface.op, interface.camel, interface.struct
    guard = f"AICF_OPS_{op.name.upper()}_PARAMS_H_"
    includes = ["common/dtypes.h", "common/entry.h", "common/status.h"]
    if any(a.name == "act" and not interface.has_own_codes(a) for a in op.attributes):
        includes.insert(0, "common/activations.h")
    width = max(len(f"{kind} {name};") for kind, name, _ in interface.fields)
    fields = [f"    {f'{kind} {name};':<{width}} /* {remark} */" for kind, name, remark in interface.fields]
    calls = (("Supports", ""), ("WorkspaceBytes", ", size_t* bytes"), ("Launch", ", void* workspace, struct CUstream_st* stream"))
    snake = {"Supports": "supports", "WorkspaceBytes": "workspace_bytes", "Launch": "launch"}
    remarks = {
        "Supports": "AICF_OK, AICF_INVALID for parameters that contradict themselves, or AICF_UNSUPPORTED with the limit that they exceed.",
        "WorkspaceBytes": "Device memory in bytes that launch wants as workspace, 16-byte aligned, of any content.",
        "Launch": "Queues the op on a stream: no allocation, no synchronisation, can be captured in a graph.",
    }
    lines = [
        f"/* {_ABOUT.format(op=op.name)} Parameters and entry points of op {op.name}: {op.summary}. */",
        *(f"#ifndef {guard}", f"#define {guard}", "", "#include <stddef.h>", "#include <stdint.h>", ""),
        *(f'#include "{name}"' for name in includes),
        *("", "#ifdef __cplusplus", 'extern "C" {', "#endif", ""),
        *(line for a in op.attributes if interface.has_own_codes(a) and a.passed for line in _write_enumerators(interface, a)),
        "/* Pointers are device addresses; strides are in elements. No written tensor overlaps another. */",
        f"typedef struct {struct} {{",
        *fields,
        f"}} {struct};",
        "",
        f"/* A variant's entry points, by the type of its symbols {op.name}_<call>__<suffix>. */",
        *(f"typedef AicfStatus (*{camel}{call})(const {struct}* params{rest});" for call, rest in calls),
        *("", "#ifdef AICF_VARIANT"),
    ]
    for call, rest in calls:
        lines.append(f"/* {remarks[call]} */")
        lines.append(f"AICF_EXPORT AicfStatus AICF_ENTRY({op.name}, {snake[call]})(const {struct}* params{rest});")
    lines += ["#endif", "", "#ifdef __cplusplus", "}", "#endif", f"#endif /* {guard} */", ""]
    return "\n".join(lines)


def _write_enumerators(interface: Interface, attribute: Attribute) -> list[str]:
    names = [f"    {interface.name_code(attribute, c)} = {i}," for i, c in enumerate(attribute.choices)]
    return [f"/* {attribute.name} */", "enum {", *names, "};", ""]


def write_contract(interface: Interface) -> str:
    """Return the contract as data in C++."""
    op, struct = interface.op, interface.struct
    tunables = list_tunables(op)
    lines = [
        f"// {_ABOUT.format(op=op.name)} The contract of op {op.name} as data.",
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
        *_write_array("contract::SizeField", "kSizes", [f'{{"{s}", offsetof(Params, {s.lower()})}}' for s in interface.sizes]),
        *(line for a in op.attributes for line in _write_choices(interface, a)),
        *_write_array("contract::AttributeField", "kAttributes", [_write_attribute(interface, a) for a in op.attributes]),
        *(line for s in op.scalars for line in _write_array("double", f"kChoicesOf_{s.name}", [repr(float(c)) for c in s.choices])),
        *_write_array("contract::ScalarField", "kScalars", [_write_scalar(s) for s in op.scalars]),
        *(line for t in op.tensors for line in _write_tensor(interface, t)),
        *_write_array("contract::TensorField", "kTensors", [_write_tensor_field(interface, t) for t in op.tensors]),
        *_write_derived(interface, op.derived),
        f'inline constexpr contract::Description kContract = {{"{op.name}", kSizes, kAttributes, kScalars, kTensors, {"check_derived" if op.derived else "nullptr"}}};',
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


def _write_array(kind: str, name: str, rows: Sequence[str]) -> list[str]:
    if not rows:
        return [f"inline constexpr contract::Table<{kind}> {name} = {{nullptr, 0}};", ""]
    return [f"inline constexpr {kind} {name}_[] = {{", *(f"    {row}," for row in rows), "};", f"inline constexpr contract::Table {name} = contract::list({name}_);", ""]


def _write_choices(interface: Interface, attribute: Attribute) -> list[str]:
    rows = [f'{{"{c}", {interface.find_code(attribute, c)}}}' for c in attribute.choices]
    return _write_array("contract::Choice", f"kChoicesOf_{attribute.name}", rows)


def _write_attribute(interface: Interface, attribute: Attribute) -> str:
    kinds = {bool: "kSwitch", int: "kNumber", str: "kName"}
    kind = kinds[type(attribute.choices[0])]
    choices = f"kChoicesOf_{attribute.name}"
    names = [t.name for t in interface.op.tensors]
    if attribute.name in interface.presences:
        return f'{{"{attribute.name}", contract::AttributeField::{kind}, contract::AttributeField::kPresent, {names.index(interface.presences[attribute.name].name)}, 0, {choices}}}'
    place = f"offsetof(Params, {attribute.name})"
    if attribute.name in interface.dtype_sources:
        return f'{{"{attribute.name}", contract::AttributeField::{kind}, contract::AttributeField::kDtypeOf, {names.index(interface.dtype_sources[attribute.name].name)}, {place}, {choices}}}'
    return f'{{"{attribute.name}", contract::AttributeField::{kind}, contract::AttributeField::kPassed, 0, {place}, {choices}}}'


def _write_scalar(scalar: Scalar) -> str:
    low, high = (min(scalar.choices), max(scalar.choices)) if scalar.choices else (scalar.low, scalar.high)
    kind = {"float32": "kFloat", "float64": "kDouble", "int32": "kInt32", "int64": "kInt64"}[scalar.dtype]
    return f'{{"{scalar.name}", contract::ScalarField::{kind}, offsetof(Params, {scalar.name}), {low!r}, {high!r}, kChoicesOf_{scalar.name}}}'


def _write_tensor(interface: Interface, tensor: Tensor) -> list[str]:
    op = interface.op
    rows = tabulate(op, lambda p: (tensor.present(p), tensor.resolve_dtype(p), tensor.name_sizes(p)))
    cases = []
    for row in rows:
        present, dtype, dims = row["value"]
        when = [f"{{{_find_attribute(op, name)}, {interface.find_code(op.attributes[_find_attribute(op, name)], value)}}}" for name, value in row["when"].items()]
        shape = [str(-dim) if isinstance(dim, int) else str(interface.sizes.index(dim)) for dim in dims]
        if any(isinstance(dim, int) and dim < 1 for dim in dims):
            raise SpecError(f"op {op.name}, tensor {tensor.name}: a number in its shape must be at least 1")
        numpy = find_dtype(dtype)
        typestr = "<V2" if dtype == "bfloat16" else numpy.str
        cases.append(
            f'{{{len(when)}, {{{", ".join(when)}}}, {"true" if present else "false"}, "{typestr}", {numpy.itemsize}, {len(shape)}, {{{", ".join(shape)}}}}}'
        )
    return _write_array("contract::TensorCase", f"kCasesOf_{tensor.name}", cases)


def _write_tensor_field(interface: Interface, tensor: Tensor) -> str:
    role = {Role.INPUT: "kInput", Role.OUTPUT: "kOutput", Role.INOUT: "kInout"}[tensor.role]
    strides = {Strides.PACKED: "kPacked", Strides.ROWS: "kRows", Strides.OUTER: "kOuter", Strides.ANY: "kAny"}[tensor.strides]
    places = [f"offsetof(Params, {f})" if f else "contract::kNoField" for f in interface.list_strides(tensor)]
    return (
        f'{{"{tensor.name}", contract::TensorField::{role}, contract::TensorField::{strides}, offsetof(Params, {tensor.name}), {{{", ".join(places)}}}, '
        f"kCasesOf_{tensor.name}}}"
    )


def _find_attribute(op: Op, name: str) -> int:
    return [a.name for a in op.attributes].index(name)


def _write_derived(interface: Interface, derived: Sequence[Derived]) -> list[str]:
    if not derived:
        return []
    fields = {s: f"params.{s.lower()}" for s in interface.sizes} | {a.name: f"params.{a.name}" for a in interface.op.attributes}
    lines = ["inline AicfStatus check_derived(const void* data) {", "    const auto& params = *static_cast<const Params*>(data);"]
    for each in derived:
        formula = Formula(each.formula).to_c(lambda name: f"std::int64_t{{{_find_field(fields, name, each)}}}")
        lines.append(f'    AICF_RETURN_IF_NOT_OK(contract::check_derived_size("{each.name}", params.{each.name.lower()}, {formula}, "{each.formula}"));')
    return [*lines, "    return make_ok();", "}", ""]


def _find_field(fields: Mapping[str, str], name: str, derived: Derived) -> str:
    if name not in fields:
        raise SpecError(f"derived size {derived.name}: its formula {derived.formula!r} asks for {name}, which is no size or attribute")
    return fields[name]


def write_entry_points(interface: Interface) -> str:
    """Return the exported functions."""
    op, struct = interface.op, interface.struct
    return f"""\
// {_ABOUT.format(op=op.name)} The exported functions of a variant; included at the end of launcher.cu.
//
// They check the parameters, and call aicf::{op.name}::launch(params, workspace, stream) and, where the launcher has one,
// count_workspace_bytes(params).
#pragma once

#include "common/domain.hpp"
#include "{op.name}/contract.hpp"

namespace aicf::{op.name} {{

inline AicfStatus check_params(const Params& params) {{
    return contract::check_params(kContract, kDomain.words, kDomain.count, &params);
}}

inline AicfStatus find_workspace(const Params& params, size_t* bytes) {{
    *bytes = 0;
    AICF_RETURN_IF_NOT_OK(check_params(params));
    *bytes = count_workspace_bytes(params);
    return make_ok();
}}

inline AicfStatus check_and_launch(const Params& params, void* workspace, struct CUstream_st* stream) {{
    AICF_RETURN_IF_NOT_OK(check_params(params));
    AICF_RETURN_IF_NOT_OK(contract::check_workspace(workspace, count_workspace_bytes(params)));
    return launch(params, workspace, stream);
}}

}}  // namespace aicf::{op.name}

extern "C" {{

AicfStatus AICF_ENTRY({op.name}, supports)(const {struct}* params) {{ return aicf::{op.name}::check_params(*params); }}

AicfStatus AICF_ENTRY({op.name}, workspace_bytes)(const {struct}* params, size_t* bytes) {{
    return aicf::{op.name}::find_workspace(*params, bytes);
}}

AicfStatus AICF_ENTRY({op.name}, launch)(const {struct}* params, void* workspace, struct CUstream_st* stream) {{
    return aicf::{op.name}::check_and_launch(*params, workspace, stream);
}}
}}
"""
