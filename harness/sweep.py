"""The screen of a sweep: a few cold launches of every variant, each as soon as it is compiled, in a process that may be lost.

Compilers run on all cores and put what they made into a feed; one worker process takes it from there, proves each variant on the op's
own small problems, and times it on the sweep's. So neither waits for the other, and a variant that hangs, faults or takes the context with
it is a result like any other: the next one goes on in a fresh process. The same machine code is timed once, whatever it is called.

The file of points is what the time model is fitted to and judged by (:mod:`harness.model_validation`). Which of the fastest is the fastest
the screen does not say: the least of many noisy times is no time. :mod:`harness.sweeping` measures the finalists anew, in turns.
"""

from __future__ import annotations

import json
import threading
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device import open_device
from device.interface import Device, DeviceError
from harness.benchmark import TIMING_DISTRIBUTION
from harness.build import BuildResult, open_variant
from harness.compiler import Compiler
from harness.discover import load_op
from harness.errors import RecordError
from harness.inputs import make_inputs
from harness.pool import JobFeed, Lost, Worker, run_jobs
from harness.ranges import mark_range, name_range
from harness.reference import References
from harness.runner import Case
from harness.space import select_sweep_problems
from harness.spec import Launchable, Op, Problem, Variant
from harness.stats import StopRule
from harness.store import write_atomically
from harness.timing import Timer, TimingPolicy

_FORMAT = "sweep 1"
# Silence after which a variant counts as hung; the first job also starts the process and makes the inputs.
_TIMEOUT_S = 120.0


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
class Measured:
    """A point with its samples in microseconds and the SM clock of each."""

    point: SweepPoint
    samples_us: NDArray[np.float32] | None = None
    clocks_mhz: NDArray[np.float32] | None = None
    clock_label: str = ""


@dataclass(frozen=True)
class SweepSetup:
    """What the measuring process needs: the op's folder and binding, the device's name, the problems, and samples of each."""

    op_folder: Path
    binding: Path
    device: str
    problem_names: tuple[str, ...]
    num_samples: int


@dataclass(frozen=True)
class SweepJob:
    """One built variant to be proved and timed."""

    variant: Variant
    library: Path
    code_hash: str


@dataclass(frozen=True)
class Sweep:
    """What was measured, and where: ``about`` holds the device's name, the target, compiler, commit and date."""

    about: Mapping[str, str]
    points: tuple[SweepPoint, ...] = field(default=())


def make_policy(num_samples: int) -> TimingPolicy:
    """Return a policy for many quick measurements: a short warm-up and a fixed number of samples."""
    rule = StopRule(relative_interval=0.0, min_samples=num_samples, floor_samples=5, max_samples=num_samples, budget_s=0.5)
    return TimingPolicy(stop=rule, warmup_min_s=0.01, warmup_window_s=0.005, warmup_cap_s=0.1, warmup_agreement=0.02)


class SweepWorker:
    """Proves and times variants in the measuring process; the device is opened there, once."""

    def __init__(self, setup: SweepSetup) -> None:
        self.spent = False
        self._binding = setup.binding
        self._device = open_device(setup.device)
        self._op = load_op(setup.op_folder)
        self._problems = select_sweep_problems(self._op, setup.problem_names)
        self._references = References(self._op)
        self._timer = Timer(self._device, make_policy(setup.num_samples))
        self._cases: dict[str, Case] = {}

    def run(self, job: SweepJob, report: Callable[[str], None]) -> list[Measured]:
        """Return a point per problem; a variant that is wrong has the reason in each."""
        launchable = open_variant(self._op, self._binding, job.library, job.variant)
        report("opened")
        try:
            with mark_range(self._op.name, job.variant.name, "*", "prove"):
                reason = prove_variant(self._device, self._op, self._references, launchable)
            if reason:
                return make_failed(self._op, job, self._problems, reason)
            report("proved")
            found = []
            for problem in self._problems:
                found.append(self._time(job, problem, launchable))
                report(f"{problem.name}: timed")
            return found
        except DeviceError as error:
            self.spent = True
            return make_failed(self._op, job, self._problems, f"the device was lost: {error}")

    def _time(self, job: SweepJob, problem: Problem, launchable: Launchable) -> Measured:
        def make(status: str, reason: str = "", **figures: Any) -> SweepPoint:
            return SweepPoint(self._op.name, job.variant.name, problem.name, status, reason[:300], job.code_hash, **figures)

        case = self._find_case(problem)
        try:
            if reason := launchable.supports(**case.arguments):
                return Measured(make("unsupported", reason))
            case.prepare(launchable)
            name = name_range(self._op.name, job.variant.name, problem.name, "cold")
            timing = self._timer.measure_cold(lambda stream: case.launch(launchable, stream), name)
        except (RuntimeError, TypeError, ValueError) as error:
            # A launch that the device refuses is this point's result; one that takes the device with it ends this process.
            self._device.take_last_error()
            self._device.synchronize()
            return Measured(make("failed", str(error)))
        s = timing.summary
        point = make("passed", median_us=s.median, q1_us=s.q1, q3_us=s.q3, num_samples=s.num_samples, clock_mhz=timing.clock_mhz)
        return Measured(point, timing.samples_us, timing.clocks_mhz, timing.clock_label)

    def _find_case(self, problem: Problem) -> Case:
        if problem.name not in self._cases:
            case = Case(self._device, self._op, problem)
            case.upload(make_inputs(self._op, problem, TIMING_DISTRIBUTION))
            self._cases[problem.name] = case
        return self._cases[problem.name]


