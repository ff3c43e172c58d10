"""Libraries in the frozen set: adopted from a record of drawn problems, refused by name, and verified like everything else there."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from contract.errors import FrozenError
from contract.frozen_set import read_op
from contract.layout import INDEX, dump_line, find_frozen_dir, hash_value
from harness.__main__ import build_app
from harness.compare.drawn.record import FROZEN, PEER, Contender, DrawnRow, DrawnRun, read_runs, write_runs
from harness.errors import FrozenUseError
from harness.freezing.decide.library import adopt_library
from harness.freezing.store.changes import demote, roll_back
from harness.freezing.store.index import read_frozen_op
from harness.freezing.store.verify import check_op

OP = "gemm_bias_act"
KIND = {"dtype": "bfloat16", "b_layout": "nk", "act": "relu", "with_bias": True}
FACTS = {
    "version": 130002,
    "workspace_bytes": 33554432,
    "deterministic": True,
    "capture_safe": True,
    "checked": 8,
    "kinds": {"relu": "", "none": ""},
}


@pytest.fixture
def frozen_dir(tmp_path: Path) -> Path:
    """A copy of the op's frozen set."""
    (tmp_path / "frozen").mkdir()
    shutil.copytree(find_frozen_dir() / OP, tmp_path / "frozen" / OP)
    return tmp_path / "frozen"


@cache
def find_kernel() -> str:
    return next(iter(read_op(OP).kernels))


def make_row(m: int, library_us: float | None, *, n: int = 4096, error: float = 0.5, **changes: Any) -> DrawnRow:
    """Return a problem on which a frozen kernel took 10 us."""
    kernel = find_kernel()
    status = "unsupported" if library_us is None else "passed" if error <= 1 else "failed"
    library = Contender("cublaslt", PEER, status, library_us, library_us, library_us, error)
    mine = Contender(kernel, FROZEN, "passed", 10.0, 10.0, 10.0, 0.4)
    row = DrawnRow(
        "rows", f"M{m}_N{n}_K4096", {"M": m, "N": n, "K": 4096}, KIND, {}, kernel, "the frozen decision", "", "surveyed", (mine, library)
    )
    return replace(row, **changes)


def make_record(path: Path, *rows: DrawnRow, facts: dict[str, Any] | None = FACTS, **changes: Any) -> Path:
    """Write a record of one run; without ``facts`` it says nothing of the library."""
    environment = {"device_name": "NVIDIA H200", "driver_version": 13000, "toolchain": "nvcc"}
    run = DrawnRun(OP, 5, 9, "2026-01-01T00:00:00", "compare", "commit abc", "sm_90a", "i", environment, rows=rows)
    write_runs(path, OP, [replace(run, libraries={} if facts is None else {"cublaslt": facts}, **changes)])
    return path


def refuse(frozen_dir: Path, record: Path) -> dict[str, str]:
    """Return the gates that a record does not pass, with what they say; nothing is written."""
    before = (frozen_dir / OP / INDEX).read_bytes()
    done = adopt_library(read_frozen_op(frozen_dir, OP), "cublaslt", record, dry_run=False)
    assert not done.is_passed and done.row == {} and (frozen_dir / OP / INDEX).read_bytes() == before
    return {g.name: g.detail for g in done.gates if not g.passed}


