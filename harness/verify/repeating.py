"""Thousands of launches of one small problem: a kernel must not depend on how often it has been launched.

The emulated device makes fewer of many instructions, so that their number, the same on every machine, is what they may cost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any

from numpy.typing import NDArray

from device.interface import Device, Stream
from device.observer import Observer
from harness.spec import Launchable, Op, Problem
from harness.verify.allocations import POISON_NAN
from harness.verify.case import Case, plan_arguments
from harness.verify.differences import describe_difference, find_different_bits
from harness.verify.findings import FaultKind, Tally
from harness.verify.reference import Expected
from harness.verify.unlisted import settle_sizes

CHECK = "launches"
# Warp instructions of all launches on the emulated device: thousands are made where each has up to 1300 of them, as a block of 256 threads
# that has little to do, 300 of one that computes a whole tile, and the least of a cluster.
_MAX_INSTRUCTIONS = 4_000_000
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
        count = limit_launches(count, _count_instructions(observer, launch, stream))
    first: dict[str, NDArray[Any]] = {}
    first_bytes: list[bytes] = []
    made = 0
    with contextlib.nullcontext() if observer is None else observer.use_options({"workers": "1"}):
        while made < count:
            case.fill_outputs(POISON_NAN)
            # What is overwritten in place is put back before each launch.
            for _ in range(min(1 if made < _NUM_SINGLE or case.is_in_place else _STRIDE, count - made)):
                launch()
                made += 1
            stream.synchronize()
            if deterministic:
                now = case.read_output_bytes()
                if now == first_bytes:
                    continue
                first_bytes = first_bytes or now
            outputs = case.read_outputs()
            first = first or outputs
            if _find_change(first, outputs, expected, made, tally, deterministic=deterministic):
                break
    tally.num_launches += made


def _count_instructions(observer: Observer, launch: Callable[[], object], stream: Stream) -> int:
    """Return the warp instructions of one launch."""
    observer.take_counters()
    with observer.observe((), counters=True):
        launch()
        stream.synchronize()
        return sum(each.counts["warp_instructions"] for each in observer.take_counters())


def limit_launches(count: int, num_instructions: int) -> int:
    """Return how many of ``count`` launches of so many warp instructions are made on the emulated device."""
    return min(count, max(_MAX_INSTRUCTIONS // max(num_instructions, 1), _LEAST_LAUNCHES))


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
