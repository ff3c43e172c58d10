"""The store of runs on real SQLite files: nothing changes, two writers do not meet, errors say what to do."""

from __future__ import annotations

import multiprocessing
import sqlite3
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sqlalchemy.orm import Session

from harness.errors import RecordError
from harness.record_tables import Result, read_samples
from harness.records import EnvironmentFacts, Records, ResultFacts

FACTS = EnvironmentFacts("emulated", "Emulated sm_90a (CPU)", "uuid", 13000, 13000, "hash", "nvcc 13.0.88", "h200", "host")
VERDICT = ResultFacts("verify", "toy", "honest", "*", "passed", key="k1", code_hash="c1", spec_hash="s1", verify_version=1)


@pytest.fixture
def url(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path / 'deep' / 'records.sqlite'}"


@pytest.fixture
def records(url: str) -> Iterator[Records]:
    store = Records(url)
    yield store
    store.close()


def start(records: Records, facts: EnvironmentFacts = FACTS) -> int:
    return records.start_run(facts, command="bench toy", commit="abc", dirty=False)


def test_what_is_written_is_read_back(records: Records) -> None:
    run = start(records)
    samples = np.array([1.5, 2.25], np.float32)
    records.add_results(run, [VERDICT, replace(VERDICT, kind="bench", problem="p", figures={"median_us": 1.875}, samples=samples)])
    verdict, bench = records.list_results(op="toy")
    assert (verdict.status, verdict.samples, verdict.figures) == ("passed", None, {})
    assert read_samples(bench).tolist() == [1.5, 2.25]
    assert bench.figures == {"median_us": 1.875}
    assert bench.run.command == "bench toy"
    assert bench.run.environment.device_name == FACTS.device_name
    assert bench.device_kind == "emulated"
    assert [r.id for r in records.list_results(kind="bench", run_id=run)] == [bench.id]
    assert records.list_results(op="other") == []


@settings(max_examples=15, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(hnp.arrays(np.float32, st.integers(0, 50), elements=st.floats(width=32, allow_nan=False)))
def test_samples_survive_bit_for_bit(records: Records, samples: np.ndarray) -> None:
    (row,) = records.add_results(start(records), [replace(VERDICT, samples=samples)])
    stored = next(r for r in records.list_results() if r.id == row)
    assert read_samples(stored).tobytes() == samples.tobytes()


def test_equal_environments_share_a_row_and_others_do_not(records: Records) -> None:
    ids = [start(records), start(records), start(records, replace(FACTS, driver_version=13010))]
    for run in ids:
        records.add_results(run, [VERDICT])
    environments = [r.run.environment_id for r in records.list_results()]
    assert environments[0] == environments[1] != environments[2]


def test_a_verdict_is_found_again_only_for_the_same_build_spec_protocol_and_environment(records: Records) -> None:
    run = start(records)
    first, second = records.add_results(run, [VERDICT, replace(VERDICT, status="failed", reason="race")])
    wanted: dict[str, Any] = {
        "op": "toy",
        "variant": "honest",
        "problem": "*",
        "key": "k1",
        "spec_hash": "s1",
        "verify_version": 1,
        "environment": FACTS,
    }
    found = records.find_latest("verify", **wanted)
    assert found is not None
    assert (found.id, found.reason) == (second, "race")
    assert first < second
    others = {
        "key": "k2",
        "spec_hash": "s2",
        "verify_version": 2,
        "op": "x",
        "problem": "p",
        "environment": replace(FACTS, runtime_hash="new"),
    }
    for field, other in others.items():
        assert records.find_latest("verify", **(wanted | {field: other})) is None, field
    assert records.find_latest("bench", **wanted) is None


def test_latest_run_of_a_kind(records: Records) -> None:
    first, second = start(records), start(records)
    records.add_results(first, [replace(VERDICT, kind="bench")])
    records.add_results(second, [VERDICT])
    assert records.find_latest_run("toy", ["bench"]) == first
    assert records.find_latest_run("toy", ["bench", "verify"]) == second
    assert records.find_latest_run("other", ["bench"]) is None


def test_nothing_can_be_changed_or_deleted(records: Records, url: str) -> None:
    records.add_results(start(records), [VERDICT])
    with Session(records._engine) as session, pytest.raises(RecordError, match="never changed or deleted: Result"):
        row = session.get_one(Result, 1)
        row.status = "failed"
        session.commit()
    with Session(records._engine) as session, pytest.raises(RecordError, match="never changed"):
        session.delete(session.get_one(Result, 1))
        session.commit()
    raw = sqlite3.connect(url.removeprefix("sqlite:///"))
    for statement in ("UPDATE result SET status = 'x'", "DELETE FROM result", "DELETE FROM run", "UPDATE environment SET host = ''"):
        with pytest.raises(sqlite3.IntegrityError, match="never changed or deleted"):
            raw.execute(statement)
    raw.close()
    assert records.list_results()[0].status == "passed"


def write_many(url: str, name: str, count: int) -> None:
    store = Records(url)
    for i in range(count):
        run = store.start_run(FACTS, command=name, commit="", dirty=True)
        store.add_results(run, [replace(VERDICT, variant=name, problem=str(i))])
    store.close()


def test_two_processes_write_at_once_from_the_first_moment(url: str) -> None:
    context = multiprocessing.get_context("fork")
    writers = [context.Process(target=write_many, args=(url, name, 25)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [w.exitcode for w in writers] == [0, 0]
    rows = Records(url).list_results()
    for name in ("a", "b"):
        assert [r.problem for r in rows if r.variant == name] == [str(i) for i in range(25)]


def test_a_failed_batch_leaves_nothing_behind(records: Records) -> None:
    run = start(records)
    with pytest.raises(RecordError):
        records.add_results(run, [VERDICT, replace(VERDICT, status=None)])  # type: ignore[arg-type]
    assert records.list_results() == []
    with pytest.raises(RecordError, match="no run 99"):
        records.add_results(99, [VERDICT])


def test_another_schema_version_is_refused(url: str) -> None:
    Records(url).close()
    raw = sqlite3.connect(url.removeprefix("sqlite:///"))
    raw.execute("UPDATE schema SET version = 999")
    raw.commit()
    raw.close()
    with pytest.raises(RecordError, match="schema 999, this version of the project reads 1"):
        Records(url)


def test_bad_places_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is no database URL"):
        Records("not a url")
    with pytest.raises(RecordError, match="no driver for"):
        Records("nosuchdb://host/db")
    broken = tmp_path / "broken.sqlite"
    broken.write_bytes(b"this is no database, " * 100)
    with pytest.raises(RecordError, match="set AICF_RECORDS_URL"):
        Records(f"sqlite:///{broken}")
    (tmp_path / "file").write_text("x")
    with pytest.raises(RecordError, match="cannot make the folder"):
        Records(f"sqlite:///{tmp_path / 'file' / 'records.sqlite'}")
