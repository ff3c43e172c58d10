"""The screen of a sweep: variants are built, checked before they use the GPU, and measured, all at the same time.

Threads hand variants on: one builds what a strategy proposes, one hands over what is built, one keeps the measuring processes supplied,
and the caller's takes what comes and records it. So compilers, GPU and records never wait for each other. A variant that hangs, faults or
takes the device's context with it is a result like any other: its process is replaced, and the next goes on. The same machine code is
measured once, whatever it is called.

Which of the fastest is the fastest the screen does not say: the least of many noisy times is no time. :mod:`harness.sweep.run`
measures the finalists anew, in turns.
"""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from harness.build.builder import BuildResult, read_resources
from harness.build.compiler import Compiler
from harness.processes.feed import JobFeed
from harness.processes.pool import Lost
from harness.records.sweeps import SweepPoint
from harness.spec import Op, Problem
from harness.sweep.points import Answer, Measured, Usage, make_points
from harness.sweep.worker import SweepJob

# Compilers on all cores give way to who feeds the GPU, and to the binding, which every variant needs.
_NICENESS = 10
# How long one of this process's threads runs while others wait.
_SWITCH_S = 5e-4
# Measures the jobs of a feed, and yields each with what came of it.
Measure = Callable[[JobFeed[SweepJob]], Iterator[tuple[SweepJob, Answer | Lost]]]
# Builds, and calls back with each result.
BuildAll = Callable[[Callable[[BuildResult], None], Compiler], object]
# Chooses among builds, those worth measuring first; the others have the reason why not.
Choose = Callable[[Sequence[BuildResult]], tuple[list[BuildResult], list[tuple[BuildResult, str]]]]


@dataclass(frozen=True)
class Found:
    """A variant's points. ``is_earlier``: they come from the records of an earlier sweep, and are not to be recorded again."""

    build: BuildResult
    points: tuple[Measured, ...]
    usage: Usage | None = None
    is_earlier: bool = False


@dataclass(frozen=True)
class Steps:
    """What is done with a build before it is measured, in this order. Each may be left out.

    ``find_earlier`` returns its points of an earlier sweep, ``find_obstacle`` why it is not worth measuring. ``choose`` decides about
    all builds together, once they are there. ``tell`` hears of every result, from any thread, before it is yielded. ``stop`` ends whatever
    waits for results, when there will be no more. ``find_binding`` waits for the op's binding.
    """

    find_earlier: Callable[[BuildResult], tuple[Measured, ...] | None] = lambda build: None
    find_obstacle: Callable[[BuildResult], str] = lambda build: ""
    choose: Choose | None = None
    tell: Callable[[Found], None] = lambda found: None
    find_binding: Callable[[], Path] = Path
    stop: Callable[[], None] = lambda: None


@dataclass
class _Shared:
    """What the threads share: results on their way to the caller, and which build's machine code is measured, or is the same as whose."""

    op: Op
    problems: Sequence[Problem]
    steps: Steps
    feed: JobFeed[SweepJob] = field(default_factory=JobFeed)
    built: queue.SimpleQueue[BuildResult | None] = field(default_factory=queue.SimpleQueue)
    results: queue.SimpleQueue[Found | BaseException | None] = field(default_factory=queue.SimpleQueue)
    pending: list[BuildResult] = field(default_factory=list)
    measured: dict[str, tuple[Measured, ...]] = field(default_factory=dict)
    by_code: dict[str, list[BuildResult]] = field(default_factory=dict)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def finish(self, found: Found) -> None:
        self.steps.tell(found)
        self.results.put(found)

    def set_aside(self, build: BuildResult, status: str, reason: str) -> None:
        self.finish(Found(build, make_points(self.op, build.variant, self.problems, status, reason, build.code_hash)))

    def take(self, build: BuildResult) -> None:
        """Receive a build from the compilers."""
        if build.library is None:
            first_line = next((x for x in (build.error or "").splitlines() if "error" in x), build.error or "it does not compile")
            self.set_aside(build, "failed", first_line)
        elif (earlier := self.steps.find_earlier(build)) is not None:
            self.finish(Found(build, earlier, is_earlier=True))
        elif reason := self.steps.find_obstacle(build):
            self.set_aside(build, "set_aside", reason)
        elif self._is_first(build):
            if self.steps.choose is None:
                self.measure(build)
            else:
                self.pending.append(build)

    def _is_first(self, build: BuildResult) -> bool:
        """Return whether this machine code is new; a copy of another's gets that one's points, now or when they are there."""
        with self.lock:
            others = self.by_code.setdefault(build.launch_hash, [])
            others.append(build)
            known = self.measured.get(build.launch_hash)
        if known is not None:
            self.finish(Found(build, copy_points(known, build)))
        return len(others) == 1

    def measure(self, build: BuildResult) -> None:
        """Have a build measured, without waiting for anything."""
        self.built.put(build)

    def hand_on(self) -> None:
        """Hand builds to the measuring processes until there are no more: as soon as there is a binding, which compiles meanwhile."""
        while (build := self.built.get()) is not None:
            assert build.library is not None
            binding = self.steps.find_binding()
            self.feed.put(SweepJob(build.variant, build.library, binding, build.code_hash, read_resources(build), build.launch_hash))

    def settle(self, launch_hash: str, points: tuple[Measured, ...], usage: Usage | None) -> None:
        """Receive what came of a machine code: its first build and all copies so far are done."""
        with self.lock:
            first, *copies = self.by_code[launch_hash]
            self.measured[launch_hash] = points
        self.finish(Found(first, points, usage))
        for build in copies:
            self.finish(Found(build, copy_points(points, build)))


