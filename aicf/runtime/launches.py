"""A plan's launches as data: kernels by seal, parameters as bytes, and which of them are addresses.

A plan that is loaded runs by them and asks no registry; ``deploy`` turns them into C for programs without Python. A parameter that is an
address is given by its place in the C struct, a region of memory, and an offset there.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from aicf.backends.calls import FrozenCall
from aicf.errors import NotFrozenError, PlanError
from aicf.kernels.library import KernelLibrary, load_chain, load_kernel
from aicf.opset import find_dtype
from aicf.plan import Plan, Slot, Step
from aicf.plan.data import GIVEN, REGIONS, StateSlot
from aicf.registry import HwCaps
from aicf.runtime.places import list_copies
from contract.expressions.language import parse_chain
from contract.expressions.tree import Chain
from contract.kernels import FrozenKernel, read_kernel
from contract.layout import INDEX, find_frozen_dirs
from device import UnavailableError, open_device

VERSION = 1
# Regions lie further apart than any is large.
_REGION_BITS = 48
_PLACES = (*REGIONS, GIVEN)
Value = dict[str, Any]


def describe_launches(plan: Plan, calls: list[FrozenCall | None], intake: Sequence[Value] = ()) -> Value:
    """Return what runs a plan without Python, as a value of JSON; ``intake`` are its launches that bring inputs in."""
    return {
        "version": VERSION,
        "name": plan.name,
        "arch": next((call.handle.arch for call in calls if call is not None), ""),
        "sizes": {name: plan.sizes.get(name, 0) for name in REGIONS},
        "inputs": [{"name": name} | _describe_slot(slot) for name, slot in plan.inputs],
        "outputs": [{"name": f"y{i}"} | _describe_slot(slot) for i, slot in enumerate(plan.outputs)],
        "states": [_describe_state(state) for state in plan.states],
        "constants": [_describe_constant(slot, value) for slot, value in plan.constants],
        "steps": [_describe_step(step, call) for step, call in zip(plan.steps, calls, strict=True)],
        "intake": list(intake),
    }


def describe_intake(step: Step, call: FrozenCall) -> Value:
    """Return a launch that brings an input in, as a value of JSON; callers' addresses must be multiples of ``alignment_bytes``."""
    arch = {"arch": call.handle.arch, "alignment_bytes": max(call.handle.alignment_bytes.values(), default=1)}
    return _describe_step(step, call) | arch


def _describe_slot(slot: Slot) -> Value:
    return {"dtype": slot.type.dtype, "shape": list(slot.type.shape), "region": slot.region, "offset": slot.offset}


def _describe_state(state: StateSlot) -> Value:
    return {"name": f"{state.role}:{state.owner}"} | _describe_slot(state.slot)


def _describe_constant(slot: Slot, value: Any) -> Value:
    element = find_dtype(slot.type.dtype).type(value).tobytes()
    return {"offset": slot.offset, "count": slot.type.num_elems, "element": element.hex()}


def _describe_step(step: Step, call: FrozenCall | None) -> Value:
    copies = [[[target.region, target.offset], [source.region, source.offset], n] for target, source, n in list_copies(step)]
    if call is None:
        return {"op": step.op, "copies": copies}
    handle = call.handle
    params = call.make_params([None if s is None else _mark(s) for s in step.inputs], [_mark(s) for s in step.outputs])
    pointers = []
    for field in handle.interface.row["fields"]:
        if field["type"] == "pointer" and (address := getattr(params, field["name"])):
            region, offset = divmod(address, 1 << _REGION_BITS)
            pointers.append([getattr(type(params), field["name"]).offset, _PLACES[region - 1], offset])
            setattr(params, field["name"], None)
    wanted = handle.workspace_bytes
    slot = step.workspace
    is_planned = slot is not None and slot.type.size_bytes >= wanted
    return {
        "op": step.op,
        "copies": copies,
        "kernel": {
            "op": handle.op,
            "name": handle.frozen.name,
            "seal": str(handle.frozen.manifest["seal"]),
            "chain": None if handle.chain is None else {"name": handle.chain.name, "text": handle.chain.text},
            **({} if handle.library is None else {"library": handle.seal}),
        },
        "params": ctypes.string_at(ctypes.addressof(params), ctypes.sizeof(params)).hex(),
        "pointers": pointers,
        "workspace": [slot.region, slot.offset] if slot is not None and is_planned and wanted else None,
        "own_workspace_bytes": 0 if is_planned else wanted,
    }


