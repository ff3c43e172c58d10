"""The store of runs: insert-only rows in SQLite, or in any database that SQLAlchemy reaches through ``AICF_RECORDS_URL``.

A *run* is one command; it ran in an *environment* (device, driver, toolchain, host) at a commit; its *results* are one verdict, timing
or set of counters each, with every sample. Nothing is ever changed or deleted: SQLite refuses it by trigger, the mapper everywhere.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import DDL, JSON, Engine, ForeignKey, Index, String, Text, create_engine, event, select
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SQLAlchemyError
from sqlalchemy.orm import DeclarativeBase, Mapped, Session, mapped_column, relationship

from harness.errors import RecordError

SCHEMA_VERSION = 1
_BUSY_TIMEOUT_MS = 30_000
# SQLite's WAL lets readers go on while one writer commits.
_SQLITE_PRAGMAS = (f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}", "PRAGMA journal_mode = WAL", "PRAGMA foreign_keys = ON")


class Base(DeclarativeBase):
    """Base of the tables."""

    type_annotation_map = {dict[str, Any]: JSON}  # noqa: RUF012 - read by SQLAlchemy


class Schema(Base):
    """The version of the tables, in one row."""

    __tablename__ = "schema"
    version: Mapped[int] = mapped_column(primary_key=True)


class Environment(Base):
    """What a run ran on. ``digest`` identifies the whole row, so that equal environments share one."""

    __tablename__ = "environment"
    id: Mapped[int] = mapped_column(primary_key=True)
    digest: Mapped[str] = mapped_column(String(64), unique=True)
    device_kind: Mapped[str] = mapped_column(String(16))
    device_name: Mapped[str] = mapped_column(String(128))
    device_uuid: Mapped[str] = mapped_column(String(64))
    driver_version: Mapped[int]
    runtime_version: Mapped[int]
    runtime_hash: Mapped[str] = mapped_column(String(64))
    toolchain: Mapped[str] = mapped_column(String(256))
    target: Mapped[str] = mapped_column(String(64))
    host: Mapped[str] = mapped_column(String(256))


class Run(Base):
    """One command. ``started_at`` is UTC in ISO 8601; ``dirty`` says that the tree had changes beyond ``commit``."""

    __tablename__ = "run"
    id: Mapped[int] = mapped_column(primary_key=True)
    started_at: Mapped[str] = mapped_column(String(32))
    command: Mapped[str] = mapped_column(Text)
    commit: Mapped[str] = mapped_column(String(64))
    dirty: Mapped[bool]
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    environment: Mapped[Environment] = relationship()


class Result(Base):
    """One result. ``kind`` is ``verify``, ``bench`` or ``counters``; ``samples`` are little-endian float32, microseconds for ``bench``.

    ``code_hash`` identifies the machine code, ``key`` the build, ``spec_hash`` the op's description, ``verify_version`` the protocol.
    """

    __tablename__ = "result"
    id: Mapped[int] = mapped_column(primary_key=True)
    run_id: Mapped[int] = mapped_column(ForeignKey("run.id"))
    created_at: Mapped[str] = mapped_column(String(32))
    kind: Mapped[str] = mapped_column(String(16))
    op: Mapped[str] = mapped_column(String(64))
    variant: Mapped[str] = mapped_column(String(160))
    problem: Mapped[str] = mapped_column(String(200))
    status: Mapped[str] = mapped_column(String(16))
    reason: Mapped[str] = mapped_column(Text)
    code_hash: Mapped[str] = mapped_column(String(64))
    key: Mapped[str] = mapped_column(String(64))
    spec_hash: Mapped[str] = mapped_column(String(64))
    device_kind: Mapped[str] = mapped_column(String(16))
    verify_version: Mapped[int]
    figures: Mapped[dict[str, Any]]
    samples: Mapped[bytes | None]
    run: Mapped[Run] = relationship()

    def to_json(self) -> dict[str, Any]:
        """Return plain values, the run and its environment included, and the samples as a list."""
        own = {c.name: getattr(self, c.name) for c in self.__table__.columns if c.name != "samples"}
        run = {c.name: getattr(self.run, c.name) for c in Run.__table__.columns}
        environment = {c.name: getattr(self.run.environment, c.name) for c in Environment.__table__.columns}
        return own | {"samples": read_samples(self).tolist(), "run": run | {"environment": environment}}

    __table_args__ = (Index("result_by_build", "op", "kind", "key", "spec_hash"), Index("result_by_run", "run_id"))


def _refuse_change(mapper: object, connection: object, target: object) -> None:
    raise RecordError(f"records are never changed or deleted: {type(target).__name__} {getattr(target, 'id', '')}")


for _table in (Environment, Run, Result):
    event.listen(_table, "before_update", _refuse_change)
    event.listen(_table, "before_delete", _refuse_change)
    for _verb in ("UPDATE", "DELETE"):
        _name = _table.__tablename__
        _trigger = DDL(  # type: ignore[no-untyped-call]
            f"CREATE TRIGGER {_name}_refuse_{_verb.lower()} BEFORE {_verb} ON {_name} "
            "BEGIN SELECT RAISE(ABORT, 'records are never changed or deleted'); END"
        )
        event.listen(_table.__table__, "after_create", _trigger.execute_if(dialect="sqlite"))


@dataclass(frozen=True)
class EnvironmentFacts:
    """The columns of :class:`Environment` but its keys.

    ``device_kind`` is ``cuda`` or ``emulated``; ``runtime_hash`` the SHA-256 of the CUDA runtime library in use, thus of the emulator.
    """

    device_kind: str
    device_name: str
    device_uuid: str
    driver_version: int
    runtime_version: int
    runtime_hash: str
    toolchain: str
    target: str
    host: str

    @property
    def digest(self) -> str:
        """SHA-256 over all fields."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()


