"""A plan's launches as data for programs without Python: kernels by seal, parameters as bytes, and which of them are addresses.

``deploy`` turns it into C. A parameter that is an address is told by its place in the C struct, a region of memory, and an offset there.
"""

from __future__ import annotations

import ctypes
from typing import Any

from aicf.backends.frozen import FrozenCall
from aicf.opset import find_dtype
from aicf.plan import Plan, Slot, Step
from aicf.plan.data import REGIONS, StateSlot
from aicf.runtime.places import list_copies

VERSION = 1
# Regions lie further apart than any is large.
_REGION_BITS = 48
Value = dict[str, Any]


def describe_launches(plan: Plan, calls: list[FrozenCall | None]) -> Value:
    """Return what runs a plan without Python, as a value of JSON."""
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
    }


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
            pointers.append([getattr(type(params), field["name"]).offset, REGIONS[region - 1], offset])
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
        },
        "params": ctypes.string_at(ctypes.addressof(params), ctypes.sizeof(params)).hex(),
        "pointers": pointers,
        "workspace": [slot.region, slot.offset] if slot is not None and is_planned and wanted else None,
        "own_workspace_bytes": 0 if is_planned else wanted,
    }


def _mark(slot: Slot) -> int:
    """Return a number that stands for a slot's address: its region and offset can be read back."""
    return (REGIONS.index(slot.region) + 1 << _REGION_BITS) + slot.offset
