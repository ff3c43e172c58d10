"""What a step copies before its kernel runs: values that are changed in place, where the plan keeps the old one."""

from __future__ import annotations

from collections.abc import Iterator

from aicf.opset import find_op
from aicf.plan import Slot, Step


def list_copies(step: Step) -> Iterator[tuple[Slot, Slot, int]]:
    """Yield target, source and bytes of each copy; a step without a kernel is one."""
    if step.op == "Copy":
        assert step.inputs[0] is not None
        yield step.outputs[0], step.inputs[0], step.inputs[0].type.size_bytes
        return
    op = find_op(step.op)
    for i, made in enumerate(step.outputs):
        place = op.find_taken(i, len(step.inputs), step.attrs)
        taken = None if place is None else step.inputs[place]
        if taken is not None and (taken.region, taken.offset) != (made.region, made.offset):
            yield made, taken, made.type.size_bytes