@pytest.mark.slow
def test_a_record_becomes_a_row_that_comes_and_goes_with_the_history(frozen_dir: Path, tmp_path: Path) -> None:
    rows = [
        make_row(128, 7.0),
        make_row(300, 11.0),
        make_row(500, 8.0, error=1.5),
        make_row(600, None),
        make_row(700, 5.0, n=4095),
        make_row(800, 5.0, padding={"a": 8}),
        make_row(900, 5.0, attributes=KIND | {"act": "silu"}),
        make_row(950, 5.0, judged="gone"),
    ]
    record = make_record(tmp_path / "drawn.json", *rows)
    assert read_runs(record)[0].libraries == {"cublaslt": FACTS}
    dry = adopt_library(read_frozen_op(frozen_dir, OP), "cublaslt", record, dry_run=True)
    assert dry.is_passed and not read_frozen_op(frozen_dir, OP).libraries
    done = adopt_library(read_frozen_op(frozen_dir, OP), "cublaslt", record, dry_run=False)
    said = {g.name: g.detail for g in done.gates}
    assert said["version"] == "13.0.2" and said["right"] == "2 of 3 problems of its domain within the op's bound"
    assert said["faster"] == "on 1 of 2 problems; geometric mean of its time over the kernel's 0.877, least 0.700"
    (row,) = read_frozen_op(frozen_dir, OP).libraries
    assert row == done.row == dry.row and row["workspace_bytes"] == 33554432 and row["record"].startswith("drawn.json (")
    assert [(p["problem"], p["median_us"], p["error"]) for p in row["points"]] == [
        ("M128_N4096_K4096", 7.0, 0.5),
        ("M300_N4096_K4096", 11.0, 0.5),
        ("M500_N4096_K4096", None, 1.5),
    ]
    assert row["domain"][0] == {"attribute": "act", "in": ["none", "relu"]}, "gelu_tanh was not judged"
    attributes = row["points"][0]["attributes"]
    defaults = {a["name"]: a["default"] for a in read_op(OP, frozen_dir).description["interface"]["attributes"]}
    assert attributes == defaults | KIND | {"precision": "ieee", "save_z": False, "with_residual": False}
    assert check_op(frozen_dir, OP) == [] and read_op(OP, frozen_dir).libraries == (row,)
    with pytest.raises(FrozenError, match="nothing in the frozen set of gemm_bias_act would change"):
        adopt_library(read_frozen_op(frozen_dir, OP), "cublaslt", record, dry_run=False)
    other = make_record(tmp_path / "again.json", make_row(128, 6.0), facts=FACTS | {"version": 130100})
    adopt_library(read_frozen_op(frozen_dir, OP), "cublaslt", other, dry_run=False)
    assert [r["version"] for r in read_frozen_op(frozen_dir, OP).libraries] == [130002, 130100], "each version has a row of its own"
    history = sorted(path.name for path in (frozen_dir / OP / "history").iterdir())
    roll_back(frozen_dir, OP, history[-3], "without it")
    assert not read_frozen_op(frozen_dir, OP).libraries and check_op(frozen_dir, OP) == []


def test_without_kernels_there_is_nothing_that_a_library_stands_for(frozen_dir: Path, tmp_path: Path) -> None:
    adopt_library(read_frozen_op(frozen_dir, OP), "cublaslt", make_record(tmp_path / "r.json", make_row(128, 7.0)), dry_run=False)
    demote(frozen_dir, OP, [], "all of it")
    assert read_frozen_op(frozen_dir, OP).rows == () and check_op(frozen_dir, OP) == []


@pytest.mark.parametrize(
    ("rows", "facts", "refused"),
    [
        ([make_row(128, 7.0)], None, {"version": "the record does not say which version was timed"}),
        ([make_row(128, 7.0, error=3.0)], FACTS, {"right": "0 of 1 problems"}),
        ([make_row(128, 7.0, n=4095)], FACTS, {"right": "no problem of its domain was timed beside a frozen kernel"}),
        ([make_row(128, 9.9)], FACTS, {"faster": "on 0 of 1 problems"}),
        ([make_row(128, 7.0)], FACTS | {"capture_safe": False}, {"capture": "WRONG as a CUDA graph, on 8 problems"}),
        (
            [make_row(128, 7.0)],
            FACTS | {"kinds": {"relu": "nonfinite inputs, M1: y[0] is 0"}},
            {
                "right": "no problem of its domain was timed",
                "inputs": "right on all inputs with act = (none); NOT with relu: nonfinite inputs, M1: y[0] is 0",
            },
        ),
        ([make_row(128, 7.0)], FACTS | {"checked": 0}, {"repeats": "the same bits again, on 0 problems"}),
    ],
)
def test_what_a_record_must_show(
    frozen_dir: Path, tmp_path: Path, rows: list[DrawnRow], facts: dict[str, Any] | None, refused: dict[str, str]
) -> None:
    found = refuse(frozen_dir, make_record(tmp_path / "drawn.json", *rows, facts=facts))
    assert found.keys() == refused.keys() and all(found[name].startswith(text) for name, text in refused.items())


def test_kinds_of_results_that_are_wrong_somewhere_are_left_out(frozen_dir: Path, tmp_path: Path) -> None:
    rows = [make_row(128, 7.0), make_row(300, 6.0, attributes=KIND | {"act": "none"})]
    record = make_record(tmp_path / "drawn.json", *rows, facts=FACTS | {"kinds": {"relu": "nonfinite inputs", "none": ""}})
    done = adopt_library(read_frozen_op(frozen_dir, OP), "cublaslt", record, dry_run=False)
    assert done.is_passed and [p["attributes"]["act"] for p in done.row["points"]] == ["none"]
    assert done.row["domain"][0] == {"attribute": "act", "in": ["none"]}
    assert {g.name: g.detail for g in done.gates}["inputs"] == "right on all inputs with act = none; NOT with relu: nonfinite inputs"


