"""The store of runs on real SQLite files and a real PostgreSQL: nothing changes, is lost or doubled; errors say what to do."""

from __future__ import annotations

import multiprocessing
import os
import random
import signal
import sqlite3
import time
import uuid
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sqlalchemy import create_engine, inspect, text
from sqlalchemy.exc import DBAPIError
from sqlalchemy.orm import Session

from harness.errors import RecordError
from harness.records.database import Records
from harness.records.engine import _switch_to_wal
from harness.records.facts import EnvironmentFacts, ResultFacts
from harness.records.migrations import HEAD, read_revision
from harness.records.tables import Base, Result, read_clocks, read_samples
from tests.harness.databases import find_postgres, run_postgres

FACTS = EnvironmentFacts("emulated", "Emulated sm_90a (CPU)", "uuid", 13000, 13000, "hash", "nvcc 13.0.88", "h200", "host")
VERDICT = ResultFacts("verify", "toy", "honest", "*", "passed", key="k1", code_hash="c1", spec_hash="s1", verify_version=1)


@pytest.fixture(scope="session")
def server() -> Iterator[str]:
    programs = find_postgres()
    if programs is None:
        if os.environ.get("CI"):
            pytest.fail("PostgreSQL is not installed here, and .ci/run must have installed it")
        pytest.skip("PostgreSQL is not installed here (Debian, Ubuntu: apt-get install postgresql)")
    with run_postgres(programs) as url:
        yield url


