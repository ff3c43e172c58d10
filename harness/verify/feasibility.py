"""Which large problems are judged at all: those whose memory, time and share of work a device can afford."""

from __future__ import annotations

import math
from dataclasses import replace

from device.interface import Device, DeviceArray, Graph, Stream
from harness.spec import Launchable, Op, Problem
from harness.verify.allocations import Layout
from harness.verify.case import Case, plan_arguments
from harness.verify.unlisted import settle_sizes
from harness.verify.unlisted_large import MOST_MANY_BYTES

# Blocks of a launch that are run on the emulated device, and the warp instructions that they may take together: about a second.
NUM_BLOCKS = 4
MAX_INSTRUCTIONS = 10_000_000
# What those blocks may share of the problem's work, lest an instruction limit is reached for nothing.
_MAX_SHARE_BYTES = 1e7
_MAX_SHARE_FLOPS = 1e9
# What a launch of no more blocks than those may move: of 512 bytes per warp and access, with four other instructions for each.
_MAX_WHOLE_BYTES = 512 * MAX_INSTRUCTIONS / 5
# The same of a launch of all blocks, and what a problem may move and compute that is run and judged whole.
MAX_WHOLE_INSTRUCTIONS = 50_000_000
# ... where all of its outputs can be judged in part instead.
MAX_REPEATED_INSTRUCTIONS = 16_000_000
# Warps of a launch that is run whole: even those that do next to nothing take a microsecond each.
_MAX_WHOLE_WARPS = 2**19
_MOST_WHOLE_BYTES = 4e7
# A search through more elements than fp32 can number.
_MOST_SEARCHED_BYTES = 7e7
_MOST_WHOLE_FLOPS = 1e9
_WARP = 32
# What memsets may write where a few blocks are run: a whole tensor of a GiB takes a second, and four of its pages would be looked at.
_MAX_FILLED_BYTES = 1 << 27
# A launch of all blocks is told by one whose largest size is such a part of it, which may take twice its share: some work does not shrink.
WHOLE_PART, PART_SLACK = 16, 2
LEAST_PART = 1 << 13
# Of a size so large that this is a long one too, a finer part tells as much.
FINE_PART, LEAST_FINE_PART = 256, 1 << 16
# A launch of a few blocks that moves more than this is told so, too: others are over as soon as their parts.
LEAST_TOLD_BYTES = 4e6
# Rows that are copied one by one, as they do not follow each other.
_MOST_COPIES = 1 << 15
# Of a real device's memory, so that other programs are left some.
_MEMORY_SHARE = 0.8
# A launch on a real device cannot be stopped: what would take longer is told by problems whose largest size is a part of this one's.
_MAX_LAUNCH_S = 2.0
_PARTS = (4096, 256, 16)
_MIN_PART = 64


class NotJudgedError(Exception):
    """A problem cannot be judged here; the message says why."""


class TooLongError(NotJudgedError):
    """A few of a problem's blocks take too long: all of them are not worth a try."""


def require_memory(device: Device, op: Op, problem: Problem) -> None:
    """Refuse what a device cannot hold, before it is asked for; the emulated one's memory is mostly never touched."""
    wanted = _find_span_bytes(op, problem)
    there = device.properties.memory_bytes
    if device.observer is None and wanted > _MEMORY_SHARE * there:
        raise NotJudgedError(f"its tensors span {wanted / 2**30:.1f} GiB, the device has {there / 2**30:.1f}")


def require_short_launch(device: Device, op: Op, problem: Problem, launchable: Launchable, stream: Stream) -> None:
    """Refuse a launch on a GPU that would take long, by the times of smaller ones of the same form."""
    for part in _PARTS:
        smaller = take_part(op, problem, launchable, part, _MIN_PART)
        if smaller is None:
            continue
        seconds = _time_launch(device, op, smaller, launchable, stream)
        growth = _find_work(op, problem) / _find_work(op, smaller)
        if seconds * growth > _MAX_LAUNCH_S:
            raise NotJudgedError(f"a launch would take about {seconds * growth:.0f} s: {seconds:.2g} s for {smaller.name}")


