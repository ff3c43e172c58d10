"""Whether a plan can be right, judged from its steps alone, without knowledge of how it was made.

Of any two buffers that share a byte, all accesses of one must be over before the other is written, by the order of streams and waits. What
is read must have been written before, or be there from the start.
"""

from __future__ import annotations

from collections.abc import Iterator

from aicf.errors import PlanError
from aicf.opset import find_dtype, find_op
from aicf.opset.flat import find_offsets, split_inputs
from aicf.plan.data import ALIGNMENT_BYTES, CONSTANT, GIVEN, INPUT, OUTPUT, Plan, Slot, Step


def verify(plan: Plan) -> None:
    """Raise :class:`~aicf.errors.PlanError` naming the first fault and its step."""
    for fault in find_faults(plan):
        raise PlanError(f"plan {plan.name}: {fault}")


def find_faults(plan: Plan) -> Iterator[str]:
    """Yield what is wrong with a plan."""
    yield from _check_slots(plan)
    yield from _check_intake(plan)
    before = _find_predecessors(plan)
    yield from _check_steps(plan)
    yield from _check_lists(plan)
    writers: dict[int, int] = {}
    accesses: dict[int, int] = {}  # by buffer: its steps, a bit each
    slots: dict[int, Slot] = {}
    for i, step in enumerate(plan.steps):
        for slot in step.writes:
            if slot.buffer in writers:
                yield f"step {i} ({step.op}) writes buffer {slot.buffer}, which step {writers[slot.buffer]} has written"
            writers[slot.buffer] = i
            slots[slot.buffer] = slot
            accesses[slot.buffer] = accesses.get(slot.buffer, 0) | 1 << i
        for slot in step.reads:
            slots.setdefault(slot.buffer, slot)
            accesses[slot.buffer] = accesses.get(slot.buffer, 0) | 1 << i
    yield from _check_reads(plan, before, writers)
    yield from _check_sharing(plan, before, writers, accesses, slots)
    yield from _check_outputs(plan, writers)


def _check_intake(plan: Plan) -> Iterator[str]:
    """Check that each launch that brings something in has the caller's memory for its only operand, and writes one input."""
    inputs = [slot for _, slot in plan.inputs]
    written = []
    for step in plan.intake:
        if [slot.region for slot in step.reads] != [GIVEN] or len(list(step.writes)) != 1:
            yield f"{step.op}, which brings an input in, has other operands than the caller's, or more results than one"
        written += list(step.writes)
    yield from (f"{slot} is brought in, and is no input" for slot in written if slot not in inputs)
    yield from (f"{slot} is brought in twice" for i, slot in enumerate(written) if slot in written[:i])


def _find_predecessors(plan: Plan) -> list[int]:
    """Return for each step those that are over when it begins, a bit each."""
    before: list[int] = []
    last: dict[int, int] = {}
    for i, step in enumerate(plan.steps):
        found = 0
        for j in (*step.waits, *((last[step.stream],) if step.stream in last else ())):
            if j < i:  # one that waits for a later one would wait for ever: _check_steps says so
                found |= before[j] | 1 << j
        before.append(found)
        last[step.stream] = i
    return before


def _check_slots(plan: Plan) -> Iterator[str]:
    named = [("an input", slot) for _, slot in plan.inputs] + [("an output", slot) for slot in plan.outputs]
    named += [(f"state {s.owner} {s.role}", s.slot) for s in plan.states] + [("a constant", slot) for slot, _ in plan.constants]
    named += [(f"step {i} ({step.op})", slot) for i, step in enumerate(plan.steps) for slot in (*step.reads, *step.writes)]
    for what, slot in named:
        if slot.region not in plan.sizes:
            yield f"{what} is in region {slot.region!r}, which does not exist"
        elif slot.offset < 0 or slot.end > plan.sizes[slot.region]:
            yield f"{what}: {slot} is not inside the {plan.sizes[slot.region]} bytes of its region"
        elif slot.offset % ALIGNMENT_BYTES:
            yield f"{what}: {slot} is not aligned to {ALIGNMENT_BYTES} bytes"