@dataclass(frozen=True)
class ResultFacts:
    """One result to be recorded; fields as in :class:`Result`."""

    kind: str
    op: str
    variant: str
    problem: str
    status: str
    reason: str = ""
    code_hash: str = ""
    key: str = ""
    spec_hash: str = ""
    verify_version: int = 0
    figures: Mapping[str, Any] | None = None
    samples: NDArray[np.float32] | None = None


class Records:
    """The open store. All methods raise :class:`RecordError` with the remedy when the database cannot be used."""

    def __init__(self, url: str) -> None:
        self.url = url
        self._engine = _open_engine(url)
        with _translate_errors(url):
            self._prepare_schema()

    def _prepare_schema(self) -> None:
        # Several processes may meet a new file at once; the lock makes one of them create the tables.
        with self._engine.connect() as connection:
            if self._engine.dialect.name == "sqlite":
                connection.exec_driver_sql("BEGIN IMMEDIATE")
            Base.metadata.create_all(connection)
            found = connection.scalar(select(Schema.version))
            if found is None:
                connection.execute(Schema.__table__.insert().values(version=SCHEMA_VERSION))  # type: ignore[attr-defined]
            connection.commit()
        if found not in (None, SCHEMA_VERSION):
            raise RecordError(
                f"{self.url} has record schema {found}, this version of the project reads {SCHEMA_VERSION}: "
                "move the database away, or set AICF_RECORDS_URL to another one"
            )

    def start_run(self, facts: EnvironmentFacts, *, command: str, commit: str, dirty: bool) -> int:
        """Insert a run, and its environment where it is new; return the run's id."""
        with self._write() as session:
            environment = session.scalar(select(Environment).where(Environment.digest == facts.digest))
            if environment is None:
                environment = Environment(digest=facts.digest, **asdict(facts))
            run = Run(started_at=_now(), command=command, commit=commit, dirty=dirty, environment=environment)
            session.add(run)
            session.flush()
            return run.id

    def add_results(self, run_id: int, results: Sequence[ResultFacts]) -> list[int]:
        """Insert results of a run in one transaction; return their ids."""
        with self._write() as session:
            run = session.get(Run, run_id)
            if run is None:
                raise RecordError(f"no run {run_id} in {self.url}: results need a run that was started")
            rows = [
                Result(
                    run_id=run_id,
                    created_at=_now(),
                    device_kind=run.environment.device_kind,
                    samples=None if facts.samples is None else np.asarray(facts.samples, dtype="<f4").tobytes(),
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
    ) -> Result | None:
        """Return the latest result of a build on a problem, made in the same environment from the same op description, or None.

        ``problem`` is ``*`` for a verdict on all problems.
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
            )
            .order_by(Result.id.desc())
            .limit(1)
        )
        return next(iter(self._read(query)), None)

    def list_results(self, *, op: str | None = None, run_id: int | None = None, kind: str | None = None) -> list[Result]:
        """Return results in the order they were recorded, with their runs and environments loaded."""
        query = select(Result).order_by(Result.id)
        for column, value in ((Result.op, op), (Result.run_id, run_id), (Result.kind, kind)):
            if value is not None:
                query = query.where(column == value)
        return self._read(query)

    def find_latest_run(self, op: str, kinds: Sequence[str]) -> int | None:
        """Return the id of the latest run with a result of one of these kinds for the op."""
        with _translate_errors(self.url), Session(self._engine) as session:
            query = select(Result.run_id).where(Result.op == op, Result.kind.in_(kinds)).order_by(Result.id.desc()).limit(1)
            return session.scalar(query)

    def close(self) -> None:
        """Close all connections."""
        self._engine.dispose()

    def _read(self, query: Any) -> list[Result]:
        with _translate_errors(self.url), Session(self._engine, expire_on_commit=False) as session:
            rows = list(session.scalars(query))
            for row in rows:
                _ = row.run.environment.device_name
            session.expunge_all()
            return rows

    @contextmanager
    def _write(self) -> Iterator[Session]:
        with _translate_errors(self.url), Session(self._engine) as session:
            if self._engine.dialect.name == "sqlite":
                # Take the write lock first: a transaction that reads and then writes could not wait for another writer.
                session.connection().exec_driver_sql("BEGIN IMMEDIATE")
            yield session
            session.commit()


_PLAIN_FIELDS = ("kind", "op", "variant", "problem", "status", "reason", "code_hash", "key", "spec_hash", "verify_version")


def read_samples(result: Result) -> NDArray[np.float32]:
    """Return a result's samples (empty where there are none)."""
    return np.frombuffer(result.samples or b"", dtype="<f4")


def _now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def _open_engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
    except ArgumentError as error:
        raise RecordError(f"AICF_RECORDS_URL={url!r} is no database URL: write for instance sqlite:////tmp/records.sqlite") from error
    is_sqlite = parsed.get_backend_name() == "sqlite"
    try:
        if is_sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        engine = create_engine(parsed)
    except OSError as error:
        raise RecordError(
            f"cannot make the folder of {parsed.database}: {error.strerror}; set AICF_RECORDS_URL to another place"
        ) from error
    except (ImportError, NoSuchModuleError) as error:
        raise RecordError(f"no driver for {parsed.drivername} is installed ({error}): install it, or use sqlite") from error
    if is_sqlite:
        event.listen(engine, "connect", _configure_sqlite)
    return engine


def _configure_sqlite(connection: Any, _: object) -> None:
    # Without this the driver opens transactions of its own, late, and BEGIN IMMEDIATE would come second.
    connection.isolation_level = None
    cursor = connection.cursor()
    for pragma in _SQLITE_PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


@contextmanager
def _translate_errors(url: str) -> Iterator[None]:
    try:
        yield
    except SQLAlchemyError as error:
        cause = getattr(error, "orig", None) or error
        raise RecordError(f"records at {url}: {cause}; check that the place can be written, or set AICF_RECORDS_URL") from error
