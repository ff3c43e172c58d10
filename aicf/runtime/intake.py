"""Launches that bring inputs in: an input that a plan reads in another dtype is cast as it comes from the caller's memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from aicf.backends.frozen import FAILURES, FrozenCalls
from aicf.opset import Type
from aicf.plan import Plan, Slot, Step
from aicf.plan.data import GIVEN
from aicf.runtime.launches import SavedLaunch, describe_intake, read_launches
from device import Buffer, Stream
from device.runtime import RuntimeDevice


class Intake:
    """One such launch. The caller's address is put into its parameters each time; one that the kernel cannot take is copied first."""

    def __init__(
        self, device: RuntimeDevice, launch: SavedLaunch, find_address: Callable[[str, int], int], size_bytes: int, alignment_bytes: int
    ) -> None:
        self._device, self._library = device, launch.load()
        self._params = launch.make_params(lambda region, offset: 0 if region == GIVEN else find_address(region, offset))
        (place,) = (place for place, region, _ in launch.pointers if region == GIVEN)
        self._given = ctypes.c_uint64.from_buffer(self._params, place)
        self._size_bytes, self._alignment_bytes = size_bytes, alignment_bytes
        wanted = launch.own_workspace_bytes
        self._workspace = device.allocate(wanted) if wanted else None
        self._aligned: Buffer | None = None

    def take(self, address: int, stream: Stream) -> None:
        """Queue the launch that reads what is at an address of the device."""
        if address % self._alignment_bytes:
            if self._aligned is None:
                self._aligned = self._device.allocate(self._size_bytes)
            self._device.copy(self._aligned.address, address, self._size_bytes, stream)
            address = self._aligned.address
        self._given.value = address
        self._library.launch(self._params, 0 if self._workspace is None else self._workspace.address, stream.handle)


def describe_calls(plan: Plan, calls: FrozenCalls) -> list[dict[str, Any]]:
    """Return a plan's intake as values of JSON; a kernel that cannot be had is replaced by the next one that serves, loudly."""
    return [_describe(step, calls) for step in plan.intake]


def _describe(step: Step, calls: FrozenCalls) -> dict[str, Any]:
    types = [None if slot is None else slot.type for slot in step.inputs]
    call = calls.find_sealed(step.op, types, step.attrs, step.seal)
    try:
        call.handle.load()
    except FAILURES as error:
        calls.refuse(call, error)
        call = calls.find_ready(step.op, types, step.attrs)
    return describe_intake(step, call)


def open_intake(
    device: RuntimeDevice, plan: Plan, rows: Sequence[Mapping[str, Any]], find_address: Callable[[str, int], int]
) -> dict[int, Intake]:
    """Return the launches of a plan's intake, by the number of the input. Raises as :func:`~aicf.runtime.launches.read_launches`."""
    places = {slot: i for i, (_, slot) in enumerate(plan.inputs)}
    found = {}
    for step, row, launch in zip(plan.intake, rows, read_launches(rows), strict=True):
        assert launch is not None
        (given,) = step.reads
        found[places[step.outputs[0]]] = Intake(device, launch, find_address, given.type.size_bytes, int(row["alignment_bytes"]))
    return found


def open_stacked(device: RuntimeDevice, plan: Plan, calls: FrozenCalls, index: int, count: int, address: int) -> Intake:
    """Return one launch that brings in ``count`` inputs of a number, one behind the other in the caller's memory and at an address."""
    own = plan.inputs[index][1]
    step = next(step for step in plan.intake if step.outputs[0] == own)
    rows = step.attrs["rows"]
    assert isinstance(rows, int)
    inputs = tuple(None if slot is None else _stack(slot, count) for slot in step.inputs)
    stacked = replace(step, inputs=inputs, outputs=(_stack(own, count),), attrs={**step.attrs, "rows": count * rows})
    types = [None if slot is None else slot.type for slot in inputs]
    row = describe_intake(stacked, calls.find_ready(step.op, types, stacked.attrs))
    (launch,) = read_launches([row])
    assert launch is not None
    (given,) = stacked.reads
    return Intake(device, launch, lambda region, offset: address, given.type.size_bytes, int(row["alignment_bytes"]))


def _stack(slot: Slot, count: int) -> Slot:
    return replace(slot, type=Type(slot.type.dtype, (count, *slot.type.shape)))
