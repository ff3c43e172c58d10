"""Timing verified variants and peers on a GPU, problem by problem, all in the same rounds; each output is judged afterwards.

Whoever is timed later meets a warmer GPU; in rounds of A B ... B A everybody meets the same one.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device.interface import Device
from harness.model.roofline import find_floor
from harness.nvtx_ranges import name_range
from harness.spec import Launchable, Op, Problem, Role
from harness.targets import Target
from harness.timing.gpu_lock import GpuLock
from harness.timing.placement import NUM_PLACES, Placements
from harness.timing.results import check_floor
from harness.timing.stats import TOO_SLOW
from harness.timing.timer import Launch, Mode, Subject, Timer, Timing, TimingError
from harness.verify.allocations import POISON_FINITE, POISON_NAN
from harness.verify.inputs import make_inputs
from harness.verify.reference import Expected, compute_expected

# Uniform in [-1, 1]. Zeros and small integers switch fewer bits, draw less power and run faster.
TIMING_DISTRIBUTION = "uniform"
# In a race: one whose launch takes as many times as long as the fastest so far, and longer than rounds with it may take, is not timed.
_HOPELESS, _ROUND_US = 20.0, 2000.0


@dataclass(frozen=True)
class Timed:
    """What timing gave for one variant on one problem: the timings, or the reason why one or both are missing.

    ``status`` is ``passed``, ``unsupported``, ``failed`` or ``too slow`` (timed briefly or not at all, not judged); ``checked`` says what
    of the outputs was judged. Of a failed one the times may be there all the same, where it ran and was wrong. ``error`` is the largest
    error of its outputs over the op's bound, where it was asked for and every element was written.
    """

    name: str
    problem: str
    status: str
    reason: str = ""
    cold: Timing | None = None
    hot: Timing | None = None
    checked: str = "whole"
    error: float | None = None


@dataclass
class _Entry:
    """One contender of a problem as its timing proceeds; ``status`` is "" while nothing is wrong."""

    name: str
    launchable: Launchable
    launches: Mapping[Mode, Launch]
    subjects: dict[Mode, Subject] = field(default_factory=dict)
    timings: dict[Mode, Timing] = field(default_factory=dict)
    status: str = ""
    reason: str = ""
    error: float | None = None

    @property
    def median_us(self) -> float:
        """That of the first mode that was timed."""
        return next(iter(self.timings.values())).summary.median

    def fail(self, reason: str) -> None:
        self.status, self.reason = "failed", reason


def expect_timed(op: Op, problem: Problem) -> Expected:
    """Return the inputs of a problem as it is timed, and what is expected of its outputs."""
    return compute_expected(op, problem, make_inputs(op, problem, TIMING_DISTRIBUTION))


def time_problem(
    device: Device,
    timer: Timer,
    op: Op,
    problem: Problem,
    entries: Sequence[tuple[str, Launchable]],
    target: Target,
    modes: Sequence[Mode] = tuple(Mode),
    expected: Expected | None = None,
    *,
    with_errors: bool = False,
    num_places: int = NUM_PLACES,
    give_up_beyond: float = math.inf,
    always_judged: Collection[str] = (),
) -> Iterator[Timed]:
    """Time all (name, launchable) on one problem together in each mode, and yield each.

    Cold launches of short ones take ``num_places`` places in memory in turn. ``expected`` is what :func:`expect_timed` would compute,
    where it is known already; ``with_errors`` finds out how far from it each output is. Who is slower than ``give_up_beyond`` times the
    fastest that is right gets the few samples that show it, and is ``too slow``: its output is not judged, unless its name is among
    ``always_judged``. Whose launch takes longer by far is not timed at all.

    The float64 reference is computed once; a variant whose output is wrong after it was timed, or whose time is below the roofline
    floor, is ``failed``, and so is one whose launch fails; raises :class:`DeviceError` when the device was lost with it.
    """
    expected = expected or expect_timed(op, problem)
    floor = find_floor(op.cost(problem), target)
    with Placements(device, op, problem, num_places) as case:
        case.upload(expected.inputs)
        all_entries = [_Entry(name, launchable, _bind(case, launchable)) for name, launchable in entries]
        with GpuLock(device.properties.uuid).hold():
            _prepare_entries(timer, case, all_entries, modes, is_race=math.isfinite(give_up_beyond))
            for mode in modes:
                _measure_entries(timer, case, all_entries, mode, give_up_beyond)
        floors_us = {Mode.COLD: floor.cold_us, Mode.HOT: floor.cached_us}
        _judge_entries(timer, case, all_entries, expected, floors_us, give_up_beyond, always_judged, with_error=with_errors)
        for entry in all_entries:
            timings = (entry.timings.get(Mode.COLD), entry.timings.get(Mode.HOT))
            yield Timed(entry.name, problem.name, entry.status or "passed", entry.reason, *timings, expected.describe(), entry.error)


def _judge_entries(
    timer: Timer,
    case: Placements,
    entries: Sequence[_Entry],
    expected: Expected,
    floors_us: Mapping[Mode, float],
    give_up_beyond: float,
    always_judged: Collection[str],
    *,
    with_error: bool,
) -> None:
    """Judge the fastest first: who is too far behind one that is right need not be."""
    limit_us = math.inf
    timed = [e for e in entries if e.timings and not e.status]
    for entry in sorted(timed, key=lambda e: e.median_us):
        if entry.median_us > limit_us and entry.name not in always_judged:
            entry.status, entry.reason = TOO_SLOW, f"{entry.median_us:.1f} us, more than {give_up_beyond} times the fastest: not judged"
            continue
        _judge(timer, case, entry, expected, floors_us, with_error=with_error)
        if not entry.status:
            limit_us = min(limit_us, entry.median_us * give_up_beyond)


def _bind(case: Placements, launchable: Launchable) -> dict[Mode, Launch]:
    return {mode: case.choose(launchable, mode) for mode in Mode}


def _name_range(case: Placements, entry: _Entry, mode: Mode) -> str:
    return name_range(case.op.name, entry.name, case.problem.name, mode)


def _prepare_entries(timer: Timer, case: Placements, entries: Sequence[_Entry], modes: Sequence[Mode], *, is_race: bool) -> None:
    """Find out who serves the problem, allocate what they need, and how each is to be timed."""
    for entry in entries:
        with _own_failure(case, entry):
            if reason := entry.launchable.supports(**case.arguments):
                entry.status, entry.reason = "unsupported", reason
    serving = [e for e in entries if not e.status]
    if serving:
        case.prepare(*(e.launchable for e in serving))
        case.poison(POISON_NAN)
    fastest_us = math.inf
    for entry in serving:
        with _own_failure(case, entry):
            launch = entry.launches[Mode.COLD]
            if is_race and (once_us := timer.time_once(launch)) > max(_HOPELESS * fastest_us, _ROUND_US):
                entry.status = TOO_SLOW
                entry.reason = f"a launch took {once_us:.0f} us, where the fastest so far takes {fastest_us:.0f}: not timed"
                continue
            entry.subjects[Mode.COLD] = timer.prepare(launch, Mode.COLD, _name_range(case, entry, Mode.COLD))
            if is_race:
                fastest_us = min(fastest_us, entry.subjects[Mode.COLD].cost_us)
    for entry in (e for e in serving if not e.status and Mode.HOT in modes):
        try:
            entry.subjects[Mode.HOT] = timer.prepare(entry.launches[Mode.HOT], Mode.HOT, _name_range(case, entry, Mode.HOT))
        except RuntimeError as error:
            # A peer's library may refuse to be captured, which short hot launches need; its cold time stands.
            _recover(case)
            entry.reason = f"no hot time: {error}"


def _measure_entries(timer: Timer, case: Placements, entries: Sequence[_Entry], mode: Mode, give_up_beyond: float) -> None:
    """Time everybody who can be timed together; one that fails on the way is left out, and the others are timed anew."""
    while True:
        serving = [e for e in entries if not e.status and mode in e.subjects]
        if not serving:
            return
        try:
            timings = timer.measure([e.subjects[mode] for e in serving], give_up_beyond=give_up_beyond)
        except TimingError as error:
            culprit = next((e for e in serving if e.subjects[mode] is error.subject), None)
            if culprit is None:
                raise
            _recover(case)
            culprit.fail(str(error))
            continue
        for entry, timing in zip(serving, timings, strict=True):
            entry.timings[mode] = timing
        return


def _judge(timer: Timer, case: Placements, entry: _Entry, expected: Expected, floors_us: Mapping[Mode, float], *, with_error: bool) -> None:
    """Hold the times against the floors, and the output of more samples, timed like the others, against the reference."""
    with _own_failure(case, entry):
        for mode, timing in entry.timings.items():
            check_floor(timing.summary.median, floors_us[mode], mode)
        wrong, entry.error = judge_output(timer, case, [entry.subjects[mode] for mode in entry.timings], expected, with_error=with_error)
        if wrong:
            entry.fail(wrong)


def check_output(timer: Timer, case: Placements, subjects: Sequence[Subject], expected: Expected) -> str:
    """Take more samples of each of a launch's subjects, one a place, over poison; return "" or what is wrong with the output."""
    return judge_output(timer, case, subjects, expected, with_error=False)[0]


