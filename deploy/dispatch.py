"""The C dispatcher: tables and predicates of the chosen kernels, generated from the rows that the framework's registry reads."""

from __future__ import annotations

import math
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from deploy.conditions import Names, holds, render_all, render_product, render_sum, render_when
from deploy.errors import DeployError
from deploy.selection import DeployedOp, Row, find_named
from deploy.surveys import render_surveys

_AXES = ("dtypes", "layout", "epilogue", "region")
_MAX = 8


def make_dispatcher(ops: Sequence[DeployedOp]) -> str:
    """Return the text of ``aicf_dispatch.c``: the fixed part beside this file, and a part for each op."""
    core = Path(__file__).with_name("dispatch_core.c").read_text()
    names = [f'    "{op.name}/{k.name}",\n' for op in ops for k in op.kernels]
    listing = (
        "const char* const* aicf_list_kernels(void) {\n    static const char* const names[] = {\n    %s    NULL};\n    return names;\n}\n"
    )
    return "".join([core, *(_render_op(op) for op in ops), "\n", listing % "    ".join(names)])


def _render_op(op: DeployedOp) -> str:
    names = Names(op)
    if max(len(names.sizes), len(names.attributes)) > _MAX:
        raise DeployError(f"{op.name} has more than {_MAX} sizes or attributes")
    template = Path(__file__).with_name("dispatch_op.c").read_text()
    fields = {
        "OP": op.name,
        "STRUCT": op.interface["struct"],
        "DECLARATIONS": "".join(_declare(op, k.manifest) for k in op.kernels),
        "GATHER": _render_gather(names),
        "CLASSES": "".join(_render_axis(names, place, name) for place, name in enumerate(_AXES)),
        "SERVES": "\n".join(
            f"    if ({_render_serves(names, k.manifest)}) q->legal |= (uint64_t)1 << {i};" for i, k in enumerate(op.kernels)
        ),
        "COST": _render_cost(names),
        "KERNELS": "".join(_render_kernel(k.manifest) for k in op.kernels),
        "RATES": "".join(_render_rates(op, k.manifest) for k in op.kernels),
        "TILES": _render_tiles(names),
        "MEDIANS": _render_medians(names),
        "WINNERS": _render_entries(names, "winner"),
        "FALLBACKS": _render_entries(names, "fallback"),
        "SURVEYS": render_surveys(names),
        "NUM_SURVEYS": str(len(op.surveys)),
        "ARCHS": ", ".join(f'"{a}"' for a in op.archs),
        "NUM_SIZES": str(len(names.sizes)),
        "NUM_ATTRIBUTES": str(len(names.attributes)),
        "NUM_KERNELS": str(len(op.kernels)),
    }
    if len(op.kernels) > 64:
        raise DeployError(f"{op.name} has {len(op.kernels)} kernels; a library holds at most 64 of an op")
    for key, value in fields.items():
        template = template.replace(f"@{key}@", value)
    return template


def _declare(op: DeployedOp, manifest: Row) -> str:
    struct, entry = op.interface["struct"], manifest["entry_points"]
    return (
        f"AicfStatus {entry['supports']}(const {struct}* params);\n"
        f"AicfStatus {entry['workspace_bytes']}(const {struct}* params, size_t* bytes);\n"
        f"AicfStatus {entry['launch']}(const {struct}* params, void* workspace, struct CUstream_st* stream);\n"
    )


def _render_gather(names: Names) -> str:
    lines = []
    for i, size in enumerate(names.sizes):
        field = names.op.interface["sizes"][size]
        lines.append(f"    q->sizes[{i}] = (int64_t)p->{field};")
        lines.append(
            f'    if (q->sizes[{i}] < 1) return make_status(AICF_INVALID, "{field} = %lld: must be at least 1", (long long)p->{field});'
        )
    for i, attribute in enumerate(names.attributes):
        if "present" in attribute:
            field = names.tensors[attribute["present"]]["field"]
            yes, no = (names.find_code(attribute["name"], v) for v in (True, False))
            lines.append(f"    q->attributes[{i}] = p->{field} != NULL ? {yes} : {no};")
            continue
        field = attribute["field"]
        for place, code in enumerate(attribute["codes"]):
            lines.append(f"    {'' if place == 0 else 'else '}if (p->{field} == {code}) q->attributes[{i}] = {place};")
        lines.append(f'    else return make_status(AICF_INVALID, "{field}: not a value that the op knows");')
    return "\n".join(lines)


def _render_axis(names: Names, place: int, name: str) -> str:
    """Return the statements that find a call's class of one axis."""
    axis = find_named(names.op.description["axes"], name, f"{names.op.name}: axes")
    lines = []
    for number, each in enumerate(axis["classes"]):
        word = "" if number == 0 else "else "
        lines.append(f"    {word}if ({render_all(names, each['when'])}) q->classes[{place}] = {number};")
    return "\n".join([*lines, f"    else q->classes[{place}] = -1;", ""])


def _render_serves(names: Names, manifest: Row) -> str:
    return render_all(names, manifest["domain"])


