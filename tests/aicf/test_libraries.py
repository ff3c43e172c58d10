"""What ``explain`` says of libraries: from the published record of drawn problems, and nothing where there is none."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from aicf.errors import FrozenError
from aicf.registry import HwCaps, Problem, explain, open_registry
from aicf.registry.libraries import LibraryTime, find_library_time
from contract.calls import Interface
from harness.compare.drawn.problems import describe_problem
from harness.compare.drawn.record import FROZEN, PEER, Contender, DrawnRow, DrawnRun, write_runs
from harness.discover import find_op
from harness.spec import Problem as PlannedProblem

OP = "gemm_bias_act"
KIND = {"dtype": "bfloat16", "b_layout": "nk", "act": "relu", "with_bias": True}


def make_row(m: int, library_us: float, padding: dict[str, int] | None = None, **attributes: Any) -> DrawnRow:
    problem = PlannedProblem({"M": m, "N": 4096, "K": 4096}, KIND | attributes, padding or {})
    contenders = (Contender("k", FROZEN, "passed", 10.0), Contender("cublaslt", PEER, "passed", library_us))
    return DrawnRow("g", problem.name, **describe_problem(problem), judged="k", judged_as="", own="", contenders=contenders)


def make_run(*rows: DrawnRow, arch: str = "sm_90a") -> DrawnRun:
    return DrawnRun(OP, 1, 9, "2026-01-02T00:00:00", "", "commit abc", arch, "i", {"device_name": "GPU X"}, rows=rows)


def find(folder: Path, m: int, **strides: int) -> LibraryTime | None:
    interface = Interface(OP, open_registry().read(OP).frozen.interface)
    query = interface.make_query(Problem({"M": m, "N": 4096, "K": 4096}, KIND, strides))
    return find_library_time(folder, interface, "sm_90a", query)


@pytest.fixture
def profiles(tmp_path: Path) -> Path:
    (tmp_path / OP).mkdir()
    rows = make_row(128, 7.0), make_row(300, 20.0), make_row(128, 1.0, act="silu"), make_row(128, 2.0, {"a": 8})
    write_runs(tmp_path / OP / "drawn.json", OP, [make_run(*rows), make_run(make_row(128, 0.5), arch="sm_80")])
    return tmp_path


def test_the_problem_itself_comes_first_then_the_nearest(profiles: Path) -> None:
    here, near = find(profiles, 128), find(profiles, 250)
    assert here is not None and (here.distance, here.library_us, here.kernel_us) == (0.0, 7.0, 10.0)
    assert here.describe().startswith("cublaslt takes 7 us here, k 10 us: the library is 1.43 times as fast (GPU X, 2026-01-02")
    assert near is not None and near.problem.startswith("M300_") and "the frozen kernel is 2.00 times as fast" in near.describe()


def test_strides_attributes_and_distance_must_fit(profiles: Path) -> None:
    padded = find(profiles, 128, a=4104)
    assert padded is not None and padded.library_us == 2.0
    assert find(profiles, 128, a=4112) is None and find(profiles, 2000) is None


def test_without_a_record_nothing_is_said_and_a_damaged_one_is_named(tmp_path: Path) -> None:
    assert find(tmp_path, 128) is None
    (tmp_path / OP).mkdir()
    for text in ("{", '{"schema": 2, "runs": []}', '{"schema": 1, "runs": [{}]}', "[]"):
        (tmp_path / OP / "drawn.json").write_text(text)
        with pytest.raises(FrozenError, match="is not a record of drawn problems"):
            find(tmp_path, 128)


def test_the_newest_of_equally_near_rows_counts(profiles: Path) -> None:
    path = profiles / OP / "drawn.json"
    document = json.loads(path.read_text())
    document["runs"].append(json.loads(json.dumps(document["runs"][0])))
    document["runs"][-1]["rows"][0]["contenders"][1]["us"] = 9.0
    path.write_text(json.dumps(document))
    found = find(profiles, 128)
    assert found is not None and found.library_us == 9.0


def test_explain_has_it(profiles: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aicf.registry.explaining.find_library_time", lambda folder, *rest: find_library_time(profiles, *rest))
    problem = Problem({"M": 128, "N": 4096, "K": 4096}, KIND)
    found = explain(OP, problem, HwCaps.parse("sm_90a"))
    assert found.library is not None and found.library.library == "cublaslt" and found.to_json()["library"]["library_us"] == 7.0
    assert not found.library.is_frozen and "k 10 us, which is frozen no more (GPU X" in found.library.describe()
    assert find_op(OP).op.population is not None