def judge_output(
    timer: Timer, case: Placements, subjects: Sequence[Subject], expected: Expected, *, with_error: bool
) -> tuple[str, float | None]:
    """Do what :func:`check_output` does; return also the largest error over the bound, None where it was not asked for or not written."""
    outputs, unwritten_by_name = _run_over(POISON_NAN, timer, case, subjects)
    if any(unwritten.any() for unwritten in unwritten_by_name.values()):
        # An integer may have the poison's value: what was not written holds another poison, too.
        _, again = _run_over(POISON_FINITE, timer, case, subjects)
        unwritten_by_name = {name: unwritten & again[name] for name, unwritten in unwritten_by_name.items()}
    # An update may round to the value that was there: what is updated in place is judged by its values alone.
    updated = {t.name for t in case.op.tensors if t.role is Role.INOUT}
    for name, unwritten in unwritten_by_name.items():
        if unwritten.any() and name not in updated:
            return f"wrong after it was timed: {np.count_nonzero(unwritten)} elements of {name} were not written", None
    if with_error:
        found = expected.compare(outputs)
        error = max((c.max_error_ratio for c in found.values()), default=0.0)
        wrong = next((c.describe(name) for name, c in found.items() if not c.ok), "")
    else:
        error, wrong = None, expected.find_wrong(outputs)
    return f"wrong after it was timed: {wrong}" if wrong else "", error


def _run_over(
    poison: int, timer: Timer, case: Placements, subjects: Sequence[Subject]
) -> tuple[dict[str, NDArray[Any]], dict[str, NDArray[np.bool_]]]:
    """Return the outputs of more samples over the poison, and which of their elements hold it."""
    case.poison(poison)
    timer.run_batch([s for s in subjects for _ in range(case.num_places)])
    outputs = case.read_outputs()
    return outputs, case.find_unwritten(outputs)


@contextmanager
def _own_failure(case: Placements, entry: _Entry) -> Iterator[None]:
    """Within the block, an error of one launch is its entry's result, unless it took the device with it."""
    try:
        yield
    except (RuntimeError, TypeError, ValueError) as error:
        _recover(case)
        entry.fail(str(error))


def _recover(case: Placements) -> None:
    """Clear the last error; raises :class:`DeviceError` where the device is lost."""
    case.device.take_last_error()
    case.device.synchronize()
