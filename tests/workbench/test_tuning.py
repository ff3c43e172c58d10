"""Loose kernels from their file to an op: candidates proved, ranked and recorded, wrong ones refused, nothing lost."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from harness.errors import BuildError
from harness.loose.folder import load_loose
from harness.loose.kernel import describe_kernel
from harness.records.database import Records
from harness.sweep import run as sweep_run
from harness.workbench import Op, Tuned, tune
from tests.workbench.loose_kernels import CONVOLUTION, MATMUL, VECTOR_ADD


@pytest.fixture
def records_url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    url = f"sqlite:///{tmp_path / 'records.sqlite'}"
    monkeypatch.setenv("AICF_RECORDS_URL", url)
    return url


def tune_quietly(described: dict[str, Any], **more: Any) -> Tuned:
    return tune(**described, device="emulated", target="h200", quiet=True, **more)


def count_results(url: str, kind: str) -> dict[str, int]:
    records = Records(url)
    try:
        names = [r.variant for r in records.list_results(op="loose_vector_add") if r.kind == kind]
    finally:
        records.close()
    return {name: names.count(name) for name in names}


@pytest.mark.slow
def test_a_loose_kernel_is_tuned_in_its_file_and_nothing_is_lost_on_an_interrupt(
    records_url: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    record, calls = sweep_run.record_points, []

    def interrupt(session: Any, found: Any) -> None:
        record(session, found)
        calls.append(found)
        if len(calls) == 1:
            raise KeyboardInterrupt

    monkeypatch.setattr(sweep_run, "record_points", interrupt)
    with pytest.raises(KeyboardInterrupt):
        tune_quietly(VECTOR_ADD)
    kept = count_results(records_url, "sweep_model")
    assert sum(kept.values()) == 1

    tuned = tune_quietly(VECTOR_ADD)
    assert set(count_results(records_url, "sweep_model").values()) == {1}, "what was recorded is not modelled again"
    frame = tuned.frame.set_index(["block_size_x", "is_guarded"])
    assert len(frame) == 3, "the restriction forbids the fourth"
    assert frame["is_model"].all() and "no time was measured" in tuned.note
    assert frame.loc[(64, 1), "status"] == frame.loc[(256, 1), "status"] == "passed"
    assert frame.loc[(64, 0), "status"] == "failed" and not frame.loc[(64, 0), "proved"], "without its guard it writes out of bounds"
    assert "n1 " in frame.loc[(64, 0), "reason"], "the problem is told on which it shows"
    assert tuned.best == {"block_size_x": 256, "is_guarded": 1} and tuned.best_us == pytest.approx(frame.loc[(256, 1), "us"], rel=1e-12)

    benched = tuned.op.bench(variant="vector_add/blocksizex256_isguarded1", device="emulated", quiet=True)
    assert benched.attrs["ok"] and benched["us"].notna().all() and list(benched["blocksizex"]) == [256] * len(benched)

    saved = tuned.to_op("my_add", 1, ops_dir=tmp_path / "ops")
    assert saved.variants == ["my_add/blocksizex256_isguarded1"]
    assert (saved.folder / "kernels.cu").read_text() == VECTOR_ADD["source"].read_text()
    assert {p.name for p in saved.folder.iterdir()} == {
        *("README.md", "api.hpp", "kernels.cu", "launcher.cu", "op.py", "pybind.cpp", "test_my_add.py")
    }


def restrict(described: dict[str, Any], more: str) -> dict[str, Any]:
    """Return a kernel with one more restriction: each value of each tunable stays, in fewer combinations, which are compiled and proved."""
    found = described["restrictions"]
    return described | {"restrictions": [*([found] if isinstance(found, str) else found), more]}


@pytest.mark.slow
@pytest.mark.parametrize(
    "described",
    [VECTOR_ADD, restrict(CONVOLUTION, "block_size_x * tile_size_x == 32"), restrict(MATMUL, "tile_size_x == tile_size_y")],
    ids=lambda d: d["name"],
)
def test_an_example_is_tuned_and_its_op_verifies(described: dict[str, Any], records_url: str, tmp_path: Path) -> None:
    tuned = tune_quietly(described)
    allowed = tuned.frame[tuned.frame["status"] == "passed"]
    assert len(allowed) >= 2 and allowed["proved"].all()
    for name, values in described["tunables"].items():
        assert set(tuned.frame[name]) == set(values)
    assert list(tuned.frame["status"] == "failed") == [row.get("is_guarded", 1) == 0 for _, row in tuned.frame.iterrows()]
    saved = tuned.to_op("my_op", 2, ops_dir=tmp_path / "ops")
    verified = Op(saved.folder).verify(device="emulated", quiet=True)
    assert verified.attrs["ok"], verified.attrs["faults"]
    assert len(verified) == 2


def test_a_kernel_that_is_right_on_no_candidate_has_no_best(records_url: str) -> None:
    described = dict(VECTOR_ADD)
    kernel = describe_kernel(described.pop("source"), described.pop("name"), **described)
    rows = {"variant": ["vector_add/x1"], "status": ["failed"], "us": [1.0], "reason": ["races"], "is_model": [True], "problem": ["n1"]}
    tuned = Tuned(kernel, load_loose(kernel), pd.DataFrame(rows), "", "")
    with pytest.raises(BuildError, match="none of the candidates of vector_add is right; the first: races"):
        _ = tuned.best
