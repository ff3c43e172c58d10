"""Timing a wide sample of an op's tunable space on a GPU, quickly, and the file that keeps what was measured.

Each variant is first proved on the op's own small problems; then a few cold launches of the sweep's problems are timed, variants in an
order that mixes kernels, so that a drift of the clock does not look like a difference between kernels. The file is what the time model
is fitted to and judged by (:mod:`harness.model_validation`).
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from device.interface import Device, DeviceError
from harness.build import BuildResult, open_variant
from harness.discover import LoadedOp
from harness.errors import RecordError
from harness.inputs import make_inputs
from harness.reference import References
from harness.runner import Case
from harness.spec import Launchable, Problem
from harness.stats import StopRule
from harness.store import write_atomically
from harness.timing import Timer, TimingError, TimingPolicy
from harness.verify import judge_outputs

_FORMAT = "sweep 1"


@dataclass(frozen=True)
class SweepPoint:
    """One variant on one problem: the median of its cold times with the quartiles, or the reason why there is none.

    ``status`` is ``passed``, ``unsupported`` or ``failed``. ``code_hash`` is that of the machine code which was timed.
    """

    op: str
    variant: str
    problem: str
    status: str
    reason: str = ""
    code_hash: str = ""
    median_us: float = 0.0
    q1_us: float = 0.0
    q3_us: float = 0.0
    num_samples: int = 0
    clock_mhz: float | None = None


@dataclass(frozen=True)
class Sweep:
    """What was measured, and where: ``about`` holds the device's name, the target, compiler, commit and date."""

    about: Mapping[str, str]
    points: tuple[SweepPoint, ...] = field(default=())


def make_policy(num_samples: int) -> TimingPolicy:
    """Return a policy for many quick measurements: a short warm-up and a fixed number of samples."""
    rule = StopRule(relative_interval=0.0, min_samples=num_samples, floor_samples=5, max_samples=num_samples, budget_s=0.5)
    return TimingPolicy(stop=rule, warmup_min_s=0.01, warmup_window_s=0.005, warmup_cap_s=0.1, warmup_agreement=0.02)


def time_sweep(
    device: Device, loaded: LoadedOp, builds: Sequence[BuildResult], binding: Path, problems: Sequence[Problem], num_samples: int
) -> Iterator[SweepPoint]:
    """Prove and time every build on every problem; yields points as they come. Ends early when the device is lost."""
    op = loaded.op
    timer = Timer(device, make_policy(num_samples))
    references = References(op)
    opened: dict[str, Launchable] = {}
    for build in builds:
        name = build.variant.name
        reason = build.error or ""
        if build.library is not None:
            opened[name] = open_variant(op, binding, build.library, build.variant)
            reason = prove_variant(device, loaded, references, opened[name])
        if reason:
            opened.pop(name, None)
            for problem in problems:
                yield SweepPoint(op.name, name, problem.name, "failed", reason[:300], build.code_hash)
    mixed = sorted(builds, key=lambda b: hashlib.sha256(b.variant.name.encode()).digest())
    try:
        for problem in problems:
            with Case(device, op, problem) as case:
                case.upload(make_inputs(op, problem, "uniform"))
                for build in mixed:
                    if build.variant.name in opened:
                        yield _time_point(timer, case, build, opened[build.variant.name])
    finally:
        timer.close()


def prove_variant(device: Device, loaded: LoadedOp, references: References, launchable: Launchable) -> str:
    """Run a variant on the op's small problems with normal inputs; return "" or what was wrong first."""
    stream = device.create_stream()
    for problem in loaded.op.select_problems("verify"):
        expected = references.get(problem)
        with Case(device, loaded.op, problem) as case:
            if launchable.supports(**case.arguments):
                continue
            case.upload(expected.inputs)
            case.prepare(launchable)
            case.poison(0xFF)
            try:
                case.launch(launchable, stream)
                stream.synchronize()
            except RuntimeError as error:
                device.take_last_error()
                device.synchronize()
                return f"{problem.name}: {error}"
            for tensor, comparison in judge_outputs(case.read_outputs(), expected).items():
                if not comparison.ok:
                    return f"{problem.name}: {comparison.describe(tensor)}"
    return ""


def _time_point(timer: Timer, case: Case, build: BuildResult, launchable: Launchable) -> SweepPoint:
    def make(status: str, reason: str = "", **figures: Any) -> SweepPoint:
        return SweepPoint(case.op.name, build.variant.name, case.problem.name, status, reason[:300], build.code_hash, **figures)

    try:
        reason = launchable.supports(**case.arguments)
        if reason:
            return make("unsupported", reason)
        case.prepare(launchable)
        timing = timer.measure_cold(lambda stream: case.launch(launchable, stream))
    except (TimingError, RuntimeError, ValueError) as error:
        # A launch that the device refuses is this point's result; one that takes the device with it ends the sweep here.
        case.device.take_last_error()
        case.device.synchronize()
        return make("failed", str(error))
    s = timing.summary
    return make("passed", median_us=s.median, q1_us=s.q1, q3_us=s.q3, num_samples=s.num_samples, clock_mhz=timing.clock_mhz)


def run_sweep(points: Iterator[SweepPoint], on_point: Callable[[SweepPoint], None]) -> list[SweepPoint]:
    """Collect points; a device that is lost on the way keeps what was measured before."""
    found: list[SweepPoint] = []
    try:
        for point in points:
            found.append(point)
            on_point(point)
    except DeviceError as error:
        on_point(SweepPoint("", "", "", "failed", f"the device was lost: {error}"))
    return found


def describe_point(point: SweepPoint) -> str:
    """Say a point in a few words."""
    result = f"{point.median_us:.2f} us" if point.status == "passed" else f"{point.status}: {point.reason}"
    return f"{point.variant} on {point.problem}: {result}"


def save_sweep(path: Path, sweep: Sweep) -> None:
    """Write a sweep as JSON, a point a line."""
    lines = ",\n".join(json.dumps(asdict(p)) for p in sweep.points)
    write_atomically(path, f'{{"format": "{_FORMAT}", "about": {json.dumps(dict(sweep.about))}, "points": [\n{lines}\n]}}\n')


def load_sweep(path: Path) -> Sweep:
    """Read what :func:`save_sweep` wrote; raises :class:`RecordError` for anything else."""
    try:
        data = json.loads(path.read_text())
        if data["format"] != _FORMAT:
            raise RecordError(f"{path} has format {data['format']!r}, not {_FORMAT!r}")
        return Sweep(data["about"], tuple(SweepPoint(**p) for p in data["points"]))
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RecordError(f"{path} holds no sweep: {error}") from error
