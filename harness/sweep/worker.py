"""The measuring process of a sweep: verifies variants on the op's small problems and times them on those of the sweep.

Several of these share a GPU and take turns (:class:`harness.timing.gpu_lock.GpuLock`): while one has the GPU, the others load their next
variant, judge outputs and send what they found. A variant's turn is one stretch: launches on the small problems, then the timing. What
the proof found is judged after the turn, on the host; the times of a variant that was wrong are thrown away.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from device import open_device
from device.interface import Device, DeviceError
from harness.build.binding import open_variant
from harness.build.resources import Resources, find_occupancy
from harness.discover import load_op
from harness.nvtx_ranges import mark_range, name_range
from harness.records.sweeps import SweepPoint
from harness.spec import Launchable, Op, Problem, Variant
from harness.sweep.points import Answer, Measured, Usage, make_points
from harness.sweep.space import select_sweep_problems
from harness.targets import find_target
from harness.timing.batches import Mode
from harness.timing.gpu_lock import GpuLock
from harness.timing.instruments import CudaInstruments
from harness.timing.placement import Placements
from harness.timing.results import Run
from harness.timing.rounds import TIMING_DISTRIBUTION
from harness.timing.stats import StopReason, StopRule
from harness.timing.timer import Timer, TimingPolicy
from harness.verify.case import Case
from harness.verify.inputs import make_inputs
from harness.verify.reference import References

# So many cold samples are queued at once in a screen, and as many behind them: the host never makes the GPU wait, and each takes up to
# 1 us more.
QUEUED_SAMPLES = 5


@dataclass(frozen=True)
class SweepSetup:
    """What a measuring process needs: the op's folder, the device's name, the problems, and samples of each.

    Variants slower than ``prune`` times the best that this process has timed are given up after a few samples (0: never).
    ``queued_samples`` cold launches are queued at once; 1 is exact, more keeps the GPU busy.
    """

    op_folder: Path
    device: str
    problem_names: tuple[str, ...]
    num_samples: int
    target: str = "h200"
    prune: float = 0.0
    queued_samples: int = QUEUED_SAMPLES


@dataclass(frozen=True)
class SweepJob:
    """One built variant to be proved and timed; ``launch_hash`` is what it does, whatever it is called, ``resources`` are by kernel."""

    variant: Variant
    library: Path
    binding: Path
    code_hash: str
    resources: Mapping[str, Resources] = field(default_factory=dict)
    launch_hash: str = ""


def make_policy(num_samples: int, queued_samples: int = 1) -> TimingPolicy:
    """Return a policy for many quick measurements: a short warm-up and a fixed number of samples.

    Where samples are queued ahead, half of them suffice if they agree within 1 %.
    """
    steady = {"floor_samples": max(5, num_samples // 2), "steady_spread": 0.01} if queued_samples > 1 else {"floor_samples": 5}
    rule = StopRule(relative_interval=0.0, min_samples=num_samples, max_samples=num_samples, budget_s=0.5, **steady)
    return TimingPolicy(
        stop=rule,
        max_batch=max(num_samples, 2),
        max_cold_batch=queued_samples,
        queues_ahead=queued_samples > 1,
        num_host_launches=0 if queued_samples > 1 else 1,
        batch_us=8_000.0,
        warmup_min_s=0.01,
        warmup_window_s=0.005,
        warmup_cap_s=0.1,
        warmup_agreement=0.02,
    )


class Prover:
    """Launches variants on the op's small problems, whose tensors stay in device memory, and judges what came of it."""

    def __init__(self, device: Device, op: Op, references: References) -> None:
        self._device = device
        self._stream = device.create_stream()
        self._cases = [(p, references.get(p), Case(device, op, p)) for p in op.select_problems("verify")]

    def launch(self, launchable: Launchable) -> tuple[dict[str, Mapping[str, NDArray[Any]]], str]:
        """Return the outputs by problem, and why a launch failed or ""."""
        outputs: dict[str, Mapping[str, NDArray[Any]]] = {}
        for problem, expected, case in self._cases:
            if launchable.supports(**case.arguments):
                continue
            case.prepare(launchable)
            # Inputs too: the variant before may have written to them.
            case.upload(expected.inputs)
            try:
                case.launch(launchable, self._stream)
                self._stream.synchronize()
            except RuntimeError as error:
                self._device.take_last_error()
                self._device.synchronize()
                return outputs, f"{problem.name}: {error}"
            outputs[problem.name] = case.read_outputs()
        return outputs, ""

    def judge(self, outputs: Mapping[str, Mapping[str, NDArray[Any]]]) -> str:
        """Return "" or what is wrong first."""
        for problem, expected, _ in self._cases:
            if wrong := expected.find_wrong(outputs.get(problem.name, {})):
                return f"{problem.name}: {wrong}"
        return ""


@dataclass(frozen=True)
class Work:
    """What a measuring process makes on the host before it needs the GPU: the inputs of each problem, and the references of the proof."""

    op: Op
    problems: tuple[Problem, ...]
    inputs: Mapping[str, Mapping[str, NDArray[np.generic]]]
    references: References


@functools.lru_cache(maxsize=1)
def make_work(op_folder: Path, problem_names: tuple[str, ...]) -> Work:
    """Load the op and compute what takes long; a process that is made ready early does so before it is asked to."""
    op = load_op(op_folder)
    problems = select_sweep_problems(op, problem_names)
    references = References(op)
    for problem in op.select_problems("verify"):
        references.get(problem)
    return Work(op, problems, {p.name: make_inputs(op, p, TIMING_DISTRIBUTION) for p in problems}, references)


