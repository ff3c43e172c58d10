"""The tables of the records: environments, runs, results. Rows are inserted and never changed; the migrations create them."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray
from sqlalchemy import JSON, ForeignKey, Index, String, Text, event
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column, relationship

from harness.errors import RecordError


class Base(DeclarativeBase):
    """Base of the tables."""

    type_annotation_map = {dict[str, Any]: JSON}  # noqa: RUF012 - read by SQLAlchemy


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
    """One command. ``started_at`` is UTC in ISO 8601; ``dirty`` says that the tree had changes beyond ``commit``.

    ``uid`` names the run in every database that it is copied to.
    """

    __tablename__ = "run"
    id: Mapped[int] = mapped_column(primary_key=True)
    started_at: Mapped[str] = mapped_column(String(32))
    command: Mapped[str] = mapped_column(Text)
    commit: Mapped[str] = mapped_column(String(64))
    dirty: Mapped[bool]
    environment_id: Mapped[int] = mapped_column(ForeignKey("environment.id"))
    uid: Mapped[str] = mapped_column(String(32), server_default="")
    environment: Mapped[Environment] = relationship()
    __table_args__ = (Index("run_by_uid", "uid", unique=True),)


class Result(Base):
    """One result. ``kind`` is ``verify``, ``bench``, ``compare``, ``goal``, ``sweep``, ``counters``, ``profile`` or ``sanitizer``.

    ``samples`` are little-endian float32, microseconds where ``kind`` is one that times, and ``clocks`` the SM clock of each in MHz.
    ``code_hash`` identifies the machine code, ``source_hash`` the sources and ``flags`` the compiler's, ``key`` all of the build,
    ``spec_hash`` the op's description, ``verify_version`` the protocol, ``clock_label`` how the GPU's clock was governed, ``inputs``
    their distribution, and ``uid`` the result in every database that it is copied to.
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
    uid: Mapped[str] = mapped_column(String(32), server_default="")
    source_hash: Mapped[str] = mapped_column(String(64), server_default="")
    flags: Mapped[str] = mapped_column(Text, server_default="")
    clock_label: Mapped[str] = mapped_column(String(32), server_default="")
    inputs: Mapped[str] = mapped_column(String(32), server_default="")
    clocks: Mapped[bytes | None]
    run: Mapped[Run] = relationship()

    def to_json(self) -> dict[str, Any]:
        """Return plain values, the run and its environment included, and samples and clocks as lists."""
        own = {c.name: getattr(self, c.name) for c in self.__table__.columns if c.name not in ("samples", "clocks")}
        run = {c.name: getattr(self.run, c.name) for c in Run.__table__.columns}
        environment = {c.name: getattr(self.run.environment, c.name) for c in Environment.__table__.columns}
        lists = {"samples": read_samples(self).tolist(), "clocks": read_clocks(self).tolist()}
        return own | lists | {"run": run | {"environment": environment}}

    __table_args__ = (
        Index("result_by_build", "op", "kind", "key", "spec_hash"),
        Index("result_by_run", "run_id"),
        Index("result_by_uid", "uid", unique=True),
    )


def _refuse_change(mapper: object, connection: object, target: object) -> None:
    raise RecordError(f"records are never changed or deleted: {type(target).__name__} {getattr(target, 'id', '')}")


for _table in (Environment, Run, Result):
    event.listen(_table, "before_update", _refuse_change)
    event.listen(_table, "before_delete", _refuse_change)


def read_samples(result: Result) -> NDArray[np.float32]:
    """Return a result's samples (empty where there are none)."""
    return np.frombuffer(result.samples or b"", dtype="<f4")


def read_clocks(result: Result) -> NDArray[np.float32]:
    """Return the SM clock of a result's samples (empty where it is not known)."""
    return np.frombuffer(result.clocks or b"", dtype="<f4")
