"""One command's work on one op: build the variants, judge them, record each result immediately.

Everything that takes a while is an iterator or reports through callbacks, so that an interrupt keeps what was recorded until then.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np

from device import open_device
from device.interface import Device
from device.settings import Settings, find_project_root, read_settings
from device.toolchain import Toolchain, find_toolchain
from harness.benchmark.workers import Job, WorkerSetup, share_cores, verify_variants
from harness.build.binding import build_binding
from harness.build.builder import BuildResult, build_op, open_store
from harness.build.compiler import Compiler
from harness.build.store import hash_text
from harness.discover import LoadedOp
from harness.records.database import Records, make_time
from harness.records.engine import hide_password
from harness.records.facts import EnvironmentFacts, ResultFacts
from harness.records.provenance import Commit, describe_environment, find_commit, find_device_kind, is_ancestor
from harness.records.tables import Result
from harness.spec import Variant
from harness.targets import Target, find_target
from harness.terminal.figures import clean_json
from harness.verify.findings import Fault, FaultKind, ProblemResult, Status, VerifyResult
from harness.verify.judge import VERIFY_VERSION, Verifier
from harness.verify.plan import Effort, includes_proof
from harness.verify.reference import References

_TOLERANCES = "tolerances"


@dataclass(frozen=True)
class Judged:
    """A built variant with its verdict. ``earlier`` is the record that the verdict was taken from, None when it was found now."""

    build: BuildResult
    ok: bool
    reason: str
    record_id: int
    result: VerifyResult | None = None
    earlier: Result | None = None

    @property
    def variant(self) -> Variant:
        """The variant."""
        return self.build.variant


@dataclass
class Session:
    """An open device, the store of records, and a run in it. Close it, or use it as a context manager.

    The run is inserted with its first result: a command that finds everything recorded before leaves none (``recorded_run`` is None).
    """

    loaded: LoadedOp
    settings: Settings
    device: Device
    target: Target
    toolchain: Toolchain
    records: Records
    environment: EnvironmentFacts
    commit: Commit
    command: str
    started_at: str
    recorded_run: int | None = None

    @classmethod
    def start(
        cls, loaded: LoadedOp, command: str, *, device: str | None = None, target: str | None = None, jobs: int | None = None
    ) -> Self:
        """Open what the arguments name, or the settings where they are None.

        Raises UnavailableError, SettingError, SpecError or RecordError.
        """
        settings = read_settings()
        settings = replace(settings, target=target or settings.target, jobs=jobs or settings.jobs)
        with ThreadPoolExecutor(1) as pool:
            # Git looks at every file, and the driver takes its time, too.
            asked = pool.submit(find_commit, find_project_root())
            toolchain = find_toolchain()
            chosen = find_target(settings.target)
            opened = open_device(device)
            if opened.observer is not None:
                opened.observer.set_option("target", chosen.name)
            records = Records(settings.records_url)
            commit = asked.result()
        facts = describe_environment(opened, toolchain.identity, chosen.name)
        return cls(loaded, settings, opened, chosen, toolchain, records, facts, commit, command, make_time())

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.records.close()

    @property
    def run_id(self) -> int:
        """The id of this command's run, which is inserted by now."""
        if self.recorded_run is None:
            facts, commit = self.environment, self.commit
            self.recorded_run = self.records.start_run(
                facts, command=self.command, commit=commit.sha, dirty=commit.dirty, started_at=self.started_at
            )
        return self.recorded_run

    def describe_run(self) -> str:
        """Say where this command's results are."""
        place = hide_password(self.settings.records_url)
        if self.recorded_run is None:
            return f"All of it was recorded before in {place}: no new run"
        return f"Run {self.recorded_run} in {place}"

    @cached_property
    def _spec_hash(self) -> str:
        # Of the description that was loaded: read once, and not for each of hundreds of variants.
        return self.loaded.spec_hash

    @property
    def device_kind(self) -> str:
        """``emulated`` or ``cuda``."""
        return find_device_kind(self.device)

    def build(self, variants: Sequence[Variant], on_result: Callable[[BuildResult], None] | None = None) -> tuple[list[BuildResult], Path]:
        """Build the binding and all variants; a variant that does not compile is a result with its error."""
        return self.build_variants(variants, on_result), self.build_binding()

    def build_variants(
        self, variants: Sequence[Variant], on_result: Callable[[BuildResult], None] | None = None, compiler: Compiler | None = None
    ) -> list[BuildResult]:
        """Build all variants; one that does not compile is a result with its error."""
        jobs = self.settings.jobs
        return build_op(
            self.loaded, variants, toolchain=self.toolchain, target=self.target, jobs=jobs, on_result=on_result, compiler=compiler
        )

    def build_binding(self, compiler: Compiler | None = None) -> Path:
        """Build the op's binding; raises :class:`BuildError` with the compiler's text."""
        return build_binding(self.loaded, self.toolchain, compiler=compiler)

    def judge(
        self,
        builds: Sequence[BuildResult],
        binding: Path,
        *,
        problem_names: Sequence[str] = (),
        reuse: bool,
        on_judged: Callable[[Judged], None],
        effort: Effort | None = None,
        committed_only: bool = False,
    ) -> list[Judged]:
        """Verify the builds and record each verdict at once; with ``reuse``, variants that passed before unchanged are not run again.

        A verdict counts for what it proved: one of less than ``effort`` (by default, what the op lists) is no verdict.
        With ``committed_only``, what passed in a tree with changes, or at a commit that the present one does not follow, is run again.
        Returns the verdicts in the order of ``builds``.
        """
        judged: dict[str, Judged] = {}

        def note(verdict: Judged) -> None:
            judged[verdict.variant.name] = verdict
            on_judged(verdict)

        waiting: dict[str, BuildResult] = {}
        for build in builds:
            known = self.find_verdict(build, effort, reuse=reuse and not problem_names, committed_only=committed_only)
            if known is not None:
                note(known)
            else:
                waiting[build.variant.name] = build
        if waiting:
            self.try_description(problem_names)
            setup, num_workers = self.make_worker_setup(binding, len(waiting), problem_names, effort)
            jobs = [Job(b.variant, b.library) for b in waiting.values() if b.library is not None]
            for job, result in verify_variants(setup, self.loaded.op.name, jobs, num_workers=num_workers):
                note(self.record_verdict(waiting[job.variant.name], result))
        return [judged[b.variant.name] for b in builds]

    def find_verdict(self, build: BuildResult, effort: Effort | None = None, *, reuse: bool, committed_only: bool = False) -> Judged | None:
        """Return the verdict on a build that need not be run: it does not compile, or with ``reuse`` passed before; None for others."""
        if build.library is None:
            return self.record_verdict(build, make_unbuilt_result(self.loaded.op.name, build))
        earlier = self._find_passed(build, (effort or Effort()).proof, committed_only=committed_only) if reuse else None
        return None if earlier is None else Judged(build, ok=True, reason="", record_id=earlier.id, earlier=earlier)

    def try_description(self, problem_names: Sequence[str]) -> None:
        """Raise SpecError where the op's own functions fail on its smallest problem: once, and not for each variant as its fault."""
        op = self.loaded.op
        problems = op.select_problems("verify", problem_names)
        if problems:
            References(op).get(min(problems, key=lambda p: op.cost(p).flops))

    def make_worker_setup(
        self, binding: Path, num_jobs: int, problem_names: Sequence[str] = (), effort: Effort | None = None
    ) -> tuple[WorkerSetup, int]:
        """Return what workers need, and how many to run."""
        num_workers, threads = share_cores(num_jobs, self.settings.jobs, self.device_kind)
        setup = WorkerSetup(
            self.loaded.folder, binding, self.device_kind, tuple(problem_names), effort or Effort(), threads, self.target.name
        )
        return setup, num_workers

    def check_op(self, problem_names: Sequence[str] = ()) -> tuple[Fault, ...]:
        """Return what is wrong with the op's own tolerance; see :meth:`harness.verify.judge.Verifier.check_op`.

        Its reference is computed on every problem for that. Where nothing was wrong with an unchanged description, nothing is now.
        """
        store, names = open_store(), sorted(problem_names)
        request = hash_text("tolerance 1", self.loaded.op.name, self._spec_hash, str(VERIFY_VERSION), np.__version__, *names)
        if store.find(_TOLERANCES, request) is not None:
            return ()
        faults = Verifier(self.loaded.op, self.device, Effort(num_hidden=0), problem_names).check_op()
        if not faults:
            with store.scratch() as folder:
                made = folder / "made"
                made.mkdir()
                store.add(_TOLERANCES, request, made, {}, {"op": self.loaded.op.name})
        return faults

    def record(self, build: BuildResult | None, **fields: Any) -> int:
        """Insert one result of this run; the build's hashes are filled in."""
        figures = clean_json(fields.pop("figures", {}))
        facts = ResultFacts(
            op=self.loaded.op.name,
            code_hash=build.code_hash if build else "",
            source_hash=build.source_hash if build else "",
            flags=build.flags if build else "",
            key=build.key if build else "",
            spec_hash=self._spec_hash,
            verify_version=VERIFY_VERSION,
            figures=figures,
            **fields,
        )
        return self.records.add_results(self.run_id, [facts])[0]

    def _find_passed(self, build: BuildResult, proof: str, *, committed_only: bool) -> Result | None:
        found = self.find_earlier("verify", build, "*", clean_only=committed_only)
        if found is None or found.status != "passed" or not includes_proof(found.figures, proof):
            return None
        return None if committed_only and not is_ancestor(find_project_root(), found.run.commit) else found

    def find_earlier(self, kind: str, build: BuildResult, problem: str, *, clean_only: bool = False) -> Result | None:
        """Return the latest result of this very build in this very environment, from any run, or any in a tree without changes."""
        return self.records.find_latest(
            kind,
            op=self.loaded.op.name,
            variant=build.variant.name,
            problem=problem,
            key=build.key,
            spec_hash=self._spec_hash,
            verify_version=VERIFY_VERSION,
            environment=self.environment,
            clean_only=clean_only,
        )

    def find_same_launch(self, kind: str, build: BuildResult, problem: str) -> Result | None:
        """Return the latest result of this machine code, launched alike, under whatever name in this very environment."""
        results = self.records.list_same_code(
            kind,
            op=self.loaded.op.name,
            problem=problem,
            code_hash=build.code_hash,
            spec_hash=self._spec_hash,
            verify_version=VERIFY_VERSION,
            environment=self.environment,
        )
        return next((r for r in results if build.host_hash and r.figures.get("host_hash") == build.host_hash), None)

    def record_verdict(self, build: BuildResult, result: VerifyResult) -> Judged:
        """Insert a verdict of this run."""
        names = "*" if result.complete else ", ".join(p.problem for p in result.problems)
        record_id = self.record(
            build,
            kind="verify",
            variant=result.variant,
            problem=names[:200],
            status="passed" if result.ok else "failed",
            reason=result.reason,
            figures=result.to_json(),
        )
        return Judged(build, result.ok, result.reason, record_id, result)


def make_unbuilt_result(op: str, build: BuildResult) -> VerifyResult:
    """Return the verdict on a variant that does not compile."""
    fault = Fault(FaultKind.BUILD_ERROR, "build", build.error or "the compiler gave no library")
    return VerifyResult(op, build.variant.name, (ProblemResult("*", Status.NOT_RUN, reason="it does not compile"),), (fault,))
