"""From verdict to record to table, on fake devices: the verbs ``verify``, ``bench`` and ``report`` with builds and workers replaced."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

import harness.benchmark.session
import harness.benchmark.workers
import harness.discover
from device import DeviceError
from harness.__main__ import main
from harness.benchmark.session import Session
from harness.build.builder import BuildResult
from harness.build.resources import Resources
from harness.discover import LoadedOp
from harness.processes.feed import JobFeed
from harness.processes.pool import Lost
from harness.spec import Op, Peer, Problem, Variant
from harness.timing.stats import StopRule
from harness.timing.timer import TimingPolicy
from harness.verify.findings import Fault, FaultKind
from harness.verify.judge import Verifier
from tests.harness.fake_device import FakeArray, FakeDevice, FakeInstruments
from tests.harness.toy_op import Body, ToyKernel, honest, make_toy
from tests.replacing import replace_function

SUITES = frozenset({"bench", "emulated"})
OP = make_toy(problems=(*make_toy().problems, Problem({"M": 24, "N": 24, "K": 24}, suites=SUITES)))


class Bench:
    """Runs verbs over a fake device; ``bodies`` are the kernels by name, ``lost`` those whose process is lost."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path, *, is_emulated: bool) -> None:
        self.device = FakeDevice(is_emulated=is_emulated)
        self.bodies: dict[str, Body] = {"honest": honest, "atomic": honest}
        self.lost: dict[str, Lost] = {}
        self.broken: set[str] = set()
        self.jobs: list[str] = []
        self.key = "k"
        self.peer_us = 100.0
        (folder / "op.py").write_text("")
        loaded = LoadedOp(OP, folder)
        monkeypatch.setenv("AICF_RECORDS_URL", f"sqlite:///{folder / 'records.sqlite'}")
        monkeypatch.setenv("AICF_CACHE_DIR", str(folder / "cache"))
        peer = Peer("numpy", "numpy", lambda: ToyKernel(self.device, self.run_slowly))
        replace_function(monkeypatch, "harness.discover.find_op", lambda name: loaded)
        replace_function(monkeypatch, "harness.discover.load_peers", lambda folder: (peer,))
        monkeypatch.setattr("harness.benchmark.session.open_device", lambda choice: self.device)
        monkeypatch.setattr("harness.benchmark.session.build_op", self.build)
        monkeypatch.setattr("harness.benchmark.session.build_binding", lambda *_, **__: folder / "binding.so")
        monkeypatch.setattr("harness.benchmark.workers.run_jobs", self.run_jobs)
        monkeypatch.setattr("harness.benchmark.workers.open_device", lambda choice: self.device)
        monkeypatch.setattr("harness.benchmark.workers.load_op", lambda folder: OP)
        # There is no machine code: the plain model of harness.model.roofline stands in.
        monkeypatch.setattr("harness.benchmark.workers.VariantWorker._find_features", lambda *_: None)
        monkeypatch.setattr("harness.benchmark.workers.VariantWorker._read_codes", lambda *_: {})
        for place in ("harness.benchmark.workers", "harness.benchmark.run"):
            monkeypatch.setattr(f"{place}.open_variant", self.open_variant)
        quick = TimingPolicy(stop=StopRule(min_samples=8, budget_s=0.0), warmup_cap_s=0.0)
        real = harness.benchmark.run.Timer
        monkeypatch.setattr("harness.benchmark.run.Timer", lambda device: real(device, quick, instruments=FakeInstruments(self.device)))

    def run_slowly(self, **arguments: Any) -> None:
        self.device.clock_us += self.peer_us
        honest(**arguments)

    def build(
        self, loaded: LoadedOp, variants: Sequence[Variant], *, on_result: Callable[[BuildResult], None], **_: Any
    ) -> list[BuildResult]:
        results = []
        for v in variants:
            bad = v.name in self.broken
            library = None if bad else Path("x.so")
            error = "kernels.cu:7: error: expected a ;" if bad else None
            results.append(BuildResult(v, library, "code", "" if bad else self.key, Resources(32, 1024), error, 0.0, True))
            on_result(results[-1])
        return results

    def open_variant(self, op: Op, binding: Path, library: Path, variant: Variant) -> ToyKernel:
        def body(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
            self.device.clock_us += 50.0
            self.bodies[variant.kernel](A=A, B=B, bias=bias, Y=Y, relu=relu)

        return ToyKernel(self.device, body)

    def run_jobs(self, factory: Any, arguments: tuple[Any, ...], jobs: Sequence[Any] | JobFeed[Any], **_: Any) -> Iterator[tuple[Any, Any]]:
        worker = factory(*arguments)
        for job in take_all(jobs):
            names = [j.variant.name for j in getattr(job, "jobs", (job,))]
            self.jobs += names
            yield job, next((self.lost[n] for n in names if n in self.lost), None) or worker.run(job, lambda text: None)


def take_all(jobs: Sequence[Any] | JobFeed[Any]) -> Iterator[Any]:
    if not isinstance(jobs, JobFeed):
        yield from jobs
        return
    while not jobs.is_done:
        jobs.wait(1.0)
        if (job := jobs.take()) is not None:
            yield job


@pytest.fixture
def emulated(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    return Bench(monkeypatch, tmp_path, is_emulated=True)


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Bench:
    return Bench(monkeypatch, tmp_path, is_emulated=False)


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    captured = capsys.readouterr()
    assert isinstance(ended.value.code, int)
    return ended.value.code, captured.out, captured.err


def give_wrong(**arguments: Any) -> None:
    honest(**arguments)
    arguments["Y"].host[...] += 1


def test_verify_lists_every_variant_and_problem_with_error_figures(emulated: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "verify", "toy", "--json")
    assert code == 0
    data = json.loads(out)
    assert [v["variant"] for v in data["variants"]] == ["honest", "atomic"]
    for v in data["variants"]:
        assert v["ok"] is True
        assert [p["problem"] for p in v["problems"] if not p["hidden"]] == [p.name for p in OP.select_problems("verify")]
        assert all((p["status"] == "passed" or p["large"]) and 0 <= p["max_error_ratio"] <= 1 and p["max_ulp"] >= 0 for p in v["problems"])
    assert "of unlisted sizes" in data["plan"]


def test_a_planted_bug_turns_the_exit_code_and_is_named(emulated: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    emulated.bodies["atomic"] = give_wrong
    code, out, err = run(capsys, "verify", "toy")
    assert code == 1
    assert "atomic: mismatch on M16_N16_K16-bias-relu" in out
    assert "256 of 256 elements wrong" in out
    assert "verify toy: atomic failed: mismatch" in err


def test_bench_on_the_emulated_device_has_counts_and_model_and_no_time(emulated: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert emulated.device.fake_observer is not None
    emulated.device.fake_observer.counts = {"warp_instructions": 123456, "global_loads": 10, "global_load_sectors": 40}
    code, out, _ = run(capsys, "bench", "toy")
    assert code == 0
    for text in ("emulated, model for h200", "model us", "no GPU was used and no time was measured", "unvalidated"):
        assert text in out
    assert "cold" not in out
    assert "hot" not in out
    code, out, _ = run(capsys, "bench", "toy", "--json")
    rows = json.loads(out)["rows"]
    assert [(r["variant"], r["problem"], r["device"]) for r in rows] == [(k, "M24_N24_K24", "emulated") for k in ("honest", "atomic")]
    assert all(r["cold"] is None and r["hot"] is None and r["model_us"] > 0 and "unvalidated" in r["note"] for r in rows)
    assert rows[0]["statics"] == {"registers": 32, "shared_bytes": 1024, "spill_bytes": 0, "occupancy": 1.0, "limiter": "threads"}


def test_a_second_bench_verifies_and_counts_nothing_again(emulated: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "bench", "toy")[0] == 0
    assert len(emulated.jobs) == 4
    code, _, err = run(capsys, "bench", "toy")
    assert code == 0
    assert len(emulated.jobs) == 4
    assert "verify 2/2 (2 before) · count 2/2 (2 before)" in err.splitlines()[-1]
    assert len(err.splitlines()) == 3, "a line when a stage is complete"
    emulated.key = "edited"
    assert run(capsys, "bench", "toy")[0] == 0
    assert len(emulated.jobs) == 8


def test_a_refusal_is_not_taken_from_the_records(emulated: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    emulated.bodies["atomic"] = give_wrong
    code, out, err = run(capsys, "bench", "toy")
    assert code == 1
    assert "failed: 1 (mismatch: atomic) · 1 of 2 verified" in out
    assert "bench toy: atomic failed: mismatch" in err and "atomic: mismatch on" in err
    emulated.bodies["atomic"] = honest
    code, out, _ = run(capsys, "bench", "toy")
    assert code == 0
    assert emulated.jobs == ["honest", "atomic", "honest", "atomic", "atomic"]


def test_a_lost_process_and_a_compile_error_are_faults_of_their_variant(emulated: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    emulated.lost["atomic"] = Lost("crashed", "the process ended with signal SIGSEGV")
    code, out, _ = run(capsys, "verify", "toy")
    assert code == 1
    assert "atomic: crashed (process, normal inputs): the process ended with signal SIGSEGV" in out
    emulated.broken.add("honest")
    code, out, _ = run(capsys, "verify", "toy", "--json")
    assert code == 1
    reasons = {v["variant"]: v["reason"] for v in json.loads(out)["variants"]}
    assert reasons == {"honest": "build_error", "atomic": "crashed"}


def test_bench_on_a_gpu_times_variants_beside_peers(gpu: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "bench", "toy", "--json")
    assert code == 0
    rows = {r["variant"]: r for r in json.loads(out)["rows"]}
    assert rows["honest"]["cold"]["median_us"] == pytest.approx(50.0)
    assert rows["numpy"]["verified"] == "peer"
    assert rows["honest"]["share_of_best_peer"] == pytest.approx(2.0)
    code, out, _ = run(capsys, "bench", "toy")
    assert "Fake device" in out
    assert "emulated" not in out
    code, out, _ = run(capsys, "report", "toy", "--json")
    recorded = [r for r in json.loads(out) if r["kind"] == "bench"]
    assert {(r["variant"], r["figures"]["mode"]) for r in recorded} == {
        (v, m) for v in ("honest", "atomic", "numpy") for m in ("cold", "hot")
    }
    assert all(len(r["samples"]) == r["figures"]["num_samples"] for r in recorded)
    assert "cold 50 us" in run(capsys, "report", "toy")[1]


def test_a_peer_that_is_not_there_is_said_and_not_waited_for(
    gpu: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> ToyKernel:
        raise ImportError("no module named cupy")

    replace_function(monkeypatch, "harness.discover.load_peers", lambda folder: (Peer("cublas", "cupy", fail),))
    code, _, err = run(capsys, "bench", "toy")
    assert code == 0 and "bench toy: peer cublas left out: cupy cannot be imported (no module named cupy)" in err
    assert "time 2/2" in err.splitlines()[-1]


def test_a_variant_that_goes_wrong_while_it_is_timed_is_refused(gpu: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "bench", "toy")[0] == 0
    gpu.bodies["atomic"] = give_wrong
    code, _, err = run(capsys, "bench", "toy")
    assert code == 1
    assert "atomic on M24_N24_K24: wrong after it was timed: Y [24x24]: 576 of 576 elements wrong" in err


def test_a_launch_that_fails_while_it_is_timed_is_its_own_failure(gpu: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    def fail(**_: Any) -> None:
        raise DeviceError("an odd failure", 1)

    gpu.run_slowly = fail  # type: ignore[method-assign]
    code, out, err = run(capsys, "bench", "toy")
    assert code == 1
    assert "numpy on M24_N24_K24: an odd failure" in err
    assert "failed: 1 (an odd failure: numpy)" in out
    recorded = json.loads(run(capsys, "report", "toy", "--json")[1])
    assert [(r["variant"], r["reason"]) for r in recorded if r["status"] == "failed"] == [("numpy", "an odd failure")]


def test_a_launch_that_cannot_be_captured_has_a_cold_time_alone(
    gpu: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    real = ToyKernel.launch

    def launch(self: ToyKernel, **arguments: Any) -> None:
        if gpu.device._capturing and self.body == gpu.run_slowly:
            raise DeviceError("operation not permitted when stream is capturing", 900)
        real(self, **arguments)

    monkeypatch.setattr(ToyKernel, "launch", launch)
    gpu.peer_us = 10.0
    code, out, _ = run(capsys, "bench", "toy", "--json")
    row = next(r for r in json.loads(out)["rows"] if r["variant"] == "numpy")
    assert code == 0
    assert row["cold"]["median_us"] == pytest.approx(10.0)
    assert row["hot"] is None
    assert "no hot time: operation not permitted" in row["reason"]


def test_an_interrupt_keeps_what_was_recorded(emulated: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(**_: Any) -> None:
        raise KeyboardInterrupt

    emulated.bodies["atomic"] = interrupt
    code, _, err = run(capsys, "bench", "toy")
    assert code == 130
    assert "what was finished is kept" in err
    code, out, _ = run(capsys, "report", "toy", "--json")
    assert [(r["variant"], r["status"]) for r in json.loads(out)] == [("honest", "passed")]


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("verify", "toy", "--variant", "nothing"), 2, "op toy has no kernel 'nothing'; it has: honest, atomic"),
        (("bench", "toy", "--problem", "M1"), 2, "op toy has no problem 'M1'"),
        (("verify", "toy", "--target", "b300"), 2, "unknown target 'b300'"),
        (("report", "toy"), 1, "run python -m harness bench toy first"),
    ],
)
def test_wrong_use_is_told(
    emulated: Bench, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str
) -> None:
    got, _, err = run(capsys, *arguments)
    assert got == code
    assert message in err


def test_what_was_recorded_before_makes_no_run_and_report_shows_every_variant(emulated: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "verify", "toy")[0] == 0
    first = json.loads(run(capsys, "report", "toy", "--json")[1])
    assert {r["variant"] for r in first} == {"honest", "atomic"}
    code, out, _ = run(capsys, "verify", "toy", "--variant", "atomic")
    assert code == 0 and "Run 2 in sqlite:" in out
    newest = json.loads(run(capsys, "report", "toy", "--json")[1])
    assert {(r["variant"], r["run_id"]) for r in newest} == {("honest", 1), ("atomic", 2)}, "the newest of each, whichever run it is of"
    out = run(capsys, "report", "toy")[1]
    assert "the newest of each variant on" in out and "from runs 1, 2" in out
    assert "2 of 2 variants have no figures there: python -m harness bench toy makes them" in out


def test_a_bench_that_finds_everything_recorded_names_no_run(emulated: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    session = Session.start(harness.discover.find_op("toy"), "bench toy")
    with session:
        assert session.recorded_run is None
        assert session.describe_run() == f"All of it was recorded before in {session.settings.records_url}: no new run"
        session.record(None, kind="verify", variant="honest", problem="*", status="passed")
        assert session.describe_run() == f"Run {session.recorded_run} in {session.settings.records_url}"
        assert session.records.read_run(session.run_id).started_at == session.started_at


@pytest.mark.parametrize(
    ("proved", "wanted", "counts"),
    [("listed", "listed", True), ("drawn", "listed", True), ("drawn", "drawn", True), ("listed", "drawn", False)],
)
def test_a_verdict_counts_for_what_it_proved(proved: str, wanted: str, counts: bool) -> None:
    record = SimpleNamespace(status="passed", figures={"proof": proved})
    session: Any = SimpleNamespace(find_earlier=lambda *_, **__: record)
    found = Session._find_passed(session, cast(Any, None), wanted, committed_only=False)
    assert (found is record) is counts


def test_bench_says_what_a_first_look_leaves_out_and_all_takes_it(
    emulated: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.verbs.bench.select_first_look", lambda op, problems: op.variants[:1])
    code, out, _ = run(capsys, "bench", "toy")
    assert code == 0 and emulated.jobs == ["honest", "honest"]
    assert "1 of 1 variants verified" in out and "A first look: 1 of the op's 2 variants were left out" in " ".join(out.split())
    assert json.loads(run(capsys, "bench", "toy", "--json")[1])["left_out"] == ["atomic"]
    for words in (("--all",), ("--variant", "atomic", "--variant", "honest")):
        code, out, _ = run(capsys, "bench", "toy", *words)
        assert code == 0 and "2 of 2 variants verified" in out and "first look" not in out


def test_bench_on_a_gpu_takes_every_variant(gpu: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.verbs.bench.select_first_look", lambda op, problems: op.variants[:1])
    assert "2 of 2 variants verified" in run(capsys, "bench", "toy")[1]


def test_the_tolerance_is_checked_once_per_description_and_its_faults_are_said_each_time(
    emulated: Bench, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    checked: list[str] = []
    faults: tuple[Fault, ...] = (Fault(FaultKind.TOLERANCE_ACCEPTS_ZEROS, "tolerance", "zeros pass"),)

    def check(self: Verifier) -> tuple[Fault, ...]:
        checked.append(self.op.name)
        return faults

    monkeypatch.setattr(Verifier, "check_op", check)
    for _ in range(2):
        code, _, err = run(capsys, "bench", "toy")
        assert code == 1 and "zeros pass" in err
    faults = ()
    assert [run(capsys, "bench", "toy")[0] for _ in range(2)] == [0, 0] and len(checked) == 3
    (tmp_path / "op.py").write_text("# another description")
    assert run(capsys, "bench", "toy")[0] == 0 and len(checked) == 4
