"""With no GPU and an empty database, what was published is read: by load, report and compare; a database with results goes before it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness import records
from harness.__main__ import main
from harness.discover import find_op
from harness.errors import RecordError
from harness.records import frames, published
from harness.records.database import Records
from harness.records.engine import hide_password
from harness.records.facts import ResultFacts
from harness.records.interchange import export_records
from harness.timing.stats import find_throttled, summarize
from tests.harness.test_records import FACTS, start

OP = find_op("softmax").op
PROBLEM = OP.select_problems("bench")[0]
OWN, OTHER = (v.name for v in OP.variants[:2])
GPU = replace(FACTS, device_kind="cuda", device_name="GPU")


def make_timing(variant: str, median_us: float, *, key: str = "k", mode: str = "cold", **changes: Any) -> ResultFacts:
    samples = np.full(32, median_us, np.float32)
    samples[::2] *= 1.001
    figures = {"mode": mode, "median_us": median_us, "q1_us": median_us, "q3_us": median_us, "num_samples": 32}
    facts = ResultFacts("bench", "softmax", variant, PROBLEM.name, "passed", key=key, samples=samples, clocks=samples, figures=figures)
    return replace(facts, **changes)


@pytest.fixture
def url(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A database of its own, and a ``profiles/`` with a library, two variants, and one of them at another time."""
    store = Records(f"sqlite:///{tmp_path / 'full.sqlite'}")
    store.add_results(start(store, GPU), [make_timing("library", 500.0, key=""), make_timing(OWN, 1000.0), make_timing(OTHER, 2000.0)])
    store.add_results(start(store, GPU), [make_timing(OWN, 250.0), make_timing(OTHER, 0.0, status="unsupported", reason="no", figures={})])
    folder = tmp_path / "profiles" / "softmax"
    folder.mkdir(parents=True)
    export_records(store, folder / "gpu-records.parquet")
    store.close()
    monkeypatch.setattr(published, "find_project_root", lambda: tmp_path)
    monkeypatch.setenv("AICF_RECORDS_URL", f"sqlite:///{tmp_path / 'empty.sqlite'}")
    return f"sqlite:///{tmp_path / 'empty.sqlite'}"


def test_an_empty_database_gives_what_is_published_and_says_so(url: str) -> None:
    frame = records.load("softmax")
    assert len(frame) == 5 and set(frame.source) == {"published"}
    assert frame.attrs["source"] == "5 results published in profiles/"
    assert list(frame.is_peer) == [True, False, False, False, False]
    cost = OP.cost(PROBLEM)
    assert frame.gbytes_s[1] == pytest.approx(cost.bytes_moved / 1000.0 * 1e-3)
    assert frame.tflops[1] == pytest.approx(cost.flops / 1000.0 * 1e-6)
    assert frame.share_of_floor[1] == pytest.approx(frame.floor_us[1] / 1000.0)
    assert frame.share_of_peer[1] == pytest.approx(0.5) and frame.share_of_peer[2] == pytest.approx(0.25)
    assert np.isnan(frame.share_of_peer[3])  # another run, which had no peer
    assert np.isnan(frame.median_us[4]) and frame.reason[4] == "no"
    assert len(frame.samples_us[1]) == 32 and frame.tunables[1] == dict(OP.variants[0].values)


def test_every_documented_column_is_there_and_no_other(url: str) -> None:
    words = set((frames.__doc__ or "").replace("``", " ").replace("(", " ").split())
    assert [c for c in records.load("softmax").columns if c not in words] == []


def test_times_in_the_database_go_before_and_counts_beside(url: str) -> None:
    store = Records(url)
    store.add_results(start(store), [make_timing(OWN, 1.0, kind="counters", figures={}, samples=None, clocks=None)])
    frame = records.load("softmax")
    assert list(frame.source) == ["store"] + 5 * ["published"]
    store.add_results(start(store, GPU), [make_timing(OWN, 900.0)])
    store.close()
    assert list(records.load("softmax").source) == ["store", "store"]
    assert set(records.load("softmax", "published").source) == {"published"}
    with pytest.raises(RecordError, match="must be one of auto, store, published"):
        records.load("softmax", "everywhere")


def test_a_problem_that_the_op_no_longer_lists_has_times_and_no_rates(url: str) -> None:
    store = Records(url)
    store.add_results(start(store, GPU), [make_timing(OWN, 3.0, problem="rows1_columns1_gone9")])
    store.close()
    frame = records.load("softmax", "store")
    assert frame.median_us[0] == 3.0 and np.isnan(frame.tflops[0]) and frame.bound[0] == ""


def test_a_password_is_shown_to_nobody() -> None:
    assert hide_password("postgresql+psycopg://user:secret@host/aicf") == "postgresql+psycopg://user:***@host/aicf"
    assert hide_password("sqlite:////tmp/a.sqlite") == "sqlite:////tmp/a.sqlite" and hide_password("nonsense") == "nonsense"