def _check_steps(plan: Plan) -> Iterator[str]:
    """Check each step by itself: what it writes overlaps nothing else of it, but for the pairs that its op takes in place."""
    for i, step in enumerate(plan.steps):
        if late := [j for j in step.waits if not 0 <= j < i]:
            yield f"step {i} ({step.op}) waits for step {late[0]}, which does not come before it"
        written = list(step.writes)
        for k, slot in enumerate(written):
            yield from (f"step {i} ({step.op}) writes {slot} twice" for other in written[:k] if _overlap(slot, other))
            for other in step.reads:
                if _overlap(slot, other) and not _is_in_place(step, k, other):
                    yield f"step {i} ({step.op}) writes {slot} over {other}, which it reads"


def _is_in_place(step: Step, output: int, read: Slot) -> bool:
    if output >= len(step.outputs):
        return False
    taken = find_op(step.op).find_taken(output, len(step.inputs), step.attrs)
    source, slot = None if taken is None else step.inputs[taken], step.outputs[output]
    return source == read and (read.region, read.offset, read.type) == (slot.region, slot.offset, slot.type)


def _check_lists(plan: Plan) -> Iterator[str]:
    """Check that what a launch takes as one lies as one."""
    for i, step in enumerate(plan.steps):
        if step.op != "flat":
            continue
        operands, members = split_inputs(step.inputs, step.attrs)
        made = [step.outputs[k : k + members] for k in range(0, len(step.outputs), members)]
        for slots in (each for each in (*operands, *made) if len(each) > 1):
            offsets, _ = find_offsets([slot.type for slot in slots])
            for slot, offset in zip(slots, offsets, strict=True):
                place = slots[0].offset + offset * find_dtype(slot.type.dtype).itemsize
                if (slot.region, slot.offset) != (slots[0].region, place):
                    yield f"step {i} ({step.op}) takes {slot} as a part of what begins at {slots[0]}, where it would be at {place}"


def _check_reads(plan: Plan, before: list[int], writers: dict[int, int]) -> Iterator[str]:
    from_start = (
        {slot.buffer for _, slot in plan.inputs} | {s.slot.buffer for s in plan.states} | {slot.buffer for slot, _ in plan.constants}
    )
    for i, step in enumerate(plan.steps):
        for slot in step.reads:
            if slot.buffer in from_start:
                continue
            writer = writers.get(slot.buffer)
            if writer is None:
                yield f"step {i} ({step.op}) reads {slot}, which nothing writes"
            elif not before[i] >> writer & 1:
                yield f"step {i} ({step.op}) reads {slot} and does not wait for step {writer}, which writes it"


def _check_sharing(
    plan: Plan, before: list[int], writers: dict[int, int], accesses: dict[int, int], slots: dict[int, Slot]
) -> Iterator[str]:
    regions: dict[str, list[Slot]] = {}
    for slot in slots.values():
        regions.setdefault(slot.region, []).append(slot)
    for inside in regions.values():
        inside.sort(key=lambda slot: slot.offset)
        active: list[Slot] = []
        for slot in inside:
            active = [other for other in active if other.end > slot.offset]
            for other in active:
                if _overlap(slot, other) and not (
                    _is_over(other, slot, before, writers, accesses) or _is_over(slot, other, before, writers, accesses)
                ):
                    yield f"buffers {other.buffer} ({other}) and {slot.buffer} ({slot}) share bytes while both are alive"
            active.append(slot)


def _is_over(first: Slot, second: Slot, before: list[int], writers: dict[int, int], accesses: dict[int, int]) -> bool:
    """Whether all accesses of the first are over when the second is written; the step that writes it in place is one of them."""
    writer = writers.get(second.buffer)
    if writer is None:
        return False
    return not accesses[first.buffer] & ~(before[writer] | 1 << writer)


def _check_outputs(plan: Plan, writers: dict[int, int]) -> Iterator[str]:
    for i, slot in enumerate(plan.outputs):
        if slot.region != OUTPUT or slot.buffer not in writers:
            yield f"output {i} is at {slot}, and nothing writes it there"
    for i, step in enumerate(plan.steps):
        for slot in step.writes:
            if slot.region in (CONSTANT, INPUT):
                yield f"step {i} ({step.op}) writes {slot}: constants and inputs are for callers to write"


def _overlap(a: Slot, b: Slot) -> bool:
    return a.region == b.region and a.offset < b.end and b.offset < a.end
