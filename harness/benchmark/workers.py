"""Verifying and counting variants in worker processes, one job per variant.

A wrong kernel may leave the CUDA context of its process unusable, crash it, or never end; the pool (:mod:`harness.processes.pool`) then
reports the variant and goes on in a fresh process. On the emulated device several workers share the cores; on a GPU there is one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, TypeVar

from device import open_device
from device.toolchain import find_toolchain
from harness.build.binding import open_variant
from harness.build.builder import describe_build
from harness.build.disassemble import read_sass_of
from harness.build.sass import SassKernel
from harness.discover import load_op
from harness.model.features import Features, collect_features
from harness.model.launches import LaunchFacts, examine_launch
from harness.nvtx_ranges import mark_range
from harness.processes.feed import JobFeed
from harness.processes.pool import Lost, run_jobs
from harness.spec import Launchable, Problem, Variant
from harness.targets import find_target
from harness.verify.findings import Fault, FaultKind, ProblemResult, Status, VerifyResult
from harness.verify.judge import Verifier
from harness.verify.plan import Effort

# Silence after which a job counts as hung: the longest step is one problem, emulated with all checks.
_TIMEOUT_S = 120.0
# Variants that are counted together: their disassembler starts once. Several batches a worker, so that all end at about the same time.
_MAX_BATCH = 12
_BATCHES_PER_WORKER = 3
# Address space of the emulated device: drawn problems have strides beyond 2^32 elements, of whose memory little is touched.
_MEMORY_BYTES = 96 << 30


@dataclass(frozen=True)
class WorkerSetup:
    """What a worker needs to set itself up: the op's folder, its binding, the device's name (``cuda`` or ``emulated``).

    ``emulator_workers`` is the number of host threads of each worker's emulator, ``target`` the GPU it stands for.
    """

    op_folder: Path
    binding: Path
    device: str
    problem_names: tuple[str, ...] = ()
    effort: Effort = field(default_factory=Effort)
    emulator_workers: int = 0
    target: str = "h200"


@dataclass(frozen=True)
class Job:
    """One variant to verify, or to count on the named problems."""

    variant: Variant
    library: Path
    count_problems: tuple[str, ...] = ()


@dataclass(frozen=True)
class Batch:
    """Variants to count one after the other in the same worker, which disassembles those together that serve a problem."""

    jobs: tuple[Job, ...]


@dataclass(frozen=True)
class Counted:
    """What a variant launches, per problem name."""

    variant: str
    facts: dict[str, LaunchFacts] = field(default_factory=dict)


class VariantWorker:
    """Runs jobs in the worker's process; the device is opened there, once."""

    def __init__(self, setup: WorkerSetup) -> None:
        self.spent = False
        self._binding = setup.binding
        self._device = open_device(setup.device)
        if self._device.observer is not None:
            self._device.observer.set_option("workers", str(setup.emulator_workers))
            self._device.observer.set_option("target", setup.target)
            if int(self._device.observer.get_option("memory_bytes")) < _MEMORY_BYTES:
                self._device.observer.set_option("memory_bytes", str(_MEMORY_BYTES))
        self._op = load_op(setup.op_folder)
        self._target = find_target(setup.target)
        self._verifier = Verifier(self._op, self._device, setup.effort, setup.problem_names)

    def run(self, job: Job | Batch, report: Callable[[str], None]) -> VerifyResult | tuple[Counted, ...]:
        """Verify a variant or count several, reporting the name of each problem when it is done."""
        if isinstance(job, Batch):
            return self._count(job, report)

        def report_step(result: ProblemResult) -> None:
            report(f"{result.problem}: {result.status}")

        launchable = open_variant(self._op, self._binding, job.library, job.variant)
        result = self._verifier.verify(job.variant, launchable, report_step)
        self.spent = result.device_lost
        return result

    def _count(self, batch: Batch, report: Callable[[str], None]) -> tuple[Counted, ...]:
        counted = {job: Counted(job.variant.name) for job in batch.jobs}
        opened = {job: open_variant(self._op, self._binding, job.library, job.variant) for job in batch.jobs}
        for job, launchable in opened.items():
            for problem in self._select(job):
                with mark_range(self._op.name, job.variant.name, problem.name, "count"):
                    counted[job].facts[problem.name] = examine_launch(self._device, self._op, problem, launchable)
                report(f"{job.variant.name} on {problem.name}: counted")
        if self._device.is_emulated:
            served = [job for job in batch.jobs if any(not facts.reason for facts in counted[job].facts.values())]
            codes = self._read_codes(served)
            for job in served:
                facts = counted[job].facts
                for problem in (p for p in self._select(job) if not facts[p.name].reason):
                    features = self._find_features(job, problem, opened[job], codes.get(job, {}))
                    facts[problem.name] = replace(facts[problem.name], features=features)
                    report(f"{job.variant.name} on {problem.name}: modelled")
        return tuple(counted.values())

    def _select(self, job: Job) -> Sequence[Problem]:
        return self._op.select_problems("emulated", job.count_problems)

    def _read_codes(self, jobs: Sequence[Job]) -> dict[Job, dict[str, SassKernel]]:
        toolchain = find_toolchain()
        if toolchain.nvdisasm is None:  # without the disassembler the model takes PTX's counts for the machine code's
            return {}
        kernels = read_sass_of([job.library for job in jobs], toolchain)
        return {job: {kernel.name: kernel for kernel in found} for job, found in zip(jobs, kernels, strict=True)}

    def _find_features(self, job: Job, problem: Problem, launchable: Launchable, code: Mapping[str, SassKernel]) -> Features | None:
        entries = [(describe_build(job.variant, job.library), launchable, code)]
        found = next(collect_features(self._device, self._op, problem, entries, self._target))[1]
        return found if isinstance(found, Features) else None


