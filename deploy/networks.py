"""Networks that the framework has compiled and saved, as C: tables of launches for ``network.c``, their weights, and a header each.

A saved network is a folder: ``launches.json`` says what runs in which memory, ``states.safetensors`` has the weights.
"""

from __future__ import annotations

import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from contract.kernels import FrozenKernel, read_kernel
from deploy.errors import DeployError

VERSION = 1
LAUNCHES, STATES = "launches.json", "states.safetensors"
_ALIGNMENT_BYTES = 256
_NAME = re.compile(r"[a-z][a-z0-9_]{0,40}\Z")
_ARCH = re.compile(r"sm_(\d+)(\d)([a-z]?)\Z")
Value = Mapping[str, Any]

_HEADER = """\
/* The network {name}, as it was compiled and saved. Generated; do not edit.
{values} */
#ifndef AICF_NETWORK_{upper}_H_
#define AICF_NETWORK_{upper}_H_

#include "aicf_network.h"

#ifdef __cplusplus
extern "C" {{
#endif
extern const AicfNetworkPlan aicf_network_{name};
#ifdef __cplusplus
}}
#endif
#endif /* AICF_NETWORK_{upper}_H_ */
"""
_SOURCE = """\
/* The network {name}. Generated; do not edit. */
#include "network_plan.h"

/* The weights, as a file beside this one: bytes that no compiler has to read. */
extern const unsigned char aicf_{name}_weights[];
__asm__(".pushsection .rodata\\n.balign {alignment}\\naicf_{name}_weights:\\n.incbin \\"{weights}\\"\\n.popsection\\n");

{tables}
const AicfNetworkPlan aicf_network_{name} = {{
    .name = "{name}",
    .major = {major},
    .minor = {minor},
    .runs_on_later_minors = {later},
    .num_bytes = {num_bytes},
    .states = {states},
    .num_states_bytes = {num_states_bytes},
    .weights = aicf_{name}_weights,
{counts}}};
"""


@dataclass(frozen=True)
class Network:
    """A saved network. ``kernels`` are those of its steps, None for a step without one; ``offsets`` say where each region of memory begins.

    ``workspaces`` are the offsets of what kernels want beside the plan's memory, by step.
    """

    name: str
    launches: Value
    weights: bytes
    kernels: tuple[FrozenKernel | None, ...]
    offsets: Mapping[str, int]
    workspaces: Mapping[int, int]
    num_bytes: int


def read_network(folder: Path, frozen_dir: Path, out: Path) -> Network:
    """Return a saved network with its kernels; those of chains that are not frozen get their headers written below ``out``.

    Raises :class:`DeployError` naming the file, and :class:`~contract.errors.FrozenError` where the frozen set does not have a kernel.
    """
    name = folder.resolve().name
    if not _NAME.match(name):
        raise DeployError(f"{folder}: the folder's name becomes a name in C; it must be lower-case letters, digits and underscores")
    launches = _read_json(folder / LAUNCHES)
    if launches.get("version") != VERSION:
        raise DeployError(
            f"{folder / LAUNCHES}: is of version {launches.get('version')!r}, and this is for version {VERSION}; save it again"
        )
    offsets, at = {}, 0
    for region, size in launches["sizes"].items():
        offsets[region] = at
        at = _align(at + size)
    workspaces = {}
    for i, step in enumerate(launches["steps"]):
        if step.get("own_workspace_bytes"):
            workspaces[i] = at
            at = _align(at + step["own_workspace_bytes"])
    kernels = tuple(_find_kernel(step.get("kernel"), frozen_dir, out) for step in launches["steps"])
    return Network(name, launches, _lay_out(folder / STATES, launches), kernels, offsets, workspaces, at)


def _align(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT_BYTES) * _ALIGNMENT_BYTES


def _read_json(path: Path) -> dict[str, Any]:
    try:
        value = json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise DeployError(f"{path}: cannot be read: {error}; program.save() of a program compiled for cuda writes it") from error
    if not isinstance(value, dict):
        raise DeployError(f"{path}: is not a saved network")
    return value


def _find_kernel(row: Value | None, frozen_dir: Path, out: Path) -> FrozenKernel | None:
    if row is None:
        return None
    if "library" in row:
        remedy = "compile and save it with AICF_LIBRARIES=off"
        raise DeployError(f"{row['op']}: the network calls a library of others, which a deployed library leaves out: {remedy}")
    kernel = read_kernel(frozen_dir / row["op"], row["name"], seal=row["seal"])
    if row["chain"] is None:
        return kernel
    # Chains need NumPy to be read; a network of frozen kernels alone does not.
    language = importlib.import_module(f"{_find_contract()}.expressions.language")
    derive = importlib.import_module(f"{_find_contract()}.chain_building").derive_kernel
    derived: FrozenKernel = derive(kernel, language.parse_chain(row["chain"]["name"], row["chain"]["text"]), out / "chains")
    return derived


def _find_contract() -> str:
    return read_kernel.__module__.rpartition(".")[0]


def _lay_out(path: Path, launches: Value) -> bytes:
    """Return the bytes of the region of states, from a safetensors file."""
    try:
        content = path.read_bytes()
        end = 8 + int.from_bytes(content[:8], "little")
        header = json.loads(content[8:end])
    except (OSError, ValueError) as error:
        raise DeployError(f"{path}: cannot be read: {error}; save the program again") from error
    block = bytearray(launches["sizes"]["state"])
    for state in launches["states"]:
        row = header.get(state["name"])
        if row is None or row["shape"] != state["shape"]:
            raise DeployError(f"{path}: has no state {state['name']} of shape {state['shape']}; save the program again")
        first, last = row["data_offsets"]
        values = content[end + first : end + last]
        if len(values) != last - first:
            raise DeployError(f"{path}: is cut short at {state['name']}; save the program again")
        block[state["offset"] : state["offset"] + len(values)] = values
    return bytes(block)


