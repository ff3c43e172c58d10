"""Thousands of launches of one small problem: a kernel must not depend on how often it has been launched.

The emulated device makes fewer of many instructions, so that their number, the same on every machine, is what they may cost.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from device.interface import Device, DeviceArray, Stream
from device.observer import Observer
from harness.spec import Launchable, Op, Problem
from harness.verify.allocations import POISON_NAN
from harness.verify.case import Case, plan_arguments
from harness.verify.compare import find_different_bits
from harness.verify.differences import describe_difference
from harness.verify.findings import FaultKind, Tally
from harness.verify.reference import Expected
from harness.verify.unlisted import settle_sizes

CHECK = "launches"
# Warp instructions of all launches on the emulated device: thousands are made where each has up to 1300 of them, as a block of 256 threads
# that has little to do, 300 of one that computes a whole tile, and the least of a cluster.
_MAX_INSTRUCTIONS = 4_000_000
_LEAST_LAUNCHES = 64
# Outputs that launches write to in turn: each launch has its own to be looked at, and all are filled and read at once.
_COPIES = 16
_MAX_COPIED_BYTES = 1 << 20
_ALIGNMENT = 256
# The first so many find poison; of later ones every other round finds what an earlier launch wrote.
_NUM_POISONED = 1024


def check_launches(
    device: Device, case: Case, launchable: Launchable, stream: Stream, expected: Expected, count: int, tally: Tally, *, deterministic: bool
) -> None:
    """Launch up to ``count`` times on the same inputs: each output must have the bits of the first, or be right where it may vary.

    Raises what a launch raises.
    """
    tally.note_check(CHECK)
    case.upload(expected.inputs)
    observer = device.observer
    made = 0
    with contextlib.nullcontext() if observer is None else observer.use_options({"workers": "1"}), _Outputs(device, case) as outputs:
        if observer is not None:
            count = limit_launches(count, _count_instructions(observer, case.bind(launchable, stream), stream))
        launches = outputs.bind(launchable, stream)
        while made < count and not tally.faults:
            is_poisoned = made < _NUM_POISONED or case.is_in_place or made // len(launches) % 2 == 1
            if is_poisoned:
                outputs.poison()
            wanted = launches[: count - made]
            for launch in wanted:
                launch()
            stream.synchronize()
            outputs.read(len(wanted))
            if deterministic:
                _find_change(outputs, made, tally)
            else:
                _find_wrong(outputs, made, expected, tally, last_only=made >= _NUM_POISONED)
            made += len(wanted)
    tally.num_launches += made


class _Outputs:
    """Places for the outputs of several launches, side by side: all are filled and read at once. In place there is one, the case's own."""

    def __init__(self, device: Device, case: Case) -> None:
        self._case = case
        self._slots = case.outputs
        # What is asked of an address is kept by steps of what an allocation begins at.
        self._pitches = {n: -(-slot.buffer.size_bytes // _ALIGNMENT) * _ALIGNMENT for n, slot in self._slots.items()}
        self.count = 1 if case.is_in_place else max(min(_COPIES, _MAX_COPIED_BYTES // max(sum(self._pitches.values()), 1)), 1)
        self._made = {} if self.count == 1 else {n: device.allocate(pitch * self.count) for n, pitch in self._pitches.items()}
        self._read: dict[str, NDArray[np.uint8]] = {}
        self._first: dict[str, NDArray[np.uint8]] = {}
        self._num_read = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for buffer in self._made.values():
            buffer.free()

    def bind(self, launchable: Launchable, stream: Stream) -> list[Callable[[], object]]:
        """Return what queues the launch that writes to each place."""
        if not self._made:
            return [self._case.bind(launchable, stream)]
        places: list[dict[str, DeviceArray]] = [{} for _ in range(self.count)]
        for name, buffer in self._made.items():
            slot = self._slots[name]
            for i, place in enumerate(places):
                place[name] = buffer.view(slot.shape, slot.dtype, i * self._pitches[name] + slot.start_bytes, slot.strides)
        return [self._case.bind(launchable, stream, place) for place in places]

    def poison(self) -> None:
        """Fill all places; what is overwritten in place is put back."""
        if not self._made:
            self._case.fill_outputs(POISON_NAN)
        for buffer in self._made.values():
            buffer.fill(POISON_NAN)

    def read(self, count: int) -> None:
        """Read the first ``count`` places."""
        self._num_read = count
        for name, slot in self._slots.items():
            self._read[name] = self._made[name].read(0, count * self._pitches[name]) if self._made else slot.buffer.read()
        if not self._first:
            self._first = {n: np.tile(image[: self._pitches[n]], self.count) for n, image in self._read.items()}

    def list_places(self) -> range:
        """Return the places read last."""
        return range(self._num_read)

    def list_changed(self) -> list[int]:
        """Return the places read last of which a byte is not that of the first launch's, mostly none."""
        changed: set[int] = set()
        for name, image in self._read.items():
            differs = image != self._first[name][: len(image)]
            if differs.any():
                changed.update(int(i) for i in np.unique(np.flatnonzero(differs) // self._pitches[name]))
        return sorted(changed)

    def take(self, place: int, *, first: bool = False) -> dict[str, NDArray[Any]]:
        """Return the elements at a place that was read last, or those of the first launch."""
        images = self._first if first else self._read
        return {
            n: np.ascontiguousarray(
                np.ndarray(slot.shape, slot.dtype, images[n].data, place * self._pitches[n] + slot.start_bytes, slot.strides)
            )
            for n, slot in self._slots.items()
        }


def _count_instructions(observer: Observer, launch: Callable[[], object], stream: Stream) -> int:
    """Return the warp instructions of one launch."""
    # With counters a kernel would be decoded once more.
    with observer.use_options({"instruction_limit": str(_MAX_INSTRUCTIONS * _LEAST_LAUNCHES)}):
        launch()
        stream.synchronize()
        return int(observer.get_option("instructions")) - int(observer.get_option("matrix_work"))


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


def _find_change(outputs: _Outputs, made: int, tally: Tally) -> None:
    """Put into the tally the first of the launches read last, behind ``made`` others, that gives other bits than the first of all."""
    for place in outputs.list_changed():
        first = outputs.take(0, first=True)
        for name, values in outputs.take(place).items():
            differs = find_different_bits(values, first[name])
            if differs.any():
                what = f"launch {made + place + 1} of the same call gives other bits than the first"
                tally.add(FaultKind.LAUNCH_DEPENDENT, CHECK, describe_difference(what, name, first[name], values, differs))
                return


def _find_wrong(outputs: _Outputs, made: int, expected: Expected, tally: Tally, *, last_only: bool) -> None:
    """Put into the tally the first of the launches read last, or the last of them alone, whose output is not right."""
    for place in outputs.list_places()[-1 if last_only else 0 :]:
        if detail := expected.find_wrong(outputs.take(place)):
            tally.add(FaultKind.LAUNCH_DEPENDENT, CHECK, f"launch {made + place + 1} of the same call: {detail}")
            return