def test_nothing_anywhere_is_an_error_that_says_where(url: str) -> None:
    with pytest.raises(RecordError, match=r"no results of op transpose in sqlite:///.*empty\.sqlite or in profiles/"):
        records.load("transpose")


def test_a_published_file_that_holds_no_records_is_refused(url: str, tmp_path: Path) -> None:
    (tmp_path / "profiles" / "softmax" / "bad-records.json").write_text('[{"kind": "bench"}]')
    with pytest.raises(RecordError, match=r"bad-records\.json cannot be read as records: row 1: created_at is missing"):
        records.load("softmax")


def run(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as ended:
        main(list(words))
    assert isinstance(ended.value.code, int)
    printed = capsys.readouterr()
    return ended.value.code, printed.out, printed.err


def test_report_shows_the_published_run(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "report", "softmax", "--run", "1")
    assert code == 0
    assert "from profiles/softmax/gpu-records.parquet" in out and "cold 1000.00 us" in out


def test_two_published_records_are_compared_as_a_gate(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "compare", "softmax", "--record", "2", "--record", "3", "--json")
    row = json.loads(out)["rows"][0]
    assert code == 1 and row["verdict"] == "SLOWER" and row["outcome"]["effect"]["change"] == pytest.approx(1.0, rel=0.01)
    code, out, _ = run(capsys, "compare", "softmax", "--record", "2", "--record", "4", "--json")
    assert code == 0 and json.loads(out)["rows"][0]["verdict"] == "FASTER"
    assert json.loads(out)["where"] == "profiles/softmax/gpu-records.parquet"


def test_published_is_an_option_where_the_database_has_results(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    store = Records(url)
    store.add_results(start(store, GPU), [make_timing(OWN, 900.0)])
    store.close()
    assert "from sqlite:" in run(capsys, "report", "softmax")[1]
    assert "from profiles/" in run(capsys, "report", "softmax", "--published")[1]
    code, _, err = run(capsys, "compare", "softmax", "--record", "1", "--record", "2")
    assert code == 2 and "no record 2 of op softmax in sqlite:" in err
    code, _, err = run(capsys, "compare", "softmax", "--base", OWN, "--published")
    assert code == 2 and "--published goes with --record" in err


PUBLISHED = ["gemm_bias_act", "softmax", "transpose"]


@pytest.mark.parametrize("op", PUBLISHED)
def test_what_the_project_publishes_can_be_read(op: str) -> None:
    frame = records.load(op, "published")
    timed = frame[(frame.kind == "bench") & (frame.status == "passed")]
    assert len(timed) > 50 and set(timed.device) == {"NVIDIA H200"} and set(frame.device_kind) == {"cuda", "emulated"}
    assert (timed.samples_us.map(len) >= 10).all()
    # Hot launches may read from the L2 cache what the floor counts as read from memory.
    assert timed[timed["mode"] == "cold"].share_of_floor.max() <= 1.0
    assert (frame.kind == "sweep").any()


@pytest.mark.parametrize("op", [pytest.param(op, marks=[pytest.mark.slow] * (op == "gemm_bias_act")) for op in PUBLISHED])
def test_the_statistics_of_published_samples_come_out_as_recorded(op: str) -> None:
    frame = records.load(op, "published")
    for r in frame[(frame.kind == "bench") & (frame.status == "passed")].itertuples():
        times = np.asarray(r.samples_us, float)
        clocks = np.asarray(r.clocks_mhz, float) if len(r.clocks_mhz) else np.full(len(times), np.nan)
        good = times[~find_throttled(clocks, 1980.0)]
        found = summarize(good if len(good) else times)
        recorded = (r.q1_us, r.median_us, r.q3_us)
        assert (found.q1, found.median, found.q3) == pytest.approx(recorded, rel=1e-6), (r.variant, r.problem)
        assert found.low <= found.median <= found.high


@pytest.mark.slow
def test_published_records_give_a_verdict(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setenv("AICF_RECORDS_URL", f"sqlite:///{tmp_path / 'empty.sqlite'}")
    frame = records.load("gemm_bias_act", "published")
    timed = frame[(frame.kind == "bench") & (frame["mode"] == "cold") & (frame.status == "passed") & ~frame.is_peer]
    here = timed[(timed.problem == timed.problem.iloc[0]) & (timed.run == timed.run.iloc[0])].sort_values("median_us")
    slow, fast = str(here.record.iloc[-1]), str(here.record.iloc[0])
    code, out, _ = run(capsys, "compare", "gemm_bias_act", "--record", slow, "--record", fast, "--json")
    assert code == 0 and json.loads(out)["rows"][0]["verdict"] == "FASTER"
    code, out, _ = run(capsys, "compare", "gemm_bias_act", "--record", fast, "--record", slow, "--json")
    assert code == 1 and json.loads(out)["rows"][0]["verdict"] == "SLOWER"
    code, out, _ = run(capsys, "compare", "gemm_bias_act", "--record", fast, "--record", fast, "--json")
    assert code == 0 and json.loads(out)["rows"][0]["verdict"] == "SAME"
