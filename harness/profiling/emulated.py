"""The emulated device as a profiler: its exact counters give the same kind of answers, for PTX, without times."""

from __future__ import annotations

from collections.abc import Iterator

from harness.model.counters import find_sectors_per_request
from harness.profiling.side_by_side import Inspection, KernelInspection
from harness.profiling.summary import Summary
from harness.terminal.figures import format_count

_SECTOR_BYTES = 32
# Rows that do not begin at a sector cost a little more than they ask for.
_WASTEFUL = 1.5


def summarize_inspection(found: Inspection) -> Summary:
    """Return the summary of a variant that was inspected on the emulated device."""
    main = max(found.kernels, key=lambda k: k.totals.get("warp_instructions", 0))
    bound = "not modelled"
    if "bound" in found.model:
        bound = f"modelled, not measured: bound by {found.model['bound']}, {found.model['time']}"
    note = "counts of PTX: the machine code may differ"
    return Summary(bound, tuple(_list_facts(main)), (), tuple(_advise(main)), tuple(_describe_lines(main)), (note,))


def _list_facts(kernel: KernelInspection) -> Iterator[str]:
    t = kernel.totals
    yield ", ".join(f"{name} {value}" for name, value in kernel.figures.items())
    yield (
        f"{format_count(t.get('warp_instructions', 0))} warp instructions; {find_sectors_per_request(t):.3g} sectors a global request; "
        f"{format_count(_count_conflicts(kernel))} passes of shared memory lost to conflicts"
    )


def _count_conflicts(kernel: KernelInspection) -> int:
    return sum(kernel.totals.get(f"shared_{way}_conflicts", 0) for way in ("load", "store", "atomic"))


def _advise(kernel: KernelInspection) -> Iterator[str]:
    t = kernel.totals
    for way in ("load", "store"):
        touched, asked = _SECTOR_BYTES * t.get(f"global_{way}_sectors", 0), t.get(f"global_{way}_bytes", 0)
        if asked and touched > _WASTEFUL * asked:
            waste = f"global {way}s touch {touched / asked:.1f} times the bytes they ask for"
            yield f"{waste}: let neighbouring lanes meet neighbouring addresses"
    passes = sum(t.get(f"shared_{way}_wavefronts", 0) for way in ("load", "store", "atomic"))
    conflicts = _count_conflicts(kernel)
    if passes and conflicts > 0.1 * passes:
        yield f"{100 * conflicts / passes:.0f} % of the passes of shared memory are bank conflicts: pad rows, or swizzle columns"
    if spills := t.get("local_loads", 0) + t.get("local_stores", 0):
        yield f"{format_count(spills)} accesses to local memory: arrays indexed at run time, or spills"


def _describe_lines(kernel: KernelInspection) -> Iterator[str]:
    for line in kernel.rank_lines()[:5]:
        what, share = max(line.cost.shares.items(), key=lambda pair: pair[1])
        conflicts = f", {format_count(line.cost.conflicts)} conflicts" if line.cost.conflicts else ""
        yield f"{line.key} {100 * share:.0f} % of the {what}{conflicts}: {line.text.strip()}"