@pytest.fixture(params=["sqlite", "postgresql"])
def url(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    if request.param == "sqlite":
        return f"sqlite:///{tmp_path / 'deep' / 'records.sqlite'}"
    server: str = request.getfixturevalue("server")
    name = f"t{uuid.uuid4().hex}"
    engine = create_engine(server.format(name="postgres"), isolation_level="AUTOCOMMIT")
    with engine.connect() as connection:
        connection.execute(text(f"CREATE DATABASE {name}"))
    engine.dispose()
    return server.format(name=name)


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


def test_a_verdict_in_a_tree_with_changes_counts_only_where_that_does_not_matter(records: Records) -> None:
    (clean,) = records.add_results(start(records), [VERDICT])
    (dirty,) = records.add_results(records.start_run(FACTS, command="bench toy", commit="abc", dirty=True), [VERDICT])
    wanted: Any = {"op": "toy", "variant": "honest", "problem": "*", "key": "k1", "spec_hash": "s1", "verify_version": 1}
    found = [records.find_latest("verify", **wanted, environment=FACTS, clean_only=c) for c in (False, True)]
    assert [r and r.id for r in found] == [dirty, clean]
    by_code = records.find_verified_code("toy", "c1", "s1", 1, "emulated")
    assert by_code is not None and by_code.id == clean


def test_latest_run_of_a_kind(records: Records) -> None:
    first, second = start(records), start(records)
    records.add_results(first, [replace(VERDICT, kind="bench")])
    records.add_results(second, [VERDICT])
    assert records.find_latest_run("toy", ["bench"]) == first
    assert records.find_latest_run("toy", ["bench", "verify"]) == second
    assert records.find_latest_run("other", ["bench"]) is None


def test_nothing_can_be_changed_or_deleted(records: Records) -> None:
    records.add_results(start(records), [VERDICT])
    with Session(records._engine) as session, pytest.raises(RecordError, match="never changed or deleted: Result"):
        row = session.get_one(Result, 1)
        row.status = "failed"
        session.commit()
    with Session(records._engine) as session, pytest.raises(RecordError, match="never changed"):
        session.delete(session.get_one(Result, 1))
        session.commit()
    for statement in ("UPDATE result SET status = 'x'", "DELETE FROM result", "DELETE FROM run", "UPDATE environment SET host = ''"):
        with records._engine.connect() as raw, pytest.raises(DBAPIError, match="never changed or deleted"):
            raw.exec_driver_sql(statement)
    assert records.list_results()[0].status == "passed"


def write_many(url: str, name: str, count: int) -> None:
    store = Records(url)
    for i in range(count):
        run = store.start_run(FACTS, command=name, commit="", dirty=True)
        store.add_results(run, [replace(VERDICT, variant=name, problem=str(i))])
    store.close()


def test_two_processes_write_at_once_from_the_first_moment(url: str) -> None:
    context = multiprocessing.get_context("spawn")
    writers = [context.Process(target=write_many, args=(url, name, 25)) for name in ("a", "b")]
    for writer in writers:
        writer.start()
    for writer in writers:
        writer.join()
    assert [w.exitcode for w in writers] == [0, 0]
    store = Records(url)
    rows = store.list_results()
    store.close()
    for name in ("a", "b"):
        assert [r.problem for r in rows if r.variant == name] == [str(i) for i in range(25)]


class BusyCursor:
    """A cursor that finds the database locked for the first few times; ``ticks`` are the statements it got."""

    def __init__(self, num_busy: int, code: int = sqlite3.SQLITE_BUSY) -> None:
        self.num_busy, self.code, self.ticks = num_busy, code, []  # type: ignore[var-annotated]

    def execute(self, statement: str) -> None:
        self.ticks.append(statement)
        if "journal_mode" in statement and len([t for t in self.ticks if "journal_mode" in t]) <= self.num_busy:
            error = sqlite3.OperationalError("database is locked")
            error.sqlite_errorcode = self.code
            raise error


def test_a_database_that_another_process_just_makes_is_waited_for_and_no_other_fault_is() -> None:
    cursor = BusyCursor(3)
    _switch_to_wal(cursor)
    assert len([t for t in cursor.ticks if "journal_mode" in t]) == 4
    with pytest.raises(sqlite3.OperationalError):
        _switch_to_wal(BusyCursor(1, sqlite3.SQLITE_CANTOPEN))


def test_a_failed_batch_leaves_nothing_behind(records: Records) -> None:
    run = start(records)
    with pytest.raises(RecordError):
        records.add_results(run, [VERDICT, replace(VERDICT, status=None)])  # type: ignore[arg-type]
    assert records.list_results() == []
    with pytest.raises(RecordError, match="no run 99"):
        records.add_results(99, [VERDICT])


def test_a_schema_of_the_future_is_refused(url: str) -> None:
    store = Records(url)
    with store._engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = '9999'"))
    store.close()
    with pytest.raises(RecordError, match="schema 9999, this version of the project knows"):
        Records(url)


def test_bad_places_are_refused_with_a_remedy(tmp_path: Path) -> None:
    with pytest.raises(RecordError, match="is not a database URL"):
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


def test_the_migrations_make_the_tables_that_the_mapper_knows(records: Records) -> None:
    from alembic.autogenerate import compare_metadata
    from alembic.migration import MigrationContext

    with records._engine.connect() as connection:
        assert read_revision(connection) == HEAD
        assert compare_metadata(MigrationContext.configure(connection, opts={"compare_type": True}), Base.metadata) == []


FIRST_SCHEMA = """
CREATE TABLE schema (version INTEGER PRIMARY KEY);
INSERT INTO schema VALUES (1);
CREATE TABLE environment (id INTEGER PRIMARY KEY, digest VARCHAR(64) NOT NULL UNIQUE, device_kind VARCHAR(16) NOT NULL,
    device_name VARCHAR(128) NOT NULL, device_uuid VARCHAR(64) NOT NULL, driver_version INTEGER NOT NULL, runtime_version INTEGER NOT NULL,
    runtime_hash VARCHAR(64) NOT NULL, toolchain VARCHAR(256) NOT NULL, target VARCHAR(64) NOT NULL, host VARCHAR(256) NOT NULL);
CREATE TABLE run (id INTEGER PRIMARY KEY, started_at VARCHAR(32) NOT NULL, command TEXT NOT NULL, "commit" VARCHAR(64) NOT NULL,
    dirty BOOLEAN NOT NULL, environment_id INTEGER NOT NULL REFERENCES environment (id));
CREATE TABLE result (id INTEGER PRIMARY KEY, run_id INTEGER NOT NULL REFERENCES run (id), created_at VARCHAR(32) NOT NULL,
    kind VARCHAR(16) NOT NULL, op VARCHAR(64) NOT NULL, variant VARCHAR(160) NOT NULL, problem VARCHAR(200) NOT NULL,
    status VARCHAR(16) NOT NULL, reason TEXT NOT NULL, code_hash VARCHAR(64) NOT NULL, "key" VARCHAR(64) NOT NULL,
    spec_hash VARCHAR(64) NOT NULL, device_kind VARCHAR(16) NOT NULL, verify_version INTEGER NOT NULL, figures JSON NOT NULL, samples BLOB);
CREATE INDEX result_by_build ON result (op, kind, "key", spec_hash);
CREATE INDEX result_by_run ON result (run_id);
CREATE TRIGGER result_refuse_update BEFORE UPDATE ON result BEGIN SELECT RAISE(ABORT, 'records are never changed or deleted'); END;
CREATE TRIGGER run_refuse_update BEFORE UPDATE ON run BEGIN SELECT RAISE(ABORT, 'records are never changed or deleted'); END;
INSERT INTO environment VALUES (1, 'd', 'cuda', 'NVIDIA H200', 'GPU-1', 13000, 13000, 'h', 'nvcc', 'h200', 'host');
INSERT INTO run VALUES (1, '2026-11-20', 'bench toy', 'abc', 0, 1);
INSERT INTO result VALUES
    (1, 1, '2026-11-20', 'bench', 'toy', 'v', 'p', 'passed', '', 'c', 'k', 's', 'cuda', 1, '{"median_us": 2.5}', x'00002040');
INSERT INTO result VALUES (2, 1, '2026-11-20', 'verify', 'toy', 'v', '*', 'passed', '', 'c', 'k', 's', 'cuda', 1, '{}', NULL);
"""


def test_a_database_of_the_first_version_is_migrated_with_all_its_rows(tmp_path: Path) -> None:
    path = tmp_path / "old.sqlite"
    raw = sqlite3.connect(path)
    raw.executescript(FIRST_SCHEMA)
    raw.close()
    store = Records(f"sqlite:///{path}")
    bench, verdict = store.list_results()
    assert read_samples(bench).tolist() == [2.5] and bench.figures == {"median_us": 2.5}
    assert (bench.run.command, bench.run.environment.device_name, bench.clock_label) == ("bench toy", "NVIDIA H200", "")
    assert len({bench.uid, verdict.uid, bench.run.uid}) == 3 and len(bench.uid) == 32
    run = start(store)
    store.add_results(run, [VERDICT])
    assert [r.id for r in store.list_results()] == [1, 2, 3]
    assert "schema" not in inspect(store._engine).get_table_names()
    store.close()
    again = Records(f"sqlite:///{path}")
    assert len(again.list_results()) == 3
    again.close()


def test_the_full_key_and_the_clock_of_each_sample_are_kept(records: Records) -> None:
    facts = replace(
        VERDICT,
        kind="bench",
        samples=np.array([1.0, 2.0], np.float32),
        clocks=np.array([1980.0, np.nan], np.float32),
        source_hash="s" * 64,
        flags="-O3 -DX=1",
        clock_label="fixed-power",
        inputs="uniform",
    )
    records.add_results(start(records), [facts])
    (row,) = records.list_results()
    assert (row.source_hash, row.flags, row.clock_label, row.inputs) == ("s" * 64, "-O3 -DX=1", "fixed-power", "uniform")
    assert read_clocks(row)[0] == 1980.0 and np.isnan(read_clocks(row)[1])


def write_for_ever(url: str) -> None:
    store = Records(url)
    while True:
        run = store.start_run(FACTS, command="sweep", commit="", dirty=False)
        store.add_results(run, [replace(VERDICT, problem=str(i), samples=np.full(1000, i, np.float32)) for i in range(3)])


def test_a_killed_writer_loses_and_doubles_nothing_and_a_reader_goes_on(url: str) -> None:
    """Twice a process is killed at a moment of its own; what is there then are whole transactions."""
    store = Records(url)
    context = multiprocessing.get_context("spawn")
    rng = random.Random(4)
    seen = 0
    for _ in range(2):
        writer = context.Process(target=write_for_ever, args=(url,), daemon=True)
        writer.start()
        deadline = time.monotonic() + 30
        while len(store.list_results()) < seen + 6 and time.monotonic() < deadline:
            time.sleep(0.01)
        time.sleep(rng.uniform(0.0, 0.03))
        os.kill(writer.pid or 0, signal.SIGKILL)
        writer.join()
        time.sleep(0.1)  # a server notices that its client is gone, and rolls back
        rows = store.list_results()
        assert len(rows) >= seen + 6
        seen = len(rows)
    by_run: dict[int, list[str]] = {}
    for row in store.list_results():
        by_run.setdefault(row.run_id, []).append(row.problem)
        assert (read_samples(row) == float(row.problem)).all() and len(read_samples(row)) == 1000
    assert all(problems == ["0", "1", "2"] for problems in by_run.values())
    assert len({r.uid for r in store.list_results()}) == seen
    store.close()
