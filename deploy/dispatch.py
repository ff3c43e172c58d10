"""The C dispatcher: a fixed part, and tables of the chosen kernels, generated from the rows that the framework's registry also reads."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from contract.decision_names import Names
from contract.decision_tables import make_table
from contract.decision_text import render_table
from deploy.errors import DeployError
from deploy.selection import DeployedOp, Row

_MAX_ARCHS, _MAX_STRIDES = 32, 7
# A kernel's entry points take a pointer to the op's struct; all ops' are called through one type.
_ENTRY_POINTS = """\
AicfStatus {supports}(const void* params);
AicfStatus {workspace_bytes}(const void* params, size_t* bytes);
AicfStatus {launch}(const void* params, void* workspace, struct CUstream_st* stream);
"""
_CALLS = """\
AicfStatus aicf_{op}_choose_on(const char* arch, const {struct}* params, const AicfPreferences* preferences, AicfChoice* choice) {{
    const Arch* found = NULL;
    const AicfStatus status = find_arch(&{op}_op, arch, &found);
    return status.code == AICF_OK ? choose(&{op}_op, found, params, preferences, choice) : status;
}}

AicfStatus aicf_{op}_choose(const {struct}* params, const AicfPreferences* preferences, AicfChoice* choice) {{
    const Arch* found = NULL;
    const AicfStatus status = find_own_arch(&{op}_op, &found);
    return status.code == AICF_OK ? choose(&{op}_op, found, params, preferences, choice) : status;
}}

AicfStatus aicf_{op}_workspace_bytes(const {struct}* params, const AicfPreferences* preferences, size_t* bytes) {{
    AicfChoice choice;
    const AicfStatus status = aicf_{op}_choose(params, preferences, &choice);
    if (status.code == AICF_OK) *bytes = choice.workspace_bytes;
    return status;
}}

AicfStatus aicf_{op}(const {struct}* params, const AicfPreferences* preferences, void* workspace, size_t workspace_bytes,
                     struct CUstream_st* stream) {{
    return launch(&{op}_op, params, preferences, workspace, workspace_bytes, stream);
}}
"""
_LISTING = """\
const char* const* aicf_list_kernels(void) {{
    static const char* const names[] = {{
{names}        NULL}};
    return names;
}}
"""


def make_dispatcher(ops: Sequence[DeployedOp]) -> str:
    """Return the text of ``aicf_dispatch.c``: the fixed part beside this file, and the tables of each op."""
    fixed = Path(__file__).with_name("dispatch.c").read_text()
    names = "".join(f'        "{op.name}/{k.name}",\n' for op in ops for k in op.kernels)
    return "\n".join([fixed, *map(_render_op, ops), _LISTING.format(names=names)])


def _render_op(op: DeployedOp) -> str:
    manifests = {k.name: k.manifest for k in op.kernels}
    parts, archs = [f"/* {'-' * 100} {op.name} */\n"], []
    parts += [_ENTRY_POINTS.format(**manifest["entry_points"]) for manifest in manifests.values()]
    for arch in op.archs:
        survey = next((row for row in op.surveys if row["arch"] == arch), None)
        table = make_table(arch, op.description, op.entries, op.medians, survey, manifests)
        if table.kernels:
            prefix = f"{op.name}_{arch}"
            parts.append(_define(f"Kernel {prefix}_kernels[]", (_render_kernel(manifests[name]) for name in table.kernels)))
            parts.append(render_table(f"{prefix}_table", table))
            archs.append(f'{{"{arch}", {prefix}_kernels, &{prefix}_table}}')
    if len(archs) > _MAX_ARCHS:
        raise DeployError(f"{op.name} has kernels for {len(archs)} architectures; a library has room for {_MAX_ARCHS}")
    parts.append(_define(f"Arch {op.name}_archs[]", archs))
    parts.append(_render_interface(op, len(archs)))
    parts.append(_CALLS.format(op=op.name, struct=op.interface["struct"]))
    return "\n".join(parts)


def _render_kernel(manifest: Row) -> str:
    entry, flags = manifest["entry_points"], (manifest["deterministic"], manifest["capture_safe"], manifest["workspace"]["kind"] == "query")
    facts = [f'"{manifest["kernel"]}"', *(str(flag).lower() for flag in flags)]
    return f"{{{', '.join([*facts, entry['supports'], entry['workspace_bytes'], entry['launch']])}}}"


def _render_interface(op: DeployedOp, num_archs: int) -> str:
    """Return where the Params struct holds what decisions look at."""
    names, interface = Names.of(op.description), op.interface
    kinds = {f["name"]: f["type"] for f in interface["fields"]}
    tensors = {t["name"]: t for t in interface["tensors"]}
    attributes = {a["name"]: a for a in interface["attributes"]}

    def find_offset(field: str) -> str:
        return f"offsetof({interface['struct']}, {field})"

    def render_number(field: str | None) -> str:
        if field is None:
            return "{0, 0, NULL}"
        if kinds[field] not in ("int64", "int32"):
            raise DeployError(f"{op.name}: interface: {field} is a {kinds[field]}; sizes, attributes and strides must be int64 or int32")
        return f'{{{find_offset(field)}, {8 if kinds[field] == "int64" else 4}, "{field}"}}'

    def render_tensor(row: Row) -> str:
        fields = row["strides"][:-1] if "strides" in row else [row["stride"]] if row["stride"] is not None else []
        if None in fields or any("strides" in row and len(each["value"]) != len(row["strides"]) for each in row["shape"]):
            raise DeployError(f"{op.name}: interface: the strides of {row['name']} are not one for each dimension but the last")
        if len(fields) > _MAX_STRIDES:
            raise DeployError(f"{op.name}: interface: {row['name']} has {len(fields)} strides; a library has room for {_MAX_STRIDES}")
        return f"{{{find_offset(row['field'])}, {len(fields)}, {{{', '.join(map(render_number, fields)) or render_number(None)}}}}}"

    def render_attribute(row: Row) -> str:
        codes = f"{op.name}_{row['name']}_codes"
        number = render_number(row.get("field"))
        pointer = find_offset(tensors[row["present"]]["field"]) if "present" in row else "0"
        return f"{{{number}, {pointer}, {len(row['choices'])}, {codes}}}"

    parts = []
    for name in names.attributes:
        row = attributes[name]
        parts.append(_define(f"int64_t {op.name}_{name}_codes[]", (str(int(code)) for code in row.get("codes", row["choices"]))))
    lists = {
        "Number sizes": [render_number(interface["sizes"][name]) for name in names.sizes],
        "Attribute attributes": [render_attribute(attributes[name]) for name in names.attributes],
        "Tensor tensors": [render_tensor(tensors[name]) for name in names.tensors],
    }
    fields = [f'.name = "{op.name}"', f".num_archs = {num_archs}", f".archs = {op.name}_archs"]
    for what, rows in lists.items():
        kind, key = what.split()
        if rows:
            parts.append(_define(f"{kind} {op.name}_{key}[]", rows))
            fields += [f".num_{key} = {len(rows)}", f".{key} = {op.name}_{key}"]
    return "".join([*parts, _define(f"Op {op.name}_op", fields)])


def _define(what: str, lines: Iterable[Any]) -> str:
    return f"static const {what} = {{\n{''.join(f'    {line},{chr(10)}' for line in lines)}}};\n"