def _mark(slot: Slot) -> int:
    """Return a number that stands for a slot's address: its region and offset can be read back."""
    return (_PLACES.index(slot.region) + 1 << _REGION_BITS) + slot.offset


@dataclass(frozen=True)
class SavedLaunch:
    """A launch as it was described: its kernel, parameters without addresses, and the places of these."""

    kernel: FrozenKernel
    chain: Chain | None
    params: bytes
    pointers: tuple[tuple[int, str, int], ...]
    workspace: tuple[str, int] | None
    own_workspace_bytes: int

    def load(self) -> KernelLibrary:
        """Return the kernel's library, built unless it is in the cache. Raises as :func:`~aicf.kernels.library.load_kernel`."""
        return load_kernel(self.kernel) if self.chain is None else load_chain(self.kernel, self.chain)

    def make_params(self, find_address: Callable[[str, int], int]) -> Any:
        """Return the parameters with addresses, by a region's name and an offset."""
        made = (ctypes.c_uint64 * -(-len(self.params) // 8))()
        ctypes.memmove(made, self.params, len(self.params))
        for place, region, offset in self.pointers:
            ctypes.c_uint64.from_buffer(made, place).value = find_address(region, offset)
        return made


def read_steps(value: Mapping[str, Any]) -> list[SavedLaunch | None]:
    """Return the launches of a description by step; raises :class:`PlanError` for what is none, and as :func:`read_launches`."""
    if value.get("version") != VERSION:
        raise PlanError(f"launches: version {value.get('version')!r}, and this is for version {VERSION}; save the program again")
    return read_launches([{"arch": value["arch"], **step} for step in value["steps"]])


def read_launches(steps: Iterable[Mapping[str, Any]]) -> list[SavedLaunch | None]:
    """Return launches as they were described, None for a copy.

    Nothing is decided: kernels are found by name and seal. Raises :class:`UnavailableError` where a step calls a library of others, which
    is looked for as in a plan without saved launches, :class:`~aicf.errors.SelectionError` for a device that they are not made for, and
    :class:`~aicf.errors.FrozenError` where the frozen set does not have one.
    """
    caps = HwCaps.of(open_device())
    kernels: dict[tuple[str, str, str], FrozenKernel] = {}
    found: list[SavedLaunch | None] = []
    for step in steps:
        row = step.get("kernel")
        if row is None:
            found.append(None)
            continue
        if "library" in row:
            # What a library takes depends on the call: the step is bound as one that is not saved.
            raise UnavailableError(f"{row['op']}: the saved program calls a library of others")
        key = (row["op"], row["name"], row["seal"])
        if key not in kernels:
            caps.find_arch(row["op"], [step["arch"]])
            kernels[key] = read_kernel(_find_folder(row["op"]), row["name"], seal=row["seal"])
        chain = None if row["chain"] is None else parse_chain(row["chain"]["name"], row["chain"]["text"])
        pointers = tuple((int(place), str(region), int(offset)) for place, region, offset in step["pointers"])
        workspace = None if step["workspace"] is None else (str(step["workspace"][0]), int(step["workspace"][1]))
        found.append(SavedLaunch(kernels[key], chain, bytes.fromhex(step["params"]), pointers, workspace, step["own_workspace_bytes"]))
    return found


def _find_folder(op: str) -> Path:
    """Return an op's folder: in the first frozen set that has the op."""
    for place in find_frozen_dirs():
        if (place / op / INDEX).is_file():
            return place / op
    raise NotFrozenError(f"op {op!r} is not frozen; the saved program needs it")
