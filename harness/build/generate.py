"""The C side of an op's contract, generated from its ``op.py``.

Three headers in the build's own folder, included as ``<op>/...`` like the op's files: ``params.h`` (C: the Params struct, its enumerators
and the entry points' types), ``contract.hpp`` (the same as data, for the checks and the binding that all ops share; and the variant's
tunables) and ``entry_points.hpp`` (the exported functions around the op's own ``launch``). An op with chains has them in ``chains.hpp``,
and makes the contract of each variant's chain, by which its entry points check, of these. An op whose ``api.hpp`` includes
``<op>/params.h`` has them; any other op writes its interface by hand.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from contract.expressions import write_chains
from harness.build.ties import write_ties
from harness.discover import LoadedOp
from harness.spec import Attribute, Derived, Op, Role, Scalar, SpecError, Strides, Tensor, Variant
from harness.spec.conditions import Condition, Count, OneOf
from harness.spec.dtypes import find_dtype
from harness.spec.formulas import Formula
from harness.spec.interface import Interface
from harness.spec.tables import tabulate

# As in ops/common/contract.hpp and ops/common/overlap.hpp.
_LIMITS = {"tensors": 64, "attributes": 32, "dimensions of a tensor": 8}
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
    } | ({f"{loaded.op.name}/chains.hpp": write_chains(loaded.op.name, dict(enumerate(chains)))} if (chains := loaded.op.chains) else {})


def define_variant(op: Op, variant: Variant) -> dict[str, str]:
    """Return what the build defines for a variant of a generated op: every tunable (0 where its kernel has none), and its domain."""
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
            if condition.max_stride is not None and op.tensors[index].is_strided:
                raise SpecError(
                    f"op {op.name}: Rows({condition.tensor!r}) has a max_stride, and dimensions with strides of their own have none"
                )
            words += ["T", index, condition.address_bytes, condition.stride_multiple, condition.max_stride or 0]
    return "_".join(str(w).replace("-", "m") for w in words)


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
    _check_limits(op)
    tables = ["kSizes", "kAttributes", "kScalars", "kTensors", "check_derived" if op.derived else "nullptr"]
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
        raise SpecError(f"derived size {derived.name}: {derived.formula!r} asks for {name}, which is no size or whole-number attribute")
    return f"std::int64_t{{{fields[name]}}}"


def write_entry_points(interface: Interface) -> str:
    """Return the exported functions."""
    op, struct = interface.op, interface.struct
    # Before all else: another chain is not served, where it would seem to contradict this one's operands.
    first, contract = ("    AICF_RETURN_IF_NOT_OK(check_chain(params));\n", "kChainContract") if op.chains else ("", "kContract")
    ties = write_ties(interface)
    check = "    AICF_RETURN_IF_NOT_OK(check_ties(params));\n" if ties else ""
    return f"""\
// {_ABOUT.format(op=op.name)} The exported functions of a variant; included at the end of launcher.cu.
//
// They check the parameters, and call aicf::{op.name}::launch(params, workspace, stream) and, where the launcher has one,
// count_workspace_bytes(params).
#pragma once

#include "common/domain.hpp"
#include "{op.name}/contract.hpp"

namespace aicf::{op.name} {{
{ties}
inline AicfStatus check_params(const Params& params) {{
{first}{check}    return contract::check_params({contract}, kDomain.words, kDomain.count, &params);
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
