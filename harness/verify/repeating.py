"""Thousands of launches of one small problem: a kernel must not depend on how often it has been launched.

The emulated device makes fewer of many warps, so that their number, the same on every machine, is what they may cost.
"""

from __future__ import annotations

import contextlib
from typing import Any

from numpy.typing import NDArray

from device.interface import Device, Stream
from harness.spec import Launchable, Op, Problem
from harness.verify.allocations import POISON_NAN
from harness.verify.case import Case, plan_arguments
from harness.verify.differences import describe_difference, find_different_bits
from harness.verify.feasibility import count_warps
from harness.verify.findings import FaultKind, Tally
from harness.verify.reference import Expected
from harness.verify.unlisted import settle_sizes

CHECK = "launches"
# On the emulated device: all of a block of up to 256 threads; of more warps as many as are looked at one by one, or as have so many
# warps in all: 768 of a block of 1024 threads, 96 of a cluster of eight such blocks.
_MAX_CHEAP_WARPS = 8
_MAX_WARPS = 3 * 2**13
_LEAST_LAUNCHES = 64
# The first so many are looked at one by one: what is wrong now and then, at every 1000th launch say, is overwritten by the next one.
_NUM_SINGLE = 1024
_STRIDE = 16


def check_launches(
    device: Device, case: Case, launchable: Launchable, stream: Stream, expected: Expected, count: int, tally: Tally, *, deterministic: bool
) -> None:
    """Launch up to ``count`` times on the same inputs: the output must keep the bits of the first, or stay right where it may vary.

    Outputs are poisoned before, and looked at after, each of the first launches, and every few later ones. Raises what a launch raises.
    """
    tally.note_check(CHECK)
    case.upload(expected.inputs)
    launch = case.bind(launchable, stream)
    observer = device.observer
    if observer is not None:
        with device.capture(stream) as graphs:
            launch()
        count = limit_launches(count, count_warps(graphs[0]))
    first: dict[str, NDArray[Any]] = {}
    made = 0
    with contextlib.nullcontext() if observer is None else observer.use_options({"workers": "1"}):
        while made < count:
            case.fill_outputs(POISON_NAN)
            # What is overwritten in place is put back before each launch.
            for _ in range(min(1 if made < _NUM_SINGLE or case.is_in_place else _STRIDE, count - made)):
                launch()
                made += 1
            stream.synchronize()
            outputs = case.read_outputs()
            first = first or outputs
            if _find_change(first, outputs, expected, made, tally, deterministic=deterministic):
                break
    tally.num_launches += made


def limit_launches(count: int, num_warps: int) -> int:
    """Return how many of ``count`` launches of so many warps are made on the emulated device."""
    if num_warps <= _MAX_CHEAP_WARPS:
        return count
    return min(count, max(min(_MAX_WARPS // num_warps, _NUM_SINGLE), _LEAST_LAUNCHES))


def shrink(op: Op, problem: Problem, launchable: Launchable) -> Problem:
    """Return the problem with each size 1 with which the variant still serves it: a row takes a block or a cluster of its own."""
    for name in problem.sizes:
        smaller = settle_sizes(op, problem, dict(problem.sizes) | {name: 1})
        if smaller is not None and smaller.sizes != problem.sizes and not launchable.supports(**plan_arguments(op, smaller)):
            problem = smaller
    return problem


def _find_change(
    first: dict[str, NDArray[Any]],
    outputs: dict[str, NDArray[Any]],
    expected: Expected,
    index: int,
    tally: Tally,
    *,
    deterministic: bool,
) -> bool:
    for name, values in outputs.items():
        if deterministic:
            if values.tobytes() == first[name].tobytes():
                continue
            differs = find_different_bits(values, first[name])
            detail = describe_difference(
                f"launch {index} of the same call gives other bits than the first", name, first[name], values, differs
            )
        else:
            detail = expected.find_wrong({name: values})
            if not detail:
                continue
            detail = f"launch {index} of the same call: {detail}"
        tally.add(FaultKind.LAUNCH_DEPENDENT, CHECK, detail)
        return True
    return False
