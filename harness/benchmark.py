"""Timing verified variants and peers on a GPU, problem by problem, and judging each output once more after it was timed."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from device.interface import Device
from harness.inputs import make_inputs
from harness.reference import Expected, compute_expected
from harness.roofline import Floor, find_floor
from harness.runner import Case
from harness.spec import Launchable, Op, Problem
from harness.targets import Target
from harness.timing import Timer, Timing, TimingError, check_floor
from harness.verify import judge_outputs

# Uniform in [-1, 1]. Zeros and small integers switch fewer bits, draw less power and run faster.
TIMING_DISTRIBUTION = "uniform"


@dataclass(frozen=True)
class Timed:
    """What timing gave for one variant on one problem: the timings, or the reason why one or both are missing.

    ``status`` is ``passed``, ``unsupported`` or ``failed``.
    """

    name: str
    problem: str
    status: str
    reason: str = ""
    cold: Timing | None = None
    hot: Timing | None = None


def time_problem(
    device: Device, timer: Timer, op: Op, problem: Problem, entries: Sequence[tuple[str, Launchable]], target: Target
) -> Iterator[Timed]:
    """Time every (name, launchable) on one problem and yield each as it is done.

    The float64 reference is computed once; a variant whose output is wrong after it was timed, or whose time is below the roofline
    floor, is ``failed``, and so is one whose launch fails; raises :class:`DeviceError` when the device was lost with it.
    """
    expected = compute_expected(op, problem, make_inputs(op, problem, TIMING_DISTRIBUTION))
    floor = find_floor(op.cost(problem), target)
    with Case(device, op, problem) as case:
        case.upload(expected.inputs)
        for name, launchable in entries:
            try:
                timed = _time_entry(timer, case, name, launchable, expected, floor)
            except (RuntimeError, TypeError, ValueError) as error:
                # One launch that fails is its entry's result, unless it took the device with it.
                device.take_last_error()
                device.synchronize()
                timed = Timed(name, problem.name, "failed", str(error))
            yield timed


def _time_entry(timer: Timer, case: Case, name: str, launchable: Launchable, expected: Expected, floor: Floor) -> Timed:
    problem = case.problem.name
    reason = launchable.supports(**case.arguments)
    if reason:
        return Timed(name, problem, "unsupported", reason)
    case.prepare(launchable)
    case.poison(0xFF)
    cold = timer.measure_cold(lambda stream: case.launch(launchable, stream))
    check_floor(cold, floor.cold_us)
    hot = None
    try:
        hot = timer.measure_hot(lambda stream: case.launch(launchable, stream))
    except TimingError:
        raise
    except RuntimeError as error:
        # A peer's library may refuse to be captured, which short hot launches need; its cold time stands.
        case.device.take_last_error()
        case.device.synchronize()
        reason = f"no hot time: {error}"
    if hot is not None:
        check_floor(hot, floor.cached_us)
    for tensor, comparison in judge_outputs(case.read_outputs(), expected).items():
        if not comparison.ok:
            return Timed(name, problem, "failed", f"wrong after it was timed: {comparison.describe(tensor)}", cold, hot)
    return Timed(name, problem, "passed", reason, cold, hot)