def _render_cost(names: Names) -> str:
    cost = names.op.description["cost"]
    if cost is None:
        return "    q->flops = q->bytes = 0.0;\n    q->unit = -1;"
    lines = []
    for key, target in (("flops", "flops"), ("bytes_moved", "bytes")):
        for i, row in enumerate(cost[key]):
            word = "" if i == 0 else "else "
            lines.append(f"    {word}if ({render_when(names, row['when'])}) q->{target} = {render_sum(names, row['value'])};")
        lines.append(f"    else q->{target} = 0.0;")
    units = _list_units(names.op)
    for i, row in enumerate(cost["flop_unit"]):
        word = "" if i == 0 else "else "
        lines.append(f"    {word}if ({render_when(names, row['when'])}) q->unit = {units.index(row['value'])};")
    lines.append("    else q->unit = -1;")
    for i, row in enumerate(cost.get("reads", [])):
        word = "" if i == 0 else "else "
        lines.append(f"    {word}if ({render_when(names, row['when'])}) {{")
        lines += _render_reads(names, row["value"])
        lines.append("    }")
    return "\n".join(lines)


def _render_reads(names: Names, terms: Sequence[Any]) -> list[str]:
    """Return the statements that find the bytes of each input."""
    if len(terms) > _MAX:
        raise DeployError(f"{names.op.name} has more than {_MAX} inputs")
    lines = [f"        q->num_reads = {len(terms)};"]
    for i, term in enumerate(terms):
        named = sum(1 << names.sizes.index(size) for size in set(term[1]))
        lines.append(f"        q->reads[{i}] = {render_sum(names, [term])};")
        lines.append(f"        q->read_sizes[{i}] = {named};")
    return lines


def _list_units(op: DeployedOp) -> list[str]:
    cost = op.description["cost"]
    return sorted({row["value"] for row in cost["flop_unit"]}) if cost else []


def _render_kernel(manifest: Row) -> str:
    entry = manifest["entry_points"]
    flags = f"{int(manifest['deterministic'])}, {int(manifest['capture_safe'])}, {int(manifest['workspace']['kind'] == 'query')}"
    facts = f'"{manifest["kernel"]}", "{manifest["arch"]}", {flags}'
    return f"    {{{{{facts}}}, {entry['supports']}, {entry['workspace_bytes']}, {entry['launch']}}},\n"


def _render_rates(op: DeployedOp, manifest: Row) -> str:
    prior = manifest["prior"]
    rates = [repr(float(prior["flops_per_s"].get(unit, 0.0))) for unit in _list_units(op)]
    edges = [prior["tile"].get(size, 0) for size in sorted(op.interface["sizes"])]
    l2 = ((op.description["cost"] or {}).get("l2_bytes_per_s") or {}).get(manifest["arch"], 0.0)
    return f"    {{{prior['slots']}, {_list(edges)}, {float(prior['bytes_per_s'])!r}, {float(l2)!r}, {_list(rates)}}},\n"


def _render_tiles(names: Names) -> str:
    lines = []
    for i, kernel in enumerate(names.op.kernels):
        prior = kernel.manifest["prior"]
        tiles = render_product(names, prior["tile"]) if prior["tile"] else "0"
        lines.append(f"    tiles[{i}] = {tiles};")
    return "\n".join(lines)


def _render_medians(names: Names) -> str:
    op = names.op
    rows = sorted(op.medians, key=lambda r: (r["problem"], r["median_us"], r["kernel"]))
    lines = []
    for row in rows:
        if sorted(row["attributes"]) != [a["name"] for a in names.attributes] or sorted(row["sizes"]) != names.sizes:
            raise DeployError(f"{op.name}: the median of {row['kernel']} on {row['problem']} has other sizes or attributes than the op")
        group = dict(zip(_AXES, row["group"].split("/"), strict=False))
        classes = [op.find_class(axis, group[axis]) for axis in _AXES[:3]]
        region = _find_region(op, row)
        sizes = [row["sizes"][s] for s in names.sizes]
        logs = [math.log2(s).hex() for s in sizes]
        facts = [_list(classes), str(region), _list(names.encode(row["attributes"])), _list(sizes), _list(logs)]
        lines.append(f"    {{{op.find_kernel(row['kernel'])}, {row['median_us']!r}, {', '.join(facts)}}},\n")
    return "".join(lines) or "    {-1, 0.0, {0}, 0, {0}, {0}, {0.0}},\n"


def _find_region(op: DeployedOp, median: Row) -> int:
    """Return the region that a measured problem is in, -1 where it is in none."""
    classes = find_named(op.description["axes"], _AXES[3], f"{op.name}: axes")["classes"]
    return next((i for i, c in enumerate(classes) if all(holds(w, median["sizes"], median["attributes"]) for w in c["when"])), -1)


def _list(values: Sequence[Any]) -> str:
    return "{" + ", ".join(map(str, values)) + "}" if values else "{0}"


def _render_entries(names: Names, role: str) -> str:
    op = names.op
    rows = [e for e in op.entries if e["role"] == role]
    lines = []
    for row in sorted(rows, key=lambda r: (r["kernel"], sorted(r["bucket"].items()))):
        classes = [op.find_class(axis, row["bucket"][axis]) if role == "winner" else 0 for axis in _AXES]
        lines.append(f"    {{{op.find_kernel(row['kernel'])}, {_list(classes)}}},\n")
    return "".join(lines) or "    {-1, {0}},\n"
