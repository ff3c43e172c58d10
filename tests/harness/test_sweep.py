"""The verb ``sweep`` on a fake GPU: records, resumption, what is set aside, and the finals."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.build.builder import BuildResult
from harness.build.resources import Resources
from harness.discover import LoadedOp
from harness.processes.feed import JobFeed
from harness.processes.pool import Lost
from harness.spec import Variant
from harness.sweep.worker import SweepJob
from harness.timing.timer import Timer, TimingPolicy
from tests.harness.fake_device import FakeInstruments
from tests.harness.test_comparing import Gpu
from tests.harness.test_session import run


class Sweeper(Gpu):
    """The verb with its worker in this process; ``timed`` are the variants that were measured in a screen."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder)
        self.timed: list[str] = []
        self.host_hash = ""
        self.resources = Resources(64)
        self.lost: dict[str, Lost] = {}

        def build_stream(loaded: LoadedOp, variants: Iterable[Variant], *, on_result: Any, **_: Any) -> None:
            for variant in variants:
                self.build(loaded, [variant], on_result=on_result)

        def run_jobs(factory: Any, arguments: tuple[Any, ...], feed: JobFeed[SweepJob], **_: Any) -> Iterator[tuple[SweepJob, Any]]:
            worker = factory(*arguments)
            while not feed.is_done:
                feed.wait(1.0)
                while (job := feed.take()) is not None:
                    self.timed.append(job.variant.name)
                    yield job, self.lost.get(job.variant.name) or worker.run(job, lambda text: None)

        monkeypatch.setattr("harness.sweep.screening.read_resources", lambda build: {"kernel": self.resources})
        monkeypatch.setattr("harness.sweep.run.build_stream", build_stream)
        monkeypatch.setattr("harness.sweep.startup._build_binding", lambda loaded: folder / "binding.so")
        monkeypatch.setattr("harness.sweep.startup._build_instruments", lambda device: None)
        monkeypatch.setattr("harness.sweep.startup.open_device", lambda device: None)
        monkeypatch.setattr("harness.sweep.startup.PER_GPU", 0)
        monkeypatch.setattr("harness.sweep.run.run_jobs", run_jobs)
        monkeypatch.setattr("harness.sweep.worker.open_device", lambda name: self.device)
        monkeypatch.setattr("harness.sweep.worker.load_op", lambda folder: self.op)
        monkeypatch.setattr("harness.sweep.worker.open_variant", self.open_variant)
        monkeypatch.setattr("harness.sweep.worker.CudaInstruments", lambda: FakeInstruments(self.device))
        monkeypatch.setattr("harness.sweep.worker.Timer", lambda device, policy, instruments: self.make_timer(policy))

    def make_builds(self, variants: Sequence[Variant], stem: str) -> list[BuildResult]:
        return [replace(b, host_hash=self.host_hash, resources=self.resources) for b in super().make_builds(variants, stem)]

    def make_timer(self, policy: TimingPolicy) -> Any:
        return Timer(self.device, replace(policy, warmup_cap_s=0.0), instruments=FakeInstruments(self.device))