def take_part(op: Op, problem: Problem, launchable: Launchable, part: int, least: int) -> Problem | None:
    """Return the problem with the largest of its sizes divided by ``part``; None where that is below ``least`` or not served."""
    largest = max(problem.sizes, key=lambda name: problem.sizes[name])
    size = problem.sizes[largest] // part
    smaller = settle_sizes(op, problem, {**problem.sizes, largest: size}) if size >= least else None
    if smaller is None:
        return None
    smaller = replace(smaller, padding=problem.padding, orders=problem.orders, offsets=problem.offsets)
    return None if launchable.supports(**plan_arguments(op, smaller)) else smaller


def require_small_share(op: Op, problem: Problem, num_blocks: int) -> None:
    """Refuse a launch of ``num_blocks`` blocks of which the few that are run do too much."""
    cost, share = op.cost(problem), NUM_BLOCKS / num_blocks
    if cost.bytes_moved * share > _MAX_SHARE_BYTES or cost.flops * share > _MAX_SHARE_FLOPS:
        moved, computed = cost.bytes_moved * share / 1e6, cost.flops * share / 1e6
        raise NotJudgedError(
            f"{NUM_BLOCKS} of its {num_blocks} blocks move {moved:.0f} MB and do {computed:.0f} Mflop, too many to run here"
        )


def require_few_bytes(op: Op, problem: Problem) -> None:
    """Refuse a launch of few blocks that would reach the limit of instructions, however wide its accesses are."""
    moved = op.cost(problem).bytes_moved
    if moved > _MAX_WHOLE_BYTES:
        raise NotJudgedError(f"its few blocks move {moved / 1e6:.0f} MB, too many to run here")


def require_few_warps(launched: Graph) -> None:
    """Refuse to run all blocks of a launch on the emulated device that are too many for a host."""
    warps = count_warps(launched)
    if warps > _MAX_WHOLE_WARPS:
        raise NotJudgedError(f"it has {warps} warps, too many to run here")


def require_few_filled(launched: Graph) -> None:
    """Refuse a launch that fills much memory on the emulated device, whose host would have to hold it."""
    if launched.filled_bytes > _MAX_FILLED_BYTES:
        raise NotJudgedError(f"it fills {launched.filled_bytes / 1e6:.0f} MB of memory first")


def count_warps(launched: Graph) -> int:
    """Return the warps of a launch."""
    return sum(math.prod(node.grid) * -(-math.prod(node.block) // _WARP) for node in launched.kernel_nodes)


def is_affordable(op: Op, problem: Problem, *, is_judged: bool = False, is_search: bool = False) -> bool:
    """Return whether a large problem may be run and judged whole: its work is little, and so are its tensors, moved or not.

    ``is_judged``: some of its outputs, or all, are judged in part anyway; ``is_search``: it is a search for a place far away.
    """
    cost, most = op.cost(problem), _MOST_WHOLE_BYTES
    if is_judged or is_search:
        most = _MOST_SEARCHED_BYTES if is_search else MOST_MANY_BYTES
    if max(cost.bytes_moved, _find_span_bytes(op, problem)) > most or cost.flops > _MOST_WHOLE_FLOPS:
        return False
    arrays = [each for each in plan_arguments(op, problem).values() if isinstance(each, DeviceArray)]
    return sum(math.prod(a.shape[:-1]) for a in arrays if a.span_bytes != math.prod(a.shape) * a.dtype.itemsize) <= _MOST_COPIES


def _find_span_bytes(op: Op, problem: Problem) -> int:
    """Return the bytes between the first and the last element of each tensor, added up."""
    return sum(each.span_bytes for each in plan_arguments(op, problem).values() if isinstance(each, DeviceArray))


def _find_work(op: Op, problem: Problem) -> float:
    cost = op.cost(problem)
    return max(cost.bytes_moved, cost.flops)


def _time_launch(device: Device, op: Op, problem: Problem, launchable: Launchable, stream: Stream) -> float:
    """Return the seconds of one launch, after one that loads the kernel."""
    begin, end = device.create_event(), device.create_event()
    with Case(device, op, problem, Layout.EXACT) as case:
        case.prepare(launchable)
        for _ in range(2):
            stream.record(begin)
            case.launch(launchable, stream)
            stream.record(end)
            stream.synchronize()
    return end.elapsed_us(begin) * 1e-6
