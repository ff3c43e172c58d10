"""The variants that ``bench`` takes by itself of a large op where there is no GPU, and that builds are judged while others compile."""

from __future__ import annotations

import dataclasses
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.benchmark import pipeline
from harness.benchmark.first_look import select_first_look
from harness.benchmark.pipeline import build_and_judge
from harness.benchmark.session import Judged
from harness.build.builder import BuildResult
from harness.discover import find_op
from harness.errors import BuildError
from harness.processes.feed import JobFeed
from harness.spec import Variant

GEMM = find_op("gemm_bias_act").op
PROBLEMS = GEMM.select_problems("emulated")
NAIVE, COALESCED, TILED = (GEMM.select_variants([name])[0] for name in ("naive", "coalesced", "smem_tiled"))


def test_a_first_look_has_every_kernel_that_serves_a_problem_and_the_ops_own_choices() -> None:
    chosen = select_first_look(GEMM, PROBLEMS)
    serving = {v.kernel for v in GEMM.variants if any(GEMM.meets_domain(v, p) for p in PROBLEMS)}
    assert {v.kernel for v in chosen} == serving
    assert GEMM.choose is not None and {GEMM.choose(p).variant for p in PROBLEMS} <= set(chosen)
    for problem in PROBLEMS:
        served = {v.kernel for v in GEMM.variants if GEMM.meets_domain(v, problem)}
        assert {v.kernel for v in chosen if GEMM.meets_domain(v, problem)} == served
    assert len(chosen) <= len(serving) * 2 < len(GEMM.variants)
    assert list(chosen) == [v for v in GEMM.variants if v in chosen], "in their order"


def test_a_small_op_is_taken_whole_and_so_is_one_that_serves_nothing() -> None:
    norm = find_op("layernorm_backward").op
    assert select_first_look(norm, norm.select_problems("emulated")) == norm.variants
    assert select_first_look(GEMM, ()) == GEMM.variants


def test_a_kernel_without_a_domain_may_serve() -> None:
    op = dataclasses.replace(GEMM, kernels=tuple(dataclasses.replace(k, domain=None) for k in GEMM.kernels), choose=None)
    assert [v.name for v in select_first_look(op, PROBLEMS)] == [k.bind(k.variants[0]).name for k in op.kernels]


def make_build(variant: Variant, library: Path | None = Path("x.so")) -> BuildResult:
    return BuildResult(variant, library, "code", "key", None, None if library else "error: expected a ;", 0.0, cached=False)


class FakeSession:
    """Builds in a row, and waits with each until ``before`` says so."""

    def __init__(self, before: Callable[[Variant], None] = lambda variant: None) -> None:
        self.before = before
        self.known: set[str] = set()
        self.workers: list[int] = []
        self.loaded = SimpleNamespace(op=GEMM)

    def build_variants(self, variants: Sequence[Variant], on_result: Callable[[BuildResult], None], compiler: Any) -> None:
        for variant in variants:
            self.before(variant)
            on_result(make_build(variant, None if variant is TILED else Path("x.so")))

    def build_binding(self, compiler: Any) -> Path:
        return Path("binding.so")

    def find_verdict(self, build: BuildResult, effort: Any, *, reuse: bool) -> Judged | None:
        if build.library is None:
            return Judged(build, ok=False, reason="does not compile", record_id=0)
        return Judged(build, ok=True, reason="", record_id=1) if reuse and build.variant.name in self.known else None

    def try_description(self, names: Sequence[str]) -> None:
        pass

    def make_worker_setup(self, binding: Path, num_jobs: int, names: Sequence[str], effort: Any) -> tuple[None, int]:
        self.workers.append(num_jobs)
        return None, 1

    def record_verdict(self, build: BuildResult, result: Any) -> Judged:
        return Judged(build, ok=True, reason="", record_id=2)


def run(monkeypatch: pytest.MonkeyPatch, session: Any, variants: Sequence[Variant], on_judged: Callable[[Judged], None]) -> list[Judged]:
    def verify(setup: Any, op: str, jobs: JobFeed[Any], *, num_workers: int) -> Any:
        while not jobs.is_done:
            jobs.wait(1.0)
            if (job := jobs.take()) is not None:
                yield job, None

    monkeypatch.setattr(pipeline, "verify_variants", verify)
    return build_and_judge(session, variants, on_built=lambda build: None, on_judged=on_judged, reuse=True)[0]


def test_a_variant_is_judged_while_the_next_one_compiles(monkeypatch: pytest.MonkeyPatch) -> None:
    judged = threading.Event()

    def wait_for_the_first(variant: Variant) -> None:
        assert variant is not COALESCED or judged.wait(10), "the first was not judged before the second was built"

    order: list[str] = []

    def note(verdict: Judged) -> None:
        order.append(verdict.variant.name)
        judged.set()

    found = run(monkeypatch, FakeSession(wait_for_the_first), (NAIVE, TILED, COALESCED), note)
    assert [j.variant for j in found] == [NAIVE, TILED, COALESCED] and [j.ok for j in found] == [True, False, True]
    assert sorted(order) == sorted(v.name for v in (NAIVE, TILED, COALESCED))


def test_what_passed_before_starts_no_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    session = FakeSession()
    session.known = {NAIVE.name, COALESCED.name}
    assert [j.record_id for j in run(monkeypatch, session, (NAIVE, COALESCED), lambda verdict: None)] == [1, 1]
    assert session.workers == []


@pytest.mark.parametrize("fails_in", ["build", "callback"])
def test_what_goes_wrong_on_either_side_ends_both(monkeypatch: pytest.MonkeyPatch, fails_in: str) -> None:
    def fail(_: Any) -> None:
        raise BuildError("the disk is full")

    session = FakeSession(fail) if fails_in == "build" else FakeSession()
    with pytest.raises(BuildError, match="disk is full"):
        run(monkeypatch, session, (NAIVE, COALESCED), (lambda verdict: None) if fails_in == "build" else fail)