def make_failed(op: Op, job: SweepJob, problems: Sequence[Problem], reason: str) -> list[Measured]:
    """Return the points of a variant that was not timed."""
    name = job.variant.name
    return [Measured(SweepPoint(op.name, name, p.name, "failed", reason[:300], job.code_hash)) for p in problems]


def screen(
    factory: Callable[..., Worker[SweepJob, list[Measured]]],
    setup: SweepSetup,
    op: Op,
    build_all: Callable[[Callable[[BuildResult], None], Compiler], object],
    is_known: Callable[[BuildResult], bool] = lambda build: False,
    timeout_s: float = _TIMEOUT_S,
) -> Iterator[tuple[BuildResult, list[Measured]]]:
    """Build and measure at the same time; yield each build with its points as they come.

    ``build_all(on_result, compiler)`` builds and calls back with each result; it runs in a thread of its own. Builds that ``is_known``
    names are left out. Leaving the iterator early stops the compilers and the measuring process.
    """
    feed: JobFeed[SweepJob] = JobFeed()
    compiler = Compiler()
    problems = select_sweep_problems(op, setup.problem_names)
    failures: deque[tuple[BuildResult, list[Measured]]] = deque()
    builds: dict[str, BuildResult] = {}
    copies: dict[str, list[BuildResult]] = {}
    broken: list[BaseException] = []

    def take(build: BuildResult) -> None:
        if is_known(build):
            return
        if build.library is None:
            first_line = next((x for x in (build.error or "").splitlines() if "error" in x), build.error or "it does not compile")
            failures.append((build, make_failed(op, SweepJob(build.variant, Path(), ""), problems, first_line)))
        elif build.code_hash in copies:
            copies[build.code_hash].append(build)
        else:
            copies[build.code_hash] = []
            builds[build.variant.name] = build
            feed.put(SweepJob(build.variant, build.library, build.code_hash))

    def build_and_close() -> None:
        try:
            build_all(take, compiler)
        except BaseException as error:  # noqa: BLE001 - raised again where the points are taken
            broken.append(error)
        finally:
            feed.close()

    builder = threading.Thread(target=build_and_close, daemon=True)
    builder.start()
    measured: dict[str, list[Measured]] = {}
    try:
        for job, answer in run_jobs(factory, (setup,), feed, num_workers=1, timeout_s=timeout_s):
            points = make_failed(op, job, problems, f"{answer.kind}: {answer.detail}") if isinstance(answer, Lost) else answer
            measured[job.code_hash] = points
            yield builds[job.variant.name], points
            while failures:
                yield failures.popleft()
        builder.join()
        yield from failures
        for code_hash, others in copies.items():
            for build in others:
                yield build, [_copy_point(m, build) for m in measured[code_hash]]
    finally:
        compiler.stop()
        builder.join()
    if broken:
        raise broken[0]


def _copy_point(measured: Measured, build: BuildResult) -> Measured:
    point = measured.point
    note = f"the machine code of {point.variant}: timed once"
    return Measured(replace(point, variant=build.variant.name, reason=point.reason or note))


def prove_variant(device: Device, op: Op, references: References, launchable: Launchable) -> str:
    """Run a variant on the op's small problems with normal inputs; return "" or what was wrong first."""
    stream = device.create_stream()
    for problem in op.select_problems("verify"):
        expected = references.get(problem)
        with Case(device, op, problem) as case:
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
            for tensor, comparison in expected.compare(case.read_outputs()).items():
                if not comparison.ok:
                    return f"{problem.name}: {comparison.describe(tensor)}"
    return ""


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