def test_runs_of_two_versions_do_not_stand_together(frozen_dir: Path, tmp_path: Path) -> None:
    record = make_record(tmp_path / "drawn.json", make_row(128, 7.0))
    (first,) = read_runs(record)
    second = replace(first, seed=6, libraries={"cublaslt": FACTS | {"version": 130100}})
    write_runs(record, OP, [first, second])
    assert refuse(frozen_dir, record)["version"] == "runs of versions 13.0.2, 13.1.0: publish to an empty folder"
    write_runs(record, OP, [first, replace(second, libraries={"cublaslt": FACTS | {"deterministic": False}})])
    done = adopt_library(read_frozen_op(frozen_dir, OP), "cublaslt", record, dry_run=True)
    assert done.is_passed and done.row["deterministic"] is False


def test_names_and_files_that_say_nothing_are_refused(frozen_dir: Path, tmp_path: Path) -> None:
    frozen = read_frozen_op(frozen_dir, OP)
    for library, path, message in (
        ("cudnn", tmp_path / "r.json", "--library cudnn: the project calls no such library for gemm_bias_act"),
        ("cublaslt", tmp_path / "nowhere.json", "nowhere.json: cannot be read"),
        ("cublaslt", make_record(tmp_path / "other.json", make_row(1, 1.0), op="softmax"), "has no times of gemm_bias_act"),
    ):
        with pytest.raises(FrozenUseError, match=message):
            adopt_library(frozen, library, path, dry_run=True)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda r: r.update(domain=[{"attribute": "colour", "in": ["red"]}]), "library cublaslt: domain: colour is not one of"),
        (lambda r: r.update(alignment_bytes={"c": 16}), "library cublaslt: alignment_bytes: c is not one of"),
        (lambda r: r["points"][0].update(sizes={"M": 1, "N": 2}), "library cublaslt: point M128_N4096_K4096: K is not one of M, N"),
        (lambda r: r["points"][0]["attributes"].update(act="tanh"), "act = 'tanh' is not one of"),
        (lambda r: r.update(interface="0" * 64), "library cublaslt: interface: it is neither the C interface"),
        (lambda r: r.update(version=0), "version"),
        (lambda r: r["points"][0].update(median_us=-1.0), "median_us"),
        (lambda r: r.update(points=[]), "points"),
    ],
)
def test_rows_that_contradict_the_op_are_refused(frozen_dir: Path, tmp_path: Path, change: Any, message: str) -> None:
    record = make_record(tmp_path / "r.json", make_row(128, 7.0))
    row = adopt_library(read_frozen_op(frozen_dir, OP), "cublaslt", record, dry_run=True).row
    change(row)
    index = frozen_dir / OP / INDEX
    index.write_text(index.read_text() + dump_line(row) + "\n")
    with pytest.raises(FrozenError, match=message):
        read_op(OP, frozen_dir)


@pytest.mark.slow
def test_the_verb_adopts_from_a_record_or_says_why_not(frozen_dir: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.verbs.promote.find_frozen_dir", lambda: frozen_dir)
    record = make_record(tmp_path / "drawn.json", make_row(128, 7.0))

    def invoke(*words: str) -> tuple[int, str]:
        done = CliRunner().invoke(build_app(["promote"]), ["promote", OP, "--library", "cublaslt", *words])
        return done.exit_code, done.output

    code, text = invoke("--recorded", str(record), "--dry-run")
    assert code == 0 and "pass     version: 13.0.2" in text and text.endswith("gemm_bias_act: cublaslt would be called\n")
    code, text = invoke("--recorded", str(record))
    assert code == 0 and text.endswith("gemm_bias_act: cublaslt is called from now on\n")
    assert len(read_frozen_op(frozen_dir, OP).libraries) == 1
    code, text = invoke("--recorded", str(make_record(tmp_path / "old.json", make_row(128, 7.0), facts=None)))
    assert code == 1 and "REFUSED  version: the record does not say" in text and text.endswith("cublaslt is refused\n")
    assert invoke("--recorded", str(record), "--fallback")[0] == 2
    code, text = invoke("--recorded", str(record), "--dry-run", "--json")
    assert code == 0 and json.loads(text)["library"]["row"]["interface"] == hash_value(read_op(OP).interface)
