"""Plans as JSON: a loaded plan needs neither passes nor selection."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from aicf.errors import PlanError
from aicf.opset import Type, find_op
from aicf.plan.data import Plan, Slot, StateSlot, Step
from aicf.plan.fields import require_fields
from contract.documents import DocumentError, parse_json
from contract.files import write_atomically

VERSION = 1


def save_plan(plan: Plan, path: Path) -> None:
    """Write a plan; a file that is there is replaced as a whole."""
    write_atomically(path, json.dumps(to_value(plan), indent=1) + "\n")


def load_plan(path: Path) -> Plan:
    """Return a plan; raises :class:`PlanError` naming the file for one that cannot be read."""
    try:
        value = parse_json(path.read_bytes(), strict=False)
    except (OSError, DocumentError) as error:
        raise PlanError(f"{path}: cannot be read as a plan: {error}; save it again") from error
    return from_value(value, str(path))


def to_value(plan: Plan) -> dict[str, Any]:
    """Return a plan as a value of JSON."""
    return {
        "version": VERSION,
        "name": plan.name,
        "backend": plan.backend,
        "inputs": [[name, _slot_to_value(slot)] for name, slot in plan.inputs],
        "outputs": [_slot_to_value(slot) for slot in plan.outputs],
        "states": [[s.owner, s.role, _slot_to_value(s.slot)] for s in plan.states],
        "constants": [[_slot_to_value(slot), value] for slot, value in plan.constants],
        "sizes": dict(plan.sizes),
        "lower_bound_bytes": plan.lower_bound_bytes,
        "steps": [_step_to_value(step) for step in plan.steps],
        "intake": [_step_to_value(step) for step in plan.intake],
    }


def from_value(value: Mapping[str, Any], where: str) -> Plan:
    """Return the plan of a value of JSON; raises :class:`PlanError` saying where it comes from."""
    if not isinstance(value, Mapping):
        raise PlanError(f"{where}: is not a plan: {type(value).__name__} instead of an object; save it again")
    if value.get("version") != VERSION:
        raise PlanError(f"{where}: is a plan of version {value.get('version')!r}, and this is for version {VERSION}; compile it again")
    try:
        made = Plan(
            value["name"],
            value["backend"],
            tuple(_read_step(step) for step in value["steps"]),
            tuple((name, _read_slot(slot)) for name, slot in value["inputs"]),
            tuple(_read_slot(slot) for slot in value["outputs"]),
            tuple(require_fields(StateSlot(owner, role, _read_slot(slot))) for owner, role, slot in value["states"]),
            tuple((_read_slot(slot), number) for slot, number in value["constants"]),
            value["sizes"],
            value["lower_bound_bytes"],
            tuple(_read_step(step) for step in value.get("intake", ())),
        )
        return require_fields(made)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise PlanError(f"{where}: is not a plan: {error!r}; save it again") from error


def _slot_to_value(slot: Slot) -> list[Any]:
    return [slot.buffer, slot.region, slot.offset, slot.type.dtype, list(slot.type.shape)]


def _read_slot(value: list[Any]) -> Slot:
    buffer, region, offset, dtype, shape = value
    return require_fields(Slot(buffer, region, offset, require_fields(Type(dtype, tuple(shape)))))


_PLAIN = ("node", "op", "stream", "kernel", "seal", "predicted_us", "owner", "source")


def _step_to_value(step: Step) -> dict[str, Any]:
    return {
        **{name: getattr(step, name) for name in _PLAIN},
        "attrs": dict(step.attrs),
        "inputs": [None if slot is None else _slot_to_value(slot) for slot in step.inputs],
        "outputs": [_slot_to_value(slot) for slot in step.outputs],
        "waits": list(step.waits),
        "workspace": None if step.workspace is None else _slot_to_value(step.workspace),
    }


def _read_step(value: Mapping[str, Any]) -> Step:
    """Return a step; what its op has got since the plan was saved (attributes, inputs that may be left out) is at its default."""
    op = find_op(value["op"])
    attrs = op.fill({name: tuple(v) if isinstance(v, list) else v for name, v in value["attrs"].items()})
    inputs = [None if slot is None else _read_slot(slot) for slot in value["inputs"]]
    added = [None] * (len(op.input_names(len(inputs))) - len(inputs))
    made = Step(
        **{name: value[name] for name in _PLAIN},
        attrs=attrs,
        inputs=(*inputs, *added),
        outputs=tuple(_read_slot(slot) for slot in value["outputs"]),
        waits=tuple(value["waits"]),
        workspace=None if value["workspace"] is None else _read_slot(value["workspace"]),
    )
    return require_fields(made)
