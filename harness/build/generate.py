"""The C side of an op's contract, generated from its ``op.py``.

Three headers in the build's own folder, included as ``<op>/...`` like the op's files: ``params.h`` (C: the Params struct, its enumerators
and the entry points' types), ``contract.hpp`` (the same as data, for the checks and the binding that all ops share; and the variant's
tunables) and ``entry_points.hpp`` (the exported functions around the op's own ``launch``). An op with chains has them in ``chains.hpp``,
and makes the contract of each variant's chain, by which its entry points check, of these. An op whose ``api.hpp`` includes
``<op>/params.h`` has them; any other op writes its interface by hand.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Sequence
from pathlib import Path

from contract.expressions import write_chains
from harness.build.contract_header import ABOUT, list_tunables, write_contract
from harness.build.ties import write_ties
from harness.discover import LoadedOp
from harness.spec import Attribute, Op, SpecError, Variant
from harness.spec.conditions import Condition, Count, OneOf
from harness.spec.interface import Interface

_generating = threading.Lock()


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
    with _generating:  # the builds of all variants ask at once
        if not loaded.generated:
            loaded.generated.update(_generate(loaded))
        return dict(loaded.generated)


def _generate(loaded: LoadedOp) -> dict[str, str]:
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
        f"/* {ABOUT.format(op=op.name)} Parameters and entry points of op {op.name}: {op.summary}. */",
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
    names = [f"    {interface.name_code(attribute, c)} = {interface.find_code(attribute, c)}," for c in attribute.choices]
    return [f"/* {attribute.name} */", "enum {", *names, "};", ""]


def _write_check_params(interface: Interface) -> str:
    # Before all else: another chain is not served, where it would seem to contradict this one's operands.
    has_chains, ties = bool(interface.op.chains), write_ties(interface)
    lines = [ties, "inline AicfStatus check_params(const Params& params) {"]
    lines += ["    AICF_RETURN_IF_NOT_OK(check_chain(params));"] if has_chains else []
    lines += ["    AICF_RETURN_IF_NOT_OK(check_ties(params));"] if ties else []
    contract = "kChainContract" if has_chains else "kContract"
    return "\n".join([*lines, f"    return contract::check_params({contract}, kDomain.words, kDomain.count, &params);", "}", ""])


def write_entry_points(interface: Interface) -> str:
    """Return the exported functions."""
    op, struct = interface.op, interface.struct
    return f"""\
// {ABOUT.format(op=op.name)} The exported functions of a variant; included at the end of launcher.cu.
//
// They check the parameters, and call aicf::{op.name}::launch(params, workspace, stream) and, where the launcher has one,
// count_workspace_bytes(params), or count_workspace_bytes(params, &bytes) with a status where counting may fail.
#pragma once

#include "common/domain.hpp"
#include "{op.name}/contract.hpp"

namespace aicf::{op.name} {{
{_write_check_params(interface)}
template <class P>
AicfStatus find_workspace(const P& params, size_t* bytes) {{
    *bytes = 0;
    AICF_RETURN_IF_NOT_OK(check_params(params));
    if constexpr (requires {{ count_workspace_bytes(params, bytes); }}) {{
        return count_workspace_bytes(params, bytes);
    }} else {{
        *bytes = count_workspace_bytes(params);
        return make_ok();
    }}
}}

inline AicfStatus check_and_launch(const Params& params, void* workspace, struct CUstream_st* stream) {{
    size_t bytes = 0;
    AICF_RETURN_IF_NOT_OK(find_workspace(params, &bytes));
    AICF_RETURN_IF_NOT_OK(contract::check_workspace(workspace, bytes));
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