@pytest.fixture
def sweeper(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Sweeper:
    return Sweeper(monkeypatch, tmp_path)


def test_a_sweep_records_every_sample_and_its_winner_is_measured_anew(sweeper: Sweeper, capsys: pytest.CaptureFixture[str]) -> None:
    sweeper.times_us = {("honest", "now"): 50.0, ("honest", "control"): 50.0, ("atomic", "now"): 48.0, ("atomic", "control"): 48.0}
    code, out, err = run(capsys, "sweep", "toy")
    assert code == 0
    assert "fastest of 2 in the screen" in out and "best 4" in err
    assert "winner: atomic (the incumbent stays)" in out, "both are listed: the screen's best is the incumbent"
    rows = json.loads(run(capsys, "report", "toy", "--run", "1", "--json")[1])
    screened = [r for r in rows if r["kind"] == "sweep"]
    assert [(r["variant"], len(r["samples"]) >= 10, r["inputs"]) for r in screened] == [(k, True, "uniform") for k in ("honest", "atomic")]
    assert all(len(r["clocks"]) == len(r["samples"]) and r["clock_label"] == "fixed-power" for r in screened)
    assert [r["figures"]["role"] for r in rows if r["kind"] == "compare"] == ["incumbent", "control", "candidate"]


def test_a_sweep_gives_one_json_document(sweeper: Sweeper, capsys: pytest.CaptureFixture[str]) -> None:
    sweeper.times_us = {("honest", "now"): 50.0, ("honest", "control"): 50.0, ("atomic", "now"): 48.0, ("atomic", "control"): 48.0}
    code, out, err = run(capsys, "sweep", "toy", "--json")
    document = json.loads(out)
    assert (code, err) == (0, "")
    assert [(p["variant"], p["status"]) for p in document["points"]] == [("honest", "passed"), ("atomic", "passed")]
    (winner,) = document["winners"]
    assert winner["winner"] == "atomic" and winner["comparisons"][0]["candidate"] == "honest"
    assert run(capsys, "report", "toy", "--run", "1")[0] == 0, "every kind of record can be shown"


def test_an_interrupted_sweep_goes_on_where_it_was(sweeper: Sweeper, capsys: pytest.CaptureFixture[str]) -> None:
    sweeper.lost["atomic"] = Lost("crashed", "the process ended with signal SIGKILL")
    assert run(capsys, "sweep", "toy", "--finalists", "0")[0] == 0
    assert sweeper.timed == ["honest", "atomic"]
    code, out, err = run(capsys, "sweep", "toy", "--resume", "--finalists", "0")
    assert code == 0
    assert sweeper.timed == ["honest", "atomic"], "what was recorded, a crash too, is not done again"
    assert "recorded before: honest" in err and "1 points timed, 1 failed" in out
    sweeper.key = "edited"
    assert run(capsys, "sweep", "toy", "--resume", "--finalists", "0")[0] == 0
    assert sweeper.timed == ["honest", "atomic", "honest", "atomic"]


def test_the_same_launch_under_another_name_is_taken_from_the_records(sweeper: Sweeper, capsys: pytest.CaptureFixture[str]) -> None:
    sweeper.host_hash = "grid 1"
    assert run(capsys, "sweep", "toy", "--finalists", "0")[0] == 0
    assert sweeper.timed == ["honest", "atomic"]
    sweeper.key = "a comment was edited"
    code, _, err = run(capsys, "sweep", "toy", "--resume", "--finalists", "0")
    assert code == 0 and sweeper.timed == ["honest", "atomic"] and err.count("recorded before") == 2
    sweeper.key, sweeper.host_hash = "the launcher was edited", "grid 2"
    assert run(capsys, "sweep", "toy", "--resume", "--finalists", "0")[0] == 0
    assert sweeper.timed == ["honest", "atomic", "honest", "atomic"], "the same kernels launched otherwise take another time"


@pytest.mark.parametrize(("options", "timed"), [((), ["honest"]), (("--with-spills",), ["honest", "atomic"])])
def test_unlisted_variants_that_spill_are_set_aside(
    sweeper: Sweeper,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    options: tuple[str, ...],
    timed: list[str],
) -> None:
    sweeper.resources = Resources(64, spill_store_bytes=8)
    monkeypatch.setattr("harness.sweep.run.SweepRun._is_listed", lambda self, name: name == "honest")
    code, out, _ = run(capsys, "sweep", "toy", "--finalists", "0", *options)
    assert code == 0 and sweeper.timed == timed
    assert ("set aside: atomic on M24_N24_K24: spills 8 bytes a thread" in out) == (not options)


def test_a_launch_of_which_no_block_fits_is_set_aside(sweeper: Sweeper, capsys: pytest.CaptureFixture[str]) -> None:
    # The fake device's blocks have 128 threads, which fit with any number of registers; shared memory of a block may be too much.
    sweeper.resources = Resources(64, shared_bytes=300_000)
    code, out, _ = run(capsys, "sweep", "toy", "--finalists", "0")
    assert code == 1 and "no occupancy" in out and "0 points timed" in out