class SweepWorker:
    """Proves and times variants in the measuring process; the device is opened there, once."""

    def __init__(self, setup: SweepSetup) -> None:
        self.spent = False
        self._setup = setup
        self._device = open_device(setup.device)
        # Others measure already, perhaps: all that needs no GPU comes before the turn.
        work = make_work(setup.op_folder, setup.problem_names)
        make_work.cache_clear()
        self._op, self._problems = work.op, work.problems
        self._target = find_target(setup.target)
        self._gpu_lock = GpuLock(self._device.properties.uuid)
        self._best_us: dict[str, float] = {}
        self._stream = self._device.create_stream()
        instruments = CudaInstruments()
        with self._gpu_lock.hold():
            self._timer = Timer(self._device, make_policy(setup.num_samples, setup.queued_samples), instruments=instruments)
            self._prover = Prover(self._device, self._op, work.references)
            self._cases = {p.name: Placements(self._device, self._op, p) for p in self._problems}
            for name, case in self._cases.items():
                case.upload(work.inputs[name])

    def run(self, job: SweepJob, report: Callable[[str], None]) -> Answer:
        """Return a point per problem; a variant that is wrong has the reason in each."""
        launchable = open_variant(self._op, job.binding, job.library, job.variant)
        report("opened")
        try:
            with self._gpu_lock.hold(report):
                began = time.time()
                before = self._timer.usage
                with mark_range(self._op.name, job.variant.name, "*", "prove"):
                    outputs, reason = self._prover.launch(launchable)
                report("ran on the small problems")
                taken = [] if reason else [self._sample(job, problem, launchable, report) for problem in self._problems]
                after, ended = self._timer.usage, time.time()
        except DeviceError as error:
            self.spent = True
            return self._fail(job, f"the device was lost: {error}")
        if reason := reason or self._prover.judge(outputs):
            return self._fail(job, reason)
        points = [each if isinstance(each, Measured) else self._conclude(job, *each) for each in taken]
        return Answer(tuple(points), Usage(began, ended, after[0] - before[0], after[1] - before[1]))

    def _fail(self, job: SweepJob, reason: str) -> Answer:
        return Answer(make_points(self._op, job.variant, self._problems, "failed", reason, job.code_hash))

    def _sample(
        self, job: SweepJob, problem: Problem, launchable: Launchable, report: Callable[[str], None]
    ) -> Measured | tuple[Problem, Run]:
        """Take the samples of one point, or return why there are none."""
        case = self._cases[problem.name]
        try:
            if reason := launchable.supports(**case.arguments):
                return Measured(self._make_point(job, problem, "unsupported", reason))
            case.prepare(launchable)
            if reason := self._find_obstacle(job, case, launchable):
                return Measured(self._make_point(job, problem, "set_aside", reason))
            name = name_range(self._op.name, job.variant.name, problem.name, Mode.COLD)
            limit = self._setup.prune * self._best_us.get(problem.name, 0.0) or float("inf")
            subject = self._timer.prepare(case.choose(launchable, Mode.COLD), Mode.COLD, name)
            (run,) = self._timer.sample([subject], limit)
        except (RuntimeError, TypeError, ValueError) as error:
            # A launch that the device refuses is this point's result; one that takes the device with it ends this process.
            self._device.take_last_error()
            self._device.synchronize()
            return Measured(self._make_point(job, problem, "failed", str(error)))
        report(f"{problem.name}: timed")
        return problem, run

    def _conclude(self, job: SweepJob, problem: Problem, run: Run) -> Measured:
        timing = self._timer.conclude(run)
        s = timing.summary
        self._best_us[problem.name] = min(s.median, self._best_us.get(problem.name, s.median))
        is_pruned = timing.stop_reason is StopReason.TOO_SLOW
        note = f"given up after {s.num_samples} samples: over {self._setup.prune:g} times the best" if is_pruned else ""
        figures = {"median_us": s.median, "q1_us": s.q1, "q3_us": s.q3, "num_samples": s.num_samples, "clock_mhz": timing.clock_mhz}
        point = self._make_point(job, problem, "passed", note, is_pruned=is_pruned, **figures)
        return Measured(point, timing.samples_us, timing.clocks_mhz, timing.clock_label)

    def _make_point(self, job: SweepJob, problem: Problem, status: str, reason: str = "", **figures: Any) -> SweepPoint:
        gpu = self._device.properties.uuid
        return SweepPoint(self._op.name, job.variant.name, problem.name, status, reason[:300], job.code_hash, gpu=gpu, **figures)

    def _find_obstacle(self, job: SweepJob, case: Placements, launchable: Launchable) -> str:
        """Return why no block of a kernel of the launch fits an SM, "" where all do or it is not known."""
        if not job.resources:
            return ""
        with self._device.capture(self._stream) as graphs:
            case.launch(launchable, self._stream)
        for node in graphs[0].kernel_nodes:
            known = job.resources.get(node.name)
            threads = int(np.prod(node.block))
            if known is not None:
                occupancy = find_occupancy(known, threads, node.dynamic_shared_bytes, self._target)
                if not occupancy.blocks_per_sm:
                    return f"no occupancy: a block of {threads} threads of {node.name} does not fit an SM ({occupancy.limiter})"
        return ""
