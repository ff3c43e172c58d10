"""The store of runs: insert-only rows in SQLite, or in PostgreSQL through ``AICF_RECORDS_URL``.

A *run* is one command; it ran in an *environment* (device, driver, toolchain, host) at a commit; its *results* are one verdict, timing
or set of counters each, with every sample. Nothing is ever changed or deleted: triggers refuse it, and so does the mapper. A result is
committed before the work goes on, so that a killed process loses at most what it was just measuring.
"""

from __future__ import annotations

import importlib
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from datetime import UTC, datetime
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import Engine, select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session, joinedload

from harness.errors import RecordError, RecordUseError
from harness.records.engine import hide_password, open_engine
from harness.records.facts import EnvironmentFacts, ResultFacts
from harness.records.migrations import HEAD, migrate, read_revision, require_known
from harness.records.tables import Environment, Result, Run

_MIGRATION_LOCK = 0x41494346


def check_database(url: str) -> None:
    """Raise :class:`RecordUseError` unless there is a database at ``url`` that :class:`Records` can open, or a place for a new one.

    Changes nothing but for an empty file and its folder, where an SQLite database is to be.
    """
    engine = open_engine(url)
    try:
        require_known(_find_revision(engine, url))
    finally:
        engine.dispose()


def _find_revision(engine: Engine, url: str) -> str:
    """Connect for the first time: a database that cannot be reached, or a file that is none, is a wrong URL."""
    try:
        with engine.connect() as connection:
            return read_revision(connection)
    # A driver raises the latter two for arguments in the URL that it does not know.
    except (SQLAlchemyError, TypeError, ValueError) as error:
        raise RecordUseError(f"{_describe_failure(url, error)}; set AICF_RECORDS_URL to a database that can be used") from error


