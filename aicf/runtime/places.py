"""What a step copies before its kernel runs: values that are changed in place, where the plan keeps the old one."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

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


def find_joined(steps: Sequence[Step]) -> list[list[int]]:
    """Return the numbers of copies that are one: each begins where the one before it ends, on both sides, and waits for nothing else."""
    groups: list[list[int]] = []
    for i, step in enumerate(steps):
        if step.op != "Copy":
            continue
        before = steps[i - 1] if groups and groups[-1][-1] == i - 1 else None
        if before is not None and not step.waits and step.stream == before.stream and _goes_on(before, step):
            groups[-1].append(i)
        else:
            groups.append([i])
    return [group for group in groups if len(group) > 1]


def _goes_on(before: Step, after: Step) -> bool:
    source, made, last_source, last_made = after.inputs[0], after.outputs[0], before.inputs[0], before.outputs[0]
    assert source is not None and last_source is not None
    follows = (source.region, source.offset, made.region, made.offset) == (
        last_source.region,
        last_source.end,
        last_made.region,
        last_made.end,
    )
    return follows and source.region != made.region  # within a region one might read what another has written
