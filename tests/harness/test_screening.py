"""The screen of a sweep: compiling and measuring at once, lost variants, machine code that is timed once, and the file of points."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.build.builder import BuildResult
from harness.build.compiler import Compiler
from harness.errors import BuildError, RecordError
from harness.processes.feed import JobFeed
from harness.processes.pool import Lost, run_jobs
from harness.records.sweeps import Sweep, SweepPoint, load_sweep, save_sweep
from harness.spec import Kernel, Problem, Tunable
from harness.sweep.points import Answer, Measured, Usage, make_points
from harness.sweep.progress import GpuUse, Progress
from harness.sweep.proposals import Proposals
from harness.sweep.run import find_score
from harness.sweep.screening import Found, Measure, Steps, screen
from harness.sweep.strategies import OptunaStrategy, StrategyName
from harness.sweep.without_gpu import rank_by_model
from harness.sweep.worker import SweepJob, SweepSetup, make_policy
from harness.timing.stats import StopReason
from tests.harness.toy_op import make_toy

POINTS = (
    SweepPoint("toy", "a/n1", "N4", "passed", code_hash="ab", median_us=3.5, q1_us=3.25, q3_us=4.0, num_samples=20, clock_mhz=1980.0),
    SweepPoint("toy", "a/n2", "N4", "unsupported", "N must be 3"),
)


def test_a_sweep_survives_its_file(tmp_path: Path) -> None:
    sweep = Sweep({"device": "NVIDIA H200", "date": "2026-11-21"}, POINTS)
    save_sweep(tmp_path / "s.json", sweep)
    assert load_sweep(tmp_path / "s.json") == sweep


@pytest.mark.parametrize("text", ["", "[]", '{"format": "sweep 0", "about": {}, "points": []}', '{"format": "sweep 1"}'])
def test_another_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(RecordError, match=r"s\.json"):
        load_sweep(path)


def test_the_policy_takes_the_samples_that_were_asked_for() -> None:
    rule = make_policy(20).stop
    assert rule.decide([1.0 + 0.01 * i for i in range(19)], 0.1) is None
    assert rule.decide([1.0 + 0.01 * i for i in range(20)], 0.1) is StopReason.MAX_SAMPLES
    assert rule.decide([1.0] * 5, 0.6) is StopReason.BUDGET
    quick = make_policy(20, queued_samples=5).stop
    assert quick.decide([1.0] * 9, 0.1) is None and quick.decide([1.0, 1.005] * 5, 0.1) is StopReason.SETTLED
    assert quick.decide([1.0, 1.1] * 5, 0.1) is None


KERNEL = Kernel("k", "an idea", (Tunable("n", tuple(range(1, 9)), "how many"),), (), tuple({"n": n} for n in range(1, 9)))
OP = make_toy(kernels=(KERNEL,), problems=(Problem({"M": 16, "N": 16, "K": 16}, suites=frozenset({"bench"})),))


class FakeWorker:
    """Stands for the measuring process: n microseconds for variant n; 3 crashes, 5 hangs, 6 is wrong."""

    def __init__(self) -> None:
        self.spent = False

    def run(self, job: SweepJob, report: Callable[[str], None]) -> Answer:
        n = dict(job.variant.values)["n"]
        report("opened")
        if n == 3:
            os.kill(os.getpid(), signal.SIGSEGV)
        if n == 5:
            time.sleep(60)
        if n == 6:
            return Answer(make_points(OP, job.variant, OP.problems, "failed", "mismatch"))
        samples = np.full(20, n, np.float32)
        point = SweepPoint("toy", job.variant.name, OP.problems[0].name, "passed", "", job.code_hash, median_us=float(n), num_samples=20)
        return Answer((Measured(point, samples, samples),), Usage(10.0 * n, 10.0 * n + 8.0, 6.0, 40))


def make_build(n: int, *, code: str = "", error: str | None = None, host: str = "") -> BuildResult:
    library = None if error else Path("x.so")
    return BuildResult(KERNEL.bind({"n": n}), library, code or f"code{n}", f"key{n}", None, error, 0.0, cached=False, host_hash=host)


def measure(timeout_s: float = 30.0) -> Measure:
    return lambda feed: run_jobs(FakeWorker, (), feed, num_workers=1, timeout_s=timeout_s)


def sweep(builds: Sequence[BuildResult], *, timeout_s: float = 30.0, **steps: Any) -> dict[str, Measured]:
    def build_all(on_result: Callable[[BuildResult], None], compiler: Compiler) -> None:
        for build in builds:
            on_result(build)

    found = {}
    for each in screen(measure(timeout_s), OP, OP.problems, build_all, Steps(**steps)):
        (measured,) = each.points
        assert measured.point.variant == each.build.variant.name
        found[each.build.variant.name] = measured
    return found


def test_variants_compile_while_the_binding_does() -> None:
    is_built = threading.Event()
    builds = [make_build(n) for n in (1, 2, 4)]

    def build_all(on_result: Callable[[BuildResult], None], compiler: Compiler) -> None:
        for build in builds:
            on_result(build)
        is_built.set()

    def find_binding() -> Path:
        assert is_built.wait(20), "a variant waits for the binding, and holds a compiler up"
        return Path("binding.so")

    found = list(screen(measure(), OP, OP.problems, build_all, Steps(find_binding=find_binding)))
    assert {f.build.variant.name for f in found} == {b.variant.name for b in builds}


def test_a_binding_that_does_not_compile_ends_the_screen() -> None:
    def find_binding() -> Path:
        raise BuildError("the binding does not compile")

    def build_all(on_result: Callable[[BuildResult], None], compiler: Compiler) -> None:
        on_result(make_build(1))

    with pytest.raises(BuildError, match="the binding does not compile"):
        list(screen(measure(), OP, OP.problems, build_all, Steps(find_binding=find_binding)))


def test_variants_that_crash_hang_or_are_wrong_are_points_and_the_sweep_goes_on() -> None:
    broken = make_build(7, error="kernels.cu(3): error: expected a ;\nmore")
    found = sweep([make_build(n) for n in (1, 3, 4, 5, 6)] + [broken], timeout_s=2.0)
    reasons = {name: m.point.reason for name, m in found.items() if m.point.status == "failed"}
    assert "signal SIGSEGV" in reasons["k/n3"]
    assert "no sign of life" in reasons["k/n5"]
    assert reasons["k/n6"] == "mismatch"
    assert reasons["k/n7"] == "kernels.cu(3): error: expected a ;"
    assert {name: m.point.median_us for name, m in found.items() if m.point.status == "passed"} == {"k/n1": 1.0, "k/n4": 4.0}


def test_the_same_machine_code_is_timed_once() -> None:
    found = sweep([make_build(1), make_build(2, code="code1"), make_build(4, code="code1")])
    assert [m.point.median_us for m in found.values()] == [1.0, 1.0, 1.0]
    assert found["k/n1"].samples_us is not None and found["k/n2"].samples_us is None
    assert found["k/n4"].point.reason == "the machine code of k/n1: timed once"


def test_the_same_kernels_launched_otherwise_are_timed_too() -> None:
    found = sweep([make_build(1, host="grid 1"), make_build(2, code="code1", host="grid 2"), make_build(4, code="code1", host="grid 1")])
    assert [m.samples_us is not None for m in found.values()] == [True, True, False] or list(found) == ["k/n1", "k/n4", "k/n2"]
    assert found["k/n2"].point.median_us == 2.0 and found["k/n4"].point.median_us == 1.0


def test_what_is_not_worth_measuring_is_set_aside_with_its_reason() -> None:
    def choose(builds: Sequence[BuildResult]) -> tuple[list[BuildResult], list[tuple[BuildResult, str]]]:
        return [builds[1]], [(builds[0], "behind by the model")]

    spilling = {"k/n2": "spills 8 bytes a thread"}
    earlier = make_points(OP, make_build(8).variant, OP.problems, "failed", "earlier")
    told: list[Found] = []
    found = sweep(
        [make_build(n) for n in (1, 2, 4, 8)] + [make_build(7, code="code1")],
        find_earlier=lambda b: earlier if b.variant.name == "k/n8" else None,
        find_obstacle=lambda b: spilling.get(b.variant.name, ""),
        choose=choose,
        tell=told.append,
    )
    assert {name: (m.point.status, m.point.reason) for name, m in found.items()} == {
        "k/n1": ("set_aside", "behind by the model"),
        "k/n2": ("set_aside", "spills 8 bytes a thread"),
        "k/n4": ("passed", ""),
        "k/n7": ("set_aside", "behind by the model"),
        "k/n8": ("failed", "earlier"),
    }
    assert {f.build.variant.name for f in told} == set(found)
    assert [f.build.variant.name for f in told if f.is_earlier] == ["k/n8"]


def test_a_strategy_hears_of_every_result_and_is_let_go_at_the_end() -> None:
    strategy = OptunaStrategy(OP, StrategyName.TPE, 8, seed=1)
    proposals = Proposals(strategy, lag=2)
    built: list[str] = []

    def build_all(on_result: Callable[[BuildResult], None], compiler: Compiler) -> None:
        for variant in proposals:
            n = dict(variant.values)["n"]
            built.append(variant.name)
            on_result(make_build(n, error="error: no" if n == 7 else None, code="code1" if n == 2 else ""))

    def tell(found: Found) -> None:
        proposals.tell(found.build.variant, find_score(found))

    found = list(screen(measure(2.0), OP, OP.problems, build_all, Steps(tell=tell, stop=proposals.close)))
    assert sorted(built) == sorted(f.build.variant.name for f in found) == [f"k/n{n}" for n in range(1, 9)]
    points = screen(measure(), OP, OP.problems, build_all, Steps(stop=proposals.close))
    points.close()  # type: ignore[attr-defined]


def test_the_use_of_a_gpu_is_from_the_first_turn_to_the_last() -> None:
    use = GpuUse()
    assert use.describe() == ""
    for gpu, began in (("GPU-a", 100.0), ("GPU-a", 110.0), ("GPU-b", 100.0)):
        use.add([replace(POINTS[0], gpu=gpu)], Usage(began, began + 8.0, 6.0, 40))
    figures = use.to_figures()
    assert figures["gpu_s"] == 18.0 + 8.0 and figures["busy_share"] == pytest.approx(18.0 / 26.0)
    assert figures["host_us_per_sample"] == pytest.approx(6e6 / 120)
    assert use.describe().startswith("GPU busy: 69% of 26.0 s on 2 GPUs, first variant to last, 0.2 variants/s")


def test_measuring_begins_while_others_compile() -> None:
    seen: list[str] = []
    started: list[bool] = []

    def build_all(on_result: Callable[[BuildResult], None], compiler: Compiler) -> None:
        on_result(make_build(1))
        deadline = time.monotonic() + 30
        while not seen and time.monotonic() < deadline:
            time.sleep(0.01)
        started.append(bool(seen))
        on_result(make_build(2))

    seen.extend(found.build.variant.name for found in screen(measure(), OP, OP.problems, build_all))
    assert seen == ["k/n1", "k/n2"] and started == [True]


def test_leaving_early_stops_the_compilers() -> None:
    stopped: list[str] = []

    def build_all(on_result: Callable[[BuildResult], None], compiler: Compiler) -> None:
        on_result(make_build(1))
        try:
            while True:
                compiler.run(["sleep", "0.05"], Path("/tmp"))
        except BuildError as error:
            stopped.append(str(error))

    points = screen(measure(), OP, OP.problems, build_all)
    next(points)
    points.close()  # type: ignore[attr-defined]
    assert stopped == ["interrupted"]


def test_what_stops_the_build_is_told_after_what_was_measured() -> None:
    def build_all(on_result: Callable[[BuildResult], None], compiler: Compiler) -> None:
        on_result(make_build(1))
        raise BuildError("the disk is full")

    points = screen(measure(), OP, OP.problems, build_all)
    assert next(points).build.variant.name == "k/n1"
    with pytest.raises(BuildError, match="full"):
        next(points)


def test_progress_says_best_rate_and_time_left() -> None:
    progress = Progress(10, clock=0.0)
    point = POINTS[0]
    assert progress.add([point], now=2.0) == "a/n1 | best 3.5 us | 0.50/s, 18 s left"
    assert "best 3.5 us" in progress.add([replace(point, median_us=9.0)], now=4.0)
    assert progress.add([replace(point, median_us=1.0, variant="b")], now=3.0).startswith("b | best 1 us | 1.00/s, 7 s left")
    assert "a/n2 unsupported: N must be 3" in progress.add([POINTS[1]], now=4.0)


def test_the_model_keeps_a_share_of_each_problem_and_what_it_cannot_judge(monkeypatch: pytest.MonkeyPatch) -> None:
    times = {1: (5.0, None), 2: (1.0, None), 3: (None, 9.0), 4: (3.0, 1.0), 5: (None, None), 6: (4.0, 4.0), 7: (9.0, 9.0), 8: (8.0, 8.0)}

    def run_model(factory: Any, arguments: Any, feed: JobFeed[SweepJob], **_: Any) -> Iterator[tuple[SweepJob, Any]]:
        while (job := feed.take()) is not None:
            n = dict(job.variant.values)["n"]
            if n == 7:
                yield job, Lost("crashed", "")
                continue
            points = [
                SweepPoint("toy", job.variant.name, f"p{i}", "unsupported" if t is None else "passed", median_us=t or 0.0, mode="model")
                for i, t in enumerate(times[n])
            ]
            yield job, Answer(tuple(Measured(p) for p in points))

    monkeypatch.setattr("harness.sweep.without_gpu.run_jobs", run_model)
    setup = SweepSetup(Path("op"), "cuda", (), 20)
    kept, others = rank_by_model(setup, Path("binding.so"), [make_build(n) for n in times], 0.4, 1)
    # p0 in order: 2, 4, 6, 1, 8; p1: 4, 6, 8, 3.
    names = [b.variant.name for b in kept]
    assert set(names) == {"k/n2", "k/n4", "k/n6", "k/n7"}
    assert names.index("k/n6") == 3, "the best of each problem come first"
    assert {b.variant.name: reason for b, reason in others} == {
        "k/n1": "behind the first 40% by the model",
        "k/n3": "behind the first 40% by the model",
        "k/n8": "behind the first 40% by the model",
        "k/n5": "serves none of the problems",
    }


@pytest.fixture(autouse=True)
def no_logs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.sweep.screening.read_resources", lambda build: {})