JobT = TypeVar("JobT", Job, Batch)


def limit_blas_threads(setup: WorkerSetup) -> dict[str, str]:
    """Return the environment in which a worker's NumPy uses no more threads than its emulator: BLAS threads that wait use up a core."""
    threads = str(setup.emulator_workers)
    return {} if setup.emulator_workers < 1 else {"OPENBLAS_NUM_THREADS": threads, "OMP_NUM_THREADS": threads, "MKL_NUM_THREADS": threads}


def share_cores(num_jobs: int, cores: int, device: str) -> tuple[int, int]:
    """Return how many workers to run, and how many threads each one's emulator gets."""
    workers = max(1, min(num_jobs, cores)) if device == "emulated" else 1
    return workers, max(1, cores // workers)


def _run(
    setup: WorkerSetup, jobs: Sequence[JobT] | JobFeed[JobT], num_workers: int, on_report: Callable[[JobT, str], None] | None
) -> Iterator[tuple[JobT, Any]]:
    return run_jobs(
        VariantWorker,
        (setup,),
        jobs,
        num_workers=num_workers,
        timeout_s=_TIMEOUT_S,
        on_report=on_report,
        environment=limit_blas_threads(setup),
    )


def verify_variants(
    setup: WorkerSetup,
    op: str,
    jobs: Sequence[Job] | JobFeed[Job],
    *,
    num_workers: int,
    on_report: Callable[[Job, str], None] | None = None,
) -> Iterator[tuple[Job, VerifyResult]]:
    """Verify variants, which may come while others run, and yield each one's result as it comes.

    A job that was lost with its process is a result with that fault.
    """
    for job, answer in _run(setup, jobs, num_workers, on_report):
        yield job, make_lost_result(op, job.variant.name, answer) if isinstance(answer, Lost) else answer


def count_variants(setup: WorkerSetup, jobs: Sequence[Job], *, num_workers: int) -> Iterator[tuple[Job, Counted]]:
    """Count variants, several a job, and yield each one's counters as they come.

    Where a process is lost, its variants are counted one by one, so that only the one that did it lacks its counters.
    """
    size = max(1, min(_MAX_BATCH, len(jobs) // (_BATCHES_PER_WORKER * max(1, num_workers))))
    batches = [Batch(tuple(jobs[i : i + size])) for i in range(0, len(jobs), size)]
    alone: list[Batch] = []
    for batch, answer in _run(setup, batches, num_workers, None):
        if isinstance(answer, Lost) and len(batch.jobs) > 1:
            alone += [Batch((job,)) for job in batch.jobs]
        else:
            yield from _name_counted(batch, answer)
    for batch, answer in _run(setup, alone, num_workers, None):
        yield from _name_counted(batch, answer)


def _name_counted(batch: Batch, answer: tuple[Counted, ...] | Lost) -> Iterator[tuple[Job, Counted]]:
    if isinstance(answer, Lost):
        facts = LaunchFacts(f"{answer.kind}: {answer.detail}", lost=True)
        answer = tuple(Counted(job.variant.name, dict.fromkeys(job.count_problems, facts)) for job in batch.jobs)
    yield from zip(batch.jobs, answer, strict=True)


def make_lost_result(op: str, variant: str, lost: Lost) -> VerifyResult:
    """Return the verdict on a variant whose process was lost: crashed, hung, or ended by an error that is not a kernel's."""
    kind = FaultKind.TIMEOUT if lost.kind == "timeout" else FaultKind.CRASHED
    fault = Fault(kind, "process", lost.detail)
    result = ProblemResult("*", Status.NOT_RUN, reason=lost.detail)
    return VerifyResult(op, variant, (result,), (fault,), device_lost=True)
