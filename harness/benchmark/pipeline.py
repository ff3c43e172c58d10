"""Building and verifying at the same time: a variant's verification starts when its compiler is done, while others still compile."""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from harness.benchmark.session import Judged, Session
from harness.benchmark.workers import Job, verify_variants
from harness.build.builder import BuildResult
from harness.build.compiler import Compiler
from harness.processes.feed import JobFeed
from harness.spec import Variant
from harness.verify.plan import Effort

_WAIT_S = 0.5


def build_and_judge(
    session: Session,
    variants: Sequence[Variant],
    *,
    on_built: Callable[[BuildResult], None],
    on_judged: Callable[[Judged], None],
    reuse: bool,
    problem_names: Sequence[str] = (),
    effort: Effort | None = None,
) -> tuple[list[Judged], Path]:
    """Build the binding and all variants, verify each as soon as it is built, and record each verdict at once.

    With ``reuse``, what passed before unchanged is not run again. The callbacks are never called at the same time, though from different
    threads. Returns the verdicts in the order of ``variants``, and the binding. Raises :class:`BuildError` for what stops all of them.
    """
    run = _Run(session, tuple(problem_names), effort, reuse, on_built, on_judged)
    with ThreadPoolExecutor(1) as pool:
        building = pool.submit(run.build, variants)
        try:
            binding = session.build_binding(run.compiler)
            run.judge(binding, len(variants))
        except BaseException:
            run.compiler.stop()
            run.feed.abandon()
            raise
        building.result()
    return [run.judged[v.name] for v in variants], binding


class _Run:
    """What the thread that builds and the one that judges share."""

    def __init__(
        self,
        session: Session,
        problem_names: tuple[str, ...],
        effort: Effort | None,
        reuse: bool,
        on_built: Callable[[BuildResult], None],
        on_judged: Callable[[Judged], None],
    ) -> None:
        self.compiler = Compiler()
        self.feed: JobFeed[Job] = JobFeed()
        self.judged: dict[str, Judged] = {}
        self._session = session
        self._problem_names = problem_names
        self._effort = effort
        self._reuse = reuse
        self._on_built = on_built
        self._on_judged = on_judged
        self._waiting: dict[str, BuildResult] = {}
        self._lock = threading.Lock()

    def build(self, variants: Sequence[Variant]) -> None:
        """Build variants and feed those that are to be verified."""
        try:
            self._session.build_variants(variants, self._take, self.compiler)
        except BaseException:
            self.feed.abandon()
            raise
        self.feed.close()

    def _take(self, build: BuildResult) -> None:
        with self._lock:
            self._on_built(build)
            known = self._session.find_verdict(build, self._effort, reuse=self._reuse and not self._problem_names)
            if known is not None:
                self._note(known)
            elif build.library is not None:
                self._waiting[build.variant.name] = build
                self.feed.put(Job(build.variant, build.library))

    def _note(self, verdict: Judged) -> None:
        self.judged[verdict.variant.name] = verdict
        self._on_judged(verdict)

    def judge(self, binding: Path, num_variants: int) -> None:
        """Verify what is fed until there is no more."""
        while not self.feed.wait(_WAIT_S):
            pass
        if self.feed.is_done:
            return
        session = self._session
        session.try_description(self._problem_names)
        # Those that come from the cache, and need no proof, are known by now.
        num_jobs = max(1, num_variants - len(self.judged))
        setup, num_workers = session.make_worker_setup(binding, num_jobs, self._problem_names, self._effort)
        for job, result in verify_variants(setup, session.loaded.op.name, self.feed, num_workers=num_workers):
            with self._lock:
                self._note(session.record_verdict(self._waiting[job.variant.name], result))