class Records:
    """The open store. All methods raise :class:`RecordError` with the remedy when the database cannot be used."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = open_engine(url)
        try:
            if _find_revision(self._engine, url) != HEAD:
                with _translate_errors(url):
                    self._prepare_schema()
        except BaseException:
            self._engine.dispose()
            raise

    def _prepare_schema(self) -> None:
        # Several processes may meet a new or an old database at once; the lock makes one of them migrate it.
        with self._engine.connect() as connection:
            if self._engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            elif self._engine.dialect.name == "postgresql":
                connection.exec_driver_sql(f"SELECT pg_advisory_xact_lock({_MIGRATION_LOCK})")
            migrate(connection)
            connection.commit()

    def start_run(self, facts: EnvironmentFacts, *, command: str, commit: str, dirty: bool, started_at: str = "") -> int:
        """Insert a run that started at a time (now where none is given), and its environment where it is new; return the run's id."""
        with self.write() as session:
            environment = share_environment(session, asdict(facts) | {"digest": facts.digest})
            run = Run(
                started_at=started_at or make_time(), command=command, commit=commit, dirty=dirty, environment=environment, uid=make_uid()
            )
            session.add(run)
            session.flush()
            return run.id

    def add_results(self, run_id: int, results: Sequence[ResultFacts]) -> list[int]:
        """Insert results of a run in one transaction; return their ids."""
        with self.write() as session:
            run = session.get(Run, run_id)
            if run is None:
                raise RecordError(f"no run {run_id} in {hide_password(self.url)}: results need a run that was started")
            rows = [
                Result(
                    run_id=run_id,
                    created_at=make_time(),
                    device_kind=run.environment.device_kind,
                    samples=pack_floats(facts.samples),
                    clocks=pack_floats(facts.clocks),
                    uid=make_uid(),
                    figures=dict(facts.figures or {}),
                    **{f: getattr(facts, f) for f in _PLAIN_FIELDS},
                )
                for facts in results
            ]
            session.add_all(rows)
            session.flush()
            return [row.id for row in rows]

    def find_latest(
        self,
        kind: str,
        *,
        op: str,
        variant: str,
        problem: str,
        key: str,
        spec_hash: str,
        verify_version: int,
        environment: EnvironmentFacts,
        clean_only: bool = False,
    ) -> Result | None:
        """Return the latest result of a build on a problem, made in the same environment from the same op description, or None.

        ``problem`` is ``*`` for a verdict on all problems. With ``clean_only``, results of runs in a tree with changes do not count.
        """
        query = (
            select(Result)
            .join(Run)
            .join(Environment)
            .where(
                Result.kind == kind,
                Result.op == op,
                Result.variant == variant,
                Result.problem == problem,
                Result.key == key,
                Result.spec_hash == spec_hash,
                Result.verify_version == verify_version,
                Environment.digest == environment.digest,
                *([Run.dirty.is_(False)] if clean_only else []),
            )
            .order_by(Result.id.desc())
            .limit(1)
        )
        return next(iter(self._read(query)), None)

    def list_same_code(
        self, kind: str, *, op: str, problem: str, code_hash: str, spec_hash: str, verify_version: int, environment: EnvironmentFacts
    ) -> list[Result]:
        """Return the results of a machine code on a problem under whatever names, as :meth:`find_latest`, the latest first."""
        query = (
            select(Result)
            .join(Run)
            .join(Environment)
            .where(
                Result.kind == kind,
                Result.op == op,
                Result.problem == problem,
                Result.code_hash == code_hash,
                Result.spec_hash == spec_hash,
                Result.verify_version == verify_version,
                Environment.digest == environment.digest,
            )
            .order_by(Result.id.desc())
        )
        return self._read(query)

    def list_results(self, *, op: str | None = None, run_id: int | None = None, kind: str | None = None) -> list[Result]:
        """Return results in the order they were recorded, with their runs and environments loaded."""
        query = select(Result).order_by(Result.id)
        for column, value in ((Result.op, op), (Result.run_id, run_id), (Result.kind, kind)):
            if value is not None:
                query = query.where(column == value)
        return self._read(query)

    def read_result(self, result_id: int) -> Result:
        """Return the result with this id; raises :class:`RecordError` where there is none."""
        found = self._read(select(Result).where(Result.id == result_id))
        if not found:
            raise RecordUseError(f"no record {result_id} in {hide_password(self.url)}")
        return found[0]

    def find_verified_code(self, op: str, code_hash: str, spec_hash: str, verify_version: int, device_kind: str) -> Result | None:
        """Return the latest verdict in a clean tree that some build with this machine code passed, on all problems, on a kind of device."""
        wanted = {"kind": "verify", "status": "passed", "problem": "*", "op": op, "code_hash": code_hash, "spec_hash": spec_hash}
        query = select(Result).join(Run).where(Result.verify_version == verify_version, Result.device_kind == device_kind)
        query = query.where(Run.dirty.is_(False))
        for name, value in wanted.items():
            query = query.where(getattr(Result, name) == value)
        return next(iter(self._read(query.order_by(Result.id.desc()).limit(1))), None)

    def read_run(self, run_id: int) -> Run:
        """Return the run with this id; raises :class:`RecordError` where there is none."""
        with _translate_errors(self.url), Session(self._engine, expire_on_commit=False) as session:
            run = session.get(Run, run_id)
            if run is None:
                raise RecordError(f"no run {run_id} in {hide_password(self.url)}")
            session.expunge_all()
            return run

    def find_latest_run(self, op: str, kinds: Sequence[str]) -> int | None:
        """Return the id of the latest run with a result of one of these kinds for the op."""
        with _translate_errors(self.url), Session(self._engine) as session:
            query = select(Result.run_id).where(Result.op == op, Result.kind.in_(kinds)).order_by(Result.id.desc()).limit(1)
            return session.scalar(query)

    def has_results(self, op: str, device_kind: str | None = None) -> bool:
        """Return whether there is any result of an op, or any made on devices of a kind (``cuda``, ``emulated``)."""
        query = select(Result.id).where(Result.op == op).limit(1)
        if device_kind is not None:
            query = query.where(Result.device_kind == device_kind)
        with _translate_errors(self.url), Session(self._engine) as session:
            return session.scalar(query) is not None

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _read(self, query: Any) -> list[Result]:
        with _translate_errors(self.url), Session(self._engine, expire_on_commit=False) as session:
            rows = list(session.scalars(query.options(joinedload(Result.run).joinedload(Run.environment))))
            session.expunge_all()
            return rows

    @contextmanager
    def write(self) -> Iterator[Session]:
        """Give a session whose changes are committed together when the block ends without an error."""
        with _translate_errors(self.url), Session(self._engine) as session:
            if self._engine.dialect.name == "sqlite":
                # Take the write lock first: a transaction that reads and then writes could not wait for another writer.
                session.connection().exec_driver_sql("BEGIN IMMEDIATE")
            yield session
            session.commit()


_PLAIN_FIELDS = (
    *("kind", "op", "variant", "problem", "status", "reason", "code_hash", "key", "spec_hash", "verify_version"),
    *("source_hash", "flags", "clock_label", "inputs"),
)


def share_environment(session: Session, values: Mapping[str, Any]) -> Environment:
    """Return the environment with these columns, inserted where it is new; another process may insert it at the same moment."""
    wanted = select(Environment).where(Environment.digest == values["digest"])
    found = session.scalar(wanted)
    if found is None:
        dialect = importlib.import_module(f"sqlalchemy.dialects.{session.get_bind().dialect.name}")
        session.execute(dialect.insert(Environment).values(**values).on_conflict_do_nothing(index_elements=["digest"]))
        found = session.scalars(wanted).one()
    return found


def make_uid() -> str:
    """Return a new name for a row, different from any other anywhere."""
    return uuid.uuid4().hex


def pack_floats(values: NDArray[np.float32] | None) -> bytes | None:
    """Return numbers as little-endian float32."""
    return None if values is None else np.asarray(values, dtype="<f4").tobytes()


def make_time() -> str:
    """Return the time as rows have it: UTC, ISO 8601, to the millisecond."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        raise RecordError(f"{_describe_failure(url, error)}; check that the place can be written, or set AICF_RECORDS_URL") from error


def _describe_failure(url: str, error: Exception) -> str:
    cause = str(getattr(error, "orig", None) or error).splitlines()
    return f"records at {hide_password(url)}: {cause[0] if cause else type(error).__name__}"