def copy_points(points: Sequence[Measured], build: BuildResult) -> tuple[Measured, ...]:
    """Return the points of a build whose machine code was measured under another name, without the samples."""

    def copy(point: SweepPoint) -> SweepPoint:
        note = point.reason or f"the machine code of {point.variant}: timed once"
        return replace(point, variant=build.variant.name, reason=note)

    return tuple(Measured(copy(m.point)) for m in points)


class _Threads:
    """A screen's threads: one builds, one hands over what is built, one measures. What stops one is raised where results are taken."""

    def __init__(self, shared: _Shared, measure: Measure, build_all: BuildAll) -> None:
        self._shared = shared
        self._measure = measure
        self._build_all = build_all
        self._compiler = Compiler(_NICENESS)
        self._builder = threading.Thread(target=self._build, daemon=True)
        self._supplier = threading.Thread(target=self._supply, daemon=True)
        self._measurer = threading.Thread(target=self._measure_all, daemon=True)

    def start(self) -> None:
        for thread in (self._builder, self._supplier, self._measurer):
            thread.start()

    def stop(self) -> None:
        """Stop compilers and measuring processes, and wait for the threads."""
        self._shared.feed.abandon()
        self._shared.steps.stop()
        self._compiler.stop()
        for thread in (self._measurer, self._builder, self._supplier):
            thread.join()

    def _build(self) -> None:
        shared = self._shared
        try:
            self._build_all(shared.take, self._compiler)
            if shared.steps.choose is not None:
                chosen, others = shared.steps.choose(shared.pending)
                for build in chosen:
                    shared.measure(build)
                for build, reason in others:
                    points = make_points(shared.op, build.variant, shared.problems, "set_aside", reason, build.code_hash)
                    shared.settle(build.launch_hash, points, None)
        except BaseException as error:  # noqa: BLE001 - raised again where the points are taken
            shared.results.put(error)
        finally:
            shared.built.put(None)

    def _supply(self) -> None:
        shared = self._shared
        try:
            shared.hand_on()
        except BaseException as error:  # noqa: BLE001 - raised again where the points are taken
            shared.results.put(error)
            shared.steps.stop()
            self._compiler.stop()
        finally:
            shared.feed.close()

    def _measure_all(self) -> None:
        shared = self._shared
        try:
            for job, answer in self._measure(shared.feed):
                if isinstance(answer, Lost):
                    reason = f"{answer.kind}: {answer.detail}"
                    points = make_points(shared.op, job.variant, shared.problems, "failed", reason, job.code_hash)
                    shared.settle(job.launch_hash, points, None)
                else:
                    shared.settle(job.launch_hash, answer.points, answer.usage)
        except BaseException as error:  # noqa: BLE001 - raised again where the points are taken
            self._compiler.stop()
            shared.results.put(error)
        shared.steps.stop()
        self._builder.join()
        self._supplier.join()
        shared.results.put(None)


def screen(measure: Measure, op: Op, problems: Sequence[Problem], build_all: BuildAll, steps: Steps | None = None) -> Iterator[Found]:
    """Build and measure at the same time; yield each build with its points as they come.

    ``build_all(on_result, compiler)`` builds and calls back with each result. Leaving the iterator early stops the compilers and the
    measuring processes. What stops the building or the measuring altogether is raised after what came before it.
    """
    shared = _Shared(op, problems, steps or Steps())
    threads = _Threads(shared, measure, build_all)
    threads.start()
    broken: BaseException | None = None
    interval_s = sys.getswitchinterval()
    try:
        # Hundreds of variants may come out of the cache at once: who hands on to the measuring processes waits for none of them long.
        sys.setswitchinterval(_SWITCH_S)
        while (found := shared.results.get()) is not None:
            if isinstance(found, BaseException):
                broken = broken or found
            else:
                yield found
    finally:
        sys.setswitchinterval(interval_s)
        threads.stop()
    if broken is not None:
        raise broken
