"""The verb ``compare`` on a fake GPU: verdicts, exit codes for a gate, records, and another revision of the sources."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.build.builder import BuildResult
from harness.build.revision import find_op_at
from harness.discover import LoadedOp
from harness.spec import Op, SpecError, Variant
from tests.harness.fake_device import FakeArray, FakeInstruments
from tests.harness.test_session import OP, Bench, give_wrong, run
from tests.harness.tiny_op import write_tiny_op
from tests.harness.toy_op import ToyKernel

ROWS = OP.select_problems("bench")[0].sizes["M"]


class Gpu(Bench):
    """``times_us`` are those of (kernel, library's stem); what is not in it takes 50 us. Every launch varies by half a percent."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        super().__init__(monkeypatch, folder, is_emulated=False)
        self.times_us: dict[tuple[str, str], float] = {}
        self.hashes: dict[tuple[str, str], str] = {}
        self.refusals: dict[tuple[str, str], str] = {}
        self.num_timed = 0
        rng = np.random.default_rng(3)
        self.vary: Callable[[], float] = lambda: float(np.exp(0.005 * rng.standard_normal()))
        (folder / "now.so").write_bytes(b"library")
        (folder / "old.so").write_bytes(b"library")
        self.folder = folder
        self.op = OP
        loaded = LoadedOp(OP, folder)
        monkeypatch.setattr("harness.compare.variants.find_op_at", lambda name, revision: (loaded, "0123456789abcdef"))
        monkeypatch.setattr("harness.compare.variants.build_op", lambda loaded, variants, **_: self.make_builds(variants, "old"))
        monkeypatch.setattr("harness.compare.variants.build_binding", lambda loaded, toolchain: folder / "old_binding.so")
        monkeypatch.setattr("harness.compare.variants.open_variant", self.open_variant)
        monkeypatch.setattr("harness.timing.timer.CudaInstruments", lambda: FakeInstruments(self.device))

    def make_builds(self, variants: Sequence[Variant], stem: str) -> list[BuildResult]:
        made = super().build(LoadedOp(OP, self.folder), variants, on_result=lambda r: None)
        return [
            replace(b, library=self.folder / f"{stem}.so", code_hash=self.hashes.get((b.variant.kernel, stem), b.variant.kernel + stem))
            for b in made
        ]

    def build(
        self, loaded: LoadedOp, variants: Sequence[Variant], *, on_result: Callable[[BuildResult], None], **_: Any
    ) -> list[BuildResult]:
        builds = self.make_builds(variants, "now")
        for b in builds:
            on_result(b)
        return builds

    def open_variant(self, op: Op, binding: Path, library: Path, variant: Variant) -> ToyKernel:
        def body(A: FakeArray, B: FakeArray, bias: FakeArray | None, Y: FakeArray, relu: bool) -> None:
            self.num_timed += 1
            self.device.clock_us += self.vary() * self.times_us.get((variant.kernel, library.stem), 50.0)
            self.bodies[variant.kernel](A=A, B=B, bias=bias, Y=Y, relu=relu)

        kernel = ToyKernel(self.device, body)
        if refusal := self.refusals.get((variant.kernel, library.stem)):
            served = kernel.supports
            kernel.supports = lambda **kw: refusal if kw["A"].shape[0] == ROWS else served(**kw)  # type: ignore[method-assign]
        return kernel


@pytest.fixture
def gpu(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Gpu:
    return Gpu(monkeypatch, tmp_path)


def test_a_slower_candidate_stops_a_gate(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.times_us = {("atomic", "now"): 51.0}
    code, out, _ = run(capsys, "compare", "toy", "--base", "honest", "--json")
    (row,) = json.loads(out)["rows"]
    assert code == 1
    assert (row["incumbent"], row["candidate"], row["verdict"]) == ("honest", "atomic", "SLOWER")
    assert row["outcome"]["effect"]["change"] == pytest.approx(0.02, abs=0.004)
    assert row["outcome"]["cycles"]["change"] == pytest.approx(0.02, abs=0.004)
    gpu.times_us[("atomic", "control")] = 51.0
    code, out, _ = run(capsys, "compare", "toy", "--base", "atomic")
    assert code == 0
    assert "FASTER" in out and "Fake device" in out


def test_an_op_without_goals_has_its_variants_compared(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.times_us = {("atomic", "now"): 60.0}
    code, out, err = run(capsys, "compare", "toy")
    assert code == 0, "the ladder is looked at, and nothing is to be guarded"
    assert "SLOWER" in out and "atomic" in out
    assert "toy has no goals: its variants are compared with the first, honest; --base NAME chooses another" in err
    assert run(capsys, "compare", "toy", "--goal", "speed")[0] == 2


def test_every_sample_of_every_contender_is_recorded(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "compare", "toy", "--base", "honest", "--variant", "atomic", "--mode", "hot")[0] == 0
    rows = [r for r in json.loads(run(capsys, "report", "toy", "--run", "1", "--json")[1]) if r["kind"] == "compare"]
    assert [(r["figures"]["role"], r["variant"]) for r in rows] == [("incumbent", "honest"), ("control", "honest"), ("candidate", "atomic")]
    assert {len(r["samples"]) for r in rows} == {2 * rows[2]["figures"]["num_rounds"]}
    assert rows[2]["figures"]["verdict"] == "SAME" and rows[2]["figures"]["mode"] == "hot"


def test_a_control_that_differs_voids_the_run_and_stops_a_gate(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.times_us = {("honest", "control"): 51.5, ("atomic", "now"): 40.0}
    code, out, _ = run(capsys, "compare", "toy", "--base", "honest")
    assert code == 1
    assert "AMBIGUOUS" in out and "void: the incumbent differs from itself" in out


def test_each_variant_meets_itself_at_another_revision(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.times_us = {("honest", "old"): 48.0, ("honest", "control"): 48.0}
    gpu.hashes = {("atomic", "old"): "same", ("atomic", "now"): "same"}
    code, out, _ = run(capsys, "compare", "toy", "--against", "main", "--json")
    rows = {r["candidate"]: r for r in json.loads(out)["rows"]}
    assert code == 1
    assert (rows["honest"]["incumbent"], rows["honest"]["verdict"]) == ("honest@0123456789", "SLOWER")
    assert rows["atomic"]["verdict"] == "SAME" and "same machine code" in rows["atomic"]["reason"]


def test_a_variant_that_stops_serving_a_problem_stops_a_gate(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.refusals = {("atomic", "now"): "M must be even"}
    code, out, _ = run(capsys, "compare", "toy", "--against", "main", "--json")
    rows = {r["candidate"]: r for r in json.loads(out)["rows"]}
    assert (code, rows["atomic"]["reason"]) == (1, "not served: M must be even")
    # Another variant may serve other problems, and what the revision did not serve either is not given up.
    assert run(capsys, "compare", "toy", "--base", "honest")[0] == 0
    gpu.refusals = {("atomic", stem): "M must be even" for stem in ("now", "old", "control")}
    assert run(capsys, "compare", "toy", "--against", "main")[0] == 0


def test_unchanged_machine_code_is_not_timed(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    gpu.hashes = {(k, s): k for k in ("honest", "atomic") for s in ("old", "now")}
    assert run(capsys, "verify", "toy")[0] == 0
    gpu.num_timed = 0
    code, out, _ = run(capsys, "compare", "toy", "--against", "main", "--variant", "honest")
    assert (code, gpu.num_timed) == (0, 0)
    assert "SAME" in out and "not timed" in out


def test_an_output_that_goes_wrong_has_no_verdict(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "compare", "toy", "--base", "honest")[0] == 0
    gpu.bodies["atomic"] = give_wrong
    code, out, _ = run(capsys, "compare", "toy", "--base", "honest", "--json")
    (row,) = json.loads(out)["rows"]
    assert row["outcome"] is None and "wrong after it was timed" in row["reason"]
    assert code == 1, "times of what is wrong open no gate"


def test_two_records_are_compared_with_a_wider_margin(gpu: Gpu, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(capsys, "compare", "toy", "--base", "honest")[0] == 0
    gpu.times_us = {("atomic", "now"): 55.0}
    assert run(capsys, "compare", "toy", "--base", "honest")[0] == 1
    rows = json.loads(run(capsys, "report", "toy", "--run", "1", "--run", "2", "--json")[1])
    ids = [r["id"] for r in rows if r["kind"] == "compare" and r["variant"] == "atomic"]
    code, out, _ = run(capsys, "compare", "toy", "--record", str(ids[0]), "--record", str(ids[1]), "--json")
    (row,) = json.loads(out)["rows"]
    assert (code, row["verdict"]) == (1, "SLOWER")
    assert "measured apart" in row["reason"]
    assert run(capsys, "compare", "toy", "--record", str(ids[1]), "--record", str(ids[0]))[0] == 0
    verdict = next(r["id"] for r in rows if r["kind"] == "verify")
    code, _, err = run(capsys, "compare", "toy", "--record", str(verdict), "--record", str(ids[0]))
    assert code == 2 and "holds no times of a GPU" in err


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("--goal", "speed"), 2, "give compare one of --base NAME, --against REV, and --record"),
        (("--base", "honest", "--against", "main"), 2, "one of --base NAME"),
        (("--base", "honest", "--variant", "honest"), 2, "there is no candidate"),
        (("--base", "honest", "--mode", "warm"), 2, "must be cold or hot"),
        (("--record", "1"), 2, "given 1 times"),
        (("--record", "1", "--record", "77"), 2, "no record 1"),
    ],
)
def test_wrong_use_is_told(gpu: Gpu, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], code: int, message: str) -> None:
    got, _, err = run(capsys, "compare", "toy", *arguments)
    assert (got, message in err) == (code, True), err


def test_the_emulated_device_has_no_times_to_compare(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    Bench(monkeypatch, tmp_path, is_emulated=True)
    code, _, err = run(capsys, "compare", "toy", "--base", "honest")
    assert code == 3 and "need a GPU" in err


def git(folder: Path, *arguments: str) -> None:
    identity = ("-c", "user.name=t", "-c", "user.email=t@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", "-C", str(folder), *identity, *arguments], check=True, capture_output=True)


def test_an_op_is_taken_from_another_revision(tmp_path: Path) -> None:
    project = tmp_path / "project"
    ops = write_tiny_op(project)
    git(project, "init", "-q")
    git(project, "add", "-A")
    git(project, "commit", "-qm", "first")
    git(project, "tag", "before")
    header = ops / "common" / "tiny.cuh"
    header.write_text(header.read_text().replace("x + x", "3 * x"))
    git(project, "commit", "-qam", "second")
    old, commit = find_op_at("tiny", "before", project, tmp_path / "cache")
    new, other = find_op_at("tiny", "HEAD", project, tmp_path / "cache")
    assert commit != other
    assert "x + x" in (old.include_dir / "common" / "tiny.cuh").read_text()
    assert "3 * x" in (new.include_dir / "common" / "tiny.cuh").read_text()
    assert find_op_at("tiny", "before", project, tmp_path / "cache")[0].folder == old.folder
    with pytest.raises(SpecError, match="knows no revision 'nowhere'"):
        find_op_at("tiny", "nowhere", project, tmp_path / "cache")
    with pytest.raises(SpecError, match="knows no revision '--all'"):
        find_op_at("tiny", "--all", project, tmp_path / "cache")