# ---- C


def make_network_header(network: Network) -> str:
    """Return the text of ``aicf_network_<name>.h``."""
    lines = [
        f" *   {what} {i}: {value['name']}, {value['dtype']} [{', '.join(map(str, value['shape']))}]"
        for what in ("input", "output")
        for i, value in enumerate(network.launches[f"{what}s"])
    ]
    return _HEADER.format(name=network.name, upper=network.name.upper(), values="\n".join([" *", *lines]))


def make_network_source(network: Network, weights: Path) -> str:
    """Return the text of ``aicf_network_<name>.c``, which has the weights from a file that :attr:`Network.weights` was written to."""
    match = _ARCH.match(network.launches["arch"]) if network.launches["arch"] else _ARCH.match("sm_00")
    if match is None:
        raise DeployError(f"{network.name}: architecture {network.launches['arch']!r} is unknown")
    tables, counts = _Tables(network), []
    for what in ("inputs", "outputs", "constants", "steps"):
        rows = tables.render(what)
        counts += [f"    .num_{what} = {rows},\n", f"    .{what} = {what if rows else 'NULL'},\n"]
        if what in ("inputs", "outputs"):
            counts.append(f"    .{what[:-1]}_offsets = {what[:-1] + '_offsets' if rows else 'NULL'},\n")
    return _SOURCE.format(
        name=network.name,
        alignment=_ALIGNMENT_BYTES,
        weights=str(weights).replace("\\", "\\\\").replace('"', '\\"'),
        tables="\n".join(tables.lines),
        major=match[1],
        minor=match[2],
        later=int(not match[3]),
        num_bytes=network.num_bytes,
        states=network.offsets["state"],
        num_states_bytes=len(network.weights),
        counts="".join(counts),
    )


class _Tables:
    """The tables of a network, as lines of C."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._offsets = network.offsets
        self.lines: list[str] = []
        symbols = {k.manifest["entry_points"]["launch"] for k in network.kernels if k is not None}
        self.lines += [f"AicfStatus {s}(const void* params, void* workspace, struct CUstream_st* stream);" for s in sorted(symbols)]

    def render(self, what: str) -> int:
        """Append a table; returns how many rows it has."""
        values = self._network.launches[what]
        if what in ("inputs", "outputs"):
            rows = [self._render_value(f"{what}_{i}_shape", value) for i, value in enumerate(values)]
            self._define("AicfNetworkValue", what, rows)
            self._define("size_t", f"{what[:-1]}_offsets", [str(self._offsets[v["region"]] + v["offset"]) for v in values])
        elif what == "constants":
            self._define("AicfNetworkConstant", what, [self._render_constant(value) for value in values])
        else:
            self._define("AicfNetworkStep", what, [self._render_step(i, value) for i, value in enumerate(values)])
        return len(values)

    def _define(self, kind: str, name: str, rows: Sequence[str], width: int = 1) -> str:
        """Append a table with so many rows in a line; returns its name, NULL for one without rows."""
        if not rows:
            return "NULL"
        lines = [", ".join(rows[i : i + width]) for i in range(0, len(rows), width)]
        self.lines.append(f"static const {kind} {name}[] = {{\n" + "".join(f"    {line},\n" for line in lines) + "};")
        return name

    def _render_value(self, shape: str, value: Value) -> str:
        pointer = self._define("int64_t", shape, [str(n) for n in value["shape"]], 8)
        return f'{{"{value["name"]}", "{value["dtype"]}", {len(value["shape"])}, {pointer}, {_count_bytes(value)}}}'

    def _render_constant(self, value: Value) -> str:
        element = bytes.fromhex(value["element"])
        listed = ", ".join(map(str, element))
        return f"{{{self._offsets['constant'] + value['offset']}, {value['count']}, {len(element)}, {{{listed}}}}}"

    def _render_step(self, i: int, step: Value) -> str:
        kernel = self._network.kernels[i]
        copies = [f"{{{self._find(target)}, {self._find(source)}, {n}}}" for target, source, n in step["copies"]]
        fields = {
            "name": f'"{i}:{step["op"]}"',
            "num_copies": str(len(copies)),
            "copies": self._define("AicfNetworkCopy", f"copies_{i}", copies),
        }
        if kernel is not None:
            params = bytes.fromhex(step["params"])
            pointers = [f"{{{place}, {self._find((region, offset))}}}" for place, region, offset in step["pointers"]]
            own = self._network.workspaces.get(i)
            workspace = own if own is not None else self._find(step["workspace"]) if step["workspace"] else None
            fields |= {
                "launch": kernel.manifest["entry_points"]["launch"],
                "params": self._define("unsigned char", f"params_{i}", [str(b) for b in params], 32),
                "num_params_bytes": str(len(params)),
                "num_pointers": str(len(pointers)),
                "pointers": self._define("AicfNetworkPointer", f"pointers_{i}", pointers, 8),
                "has_workspace": str(int(workspace is not None)),
                "workspace": str(workspace or 0),
            }
        return f"{{{', '.join(f'.{name} = {value}' for name, value in fields.items())}}}"

    def _find(self, place: Sequence[Any]) -> int:
        region, offset = place
        return self._offsets[region] + int(offset)


_ITEM_BYTES = {
    "float64": 8,
    "int64": 8,
    "uint64": 8,
    "float32": 4,
    "int32": 4,
    "uint32": 4,
    "bfloat16": 2,
    "float16": 2,
    "uint8": 1,
    "bool": 1,
}


def _count_bytes(value: Value) -> int:
    total = _ITEM_BYTES[value["dtype"]]
    for n in value["shape"]:
        total *= n
    return total
