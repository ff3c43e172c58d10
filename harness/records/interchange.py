"""Records as files, out of one database and into another: JSON, CSV and Parquet, every sample included.

A row is a result with its run and environment. Rows keep their names (``uid``): what is in the database already is not inserted again, so
that a file may be imported twice, and files of several machines together. JSON is what ``report --json`` prints.
"""

from __future__ import annotations

import base64
import csv
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from sqlalchemy import select
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session

from contract.documents import parse_json
from contract.files import write_atomically
from device.settings import suggest
from harness.errors import RecordError, RecordUseError
from harness.records.database import Records, pack_floats, share_environment
from harness.records.row_checks import BLOBS, OWN_KEYS, find_row_fault
from harness.records.tables import Environment, Result, Run

_SUFFIXES = (".json", ".csv", ".parquet")


def export_records(records: Records, path: Path, op: str | None = None) -> int:
    """Write all results, or those of one op; the suffix says how. Returns their number.

    Raises :class:`RecordUseError` for an op that there are no results of, and for a name that says no format.
    """
    suffix = _check_suffix(path)
    results = records.list_results(op=op)
    if op is not None and not results:
        known = sorted({r.op for r in records.list_results()})
        there = f"results of {', '.join(known)}" if known else "no results at all"
        raise RecordUseError(f"--op {op}: it has no results{suggest(op, known)} (the records have {there})")
    rows = [r.to_json() for r in results]
    path.parent.mkdir(parents=True, exist_ok=True)
    if suffix == ".json":
        write_atomically(path, json.dumps(rows, indent=1) + "\n")
    elif suffix == ".csv":
        _write_csv(path, [_flatten(r) for r in rows])
    else:
        _write_parquet(path, [_flatten(r) for r in rows])
    return len(rows)


def import_records(records: Records, path: Path) -> tuple[int, int]:
    """Insert the results of a file that are not there yet, all of them or none; return how many were inserted, and how many were there.

    Raises :class:`RecordError` for a file that holds anything else.
    """
    rows = _read_rows(path)
    for number, row in enumerate(rows, start=1):
        if fault := find_row_fault(row):
            raise RecordUseError(f"{path} cannot be read as records: row {number}: {fault}")
    added = 0
    try:
        with records.write() as session:
            for row in rows:
                added += _insert(session, row)
    except (OverflowError, SQLAlchemyError) as error:
        text = str(error).partition("\n")[0][:300]
        raise RecordUseError(f"{path} cannot be imported: {type(error).__name__}: {text}; nothing was imported") from error
    return added, len(rows) - added


def _read_rows(path: Path) -> list[dict[str, Any]]:
    suffix = _check_suffix(path)
    try:
        if suffix == ".json":
            rows = parse_json(path.read_text(), strict=False)
            if not isinstance(rows, list):
                raise ValueError("it is not a list")
            return rows
        return [_nest(r) for r in (_read_csv(path) if suffix == ".csv" else _read_parquet(path))]
    except OSError as error:
        raise RecordUseError(f"{path} cannot be read: {error.strerror or error}") from error
    except ValueError as error:
        raise RecordUseError(f"{path} holds no records ({error}); `records export` writes such a file") from error


def _check_suffix(path: Path) -> str:
    if path.suffix not in _SUFFIXES:
        raise RecordUseError(f"{path}: records are written as {', '.join(_SUFFIXES)}")
    return path.suffix


def _insert(session: Session, row: Mapping[str, Any]) -> bool:
    run = row["run"]
    environment = run["environment"]
    uid = row.get("uid") or _name_row(row)
    if session.scalar(select(Result.id).where(Result.uid == uid)) is not None:
        return False
    run_uid = run.get("uid") or _name_row(run)
    found = session.scalar(select(Run).where(Run.uid == run_uid))
    if found is None:
        place = share_environment(session, _pick(Environment, environment))
        found = Run(**(_pick(Run, run) | {"uid": run_uid}), environment=place)
        session.add(found)
    values = _pick(Result, row) | {name: pack_floats(np.asarray(row[name], np.float32)) if row.get(name) else None for name in BLOBS}
    session.add(Result(**(values | {"uid": uid}), run=found))
    session.flush()
    return True


def _pick(table: type[Environment] | type[Run] | type[Result], row: Mapping[str, Any]) -> dict[str, Any]:
    """Return the row's values that the table has columns for, but keys of another database."""
    return {c.name: row[c.name] for c in table.__table__.columns if c.name in row and c.name not in OWN_KEYS}


def _name_row(row: Mapping[str, Any]) -> str:
    """Return a name for a row of the time before there were names: the same for the same content."""
    content = {k: v for k, v in row.items() if k not in ("id", "run_id", "environment_id")}
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()[:32]


def _flatten(row: Mapping[str, Any]) -> dict[str, Any]:
    run = row["run"]
    flat = {k: v for k, v in row.items() if k != "run"} | {"figures": json.dumps(row["figures"])}
    flat |= {f"run.{k}": v for k, v in run.items() if k != "environment"}
    return flat | {f"environment.{k}": v for k, v in run["environment"].items()}


def _nest(flat: Mapping[str, Any]) -> dict[str, Any]:
    row: dict[str, Any] = {"run": {"environment": {}}}
    for name, value in flat.items():
        table, _, column = name.rpartition(".")
        place = {"run": row["run"], "environment": row["run"]["environment"]}.get(table, row)
        place[column if table in ("run", "environment") else name] = parse_json(value, strict=False) if name == "figures" else value
    return row


def _write_csv(path: Path, rows: Sequence[Mapping[str, Any]]) -> None:
    """Write text; samples and clocks as base64 of little-endian float32, so that no digit is lost."""
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]) if rows else ["uid"])
        writer.writeheader()
        for row in rows:
            writer.writerow(dict(row) | {n: base64.b64encode(pack_floats(np.asarray(row[n], np.float32)) or b"").decode() for n in BLOBS})


def _read_csv(path: Path) -> Iterator[dict[str, Any]]:
    types = {
        f"{prefix}{c.name}": c.type.python_type
        for prefix, table in (("", Result), ("run.", Run), ("environment.", Environment))
        for c in table.__table__.columns
    }
    with path.open(newline="") as file:
        for row in csv.DictReader(file):
            values: dict[str, Any] = {}
            for name, text in row.items():
                if name is None or text is None:
                    raise ValueError("a line has more or fewer columns than the first one")
                if name in BLOBS:
                    values[name] = np.frombuffer(base64.b64decode(text), "<f4").tolist()
                elif types.get(name) is bool:
                    values[name] = text == "True"
                else:
                    values[name] = int(text) if types.get(name) is int else text
            yield values


def _write_parquet(path: Path, rows: Iterable[Mapping[str, Any]]) -> None:
    arrow, parquet = _import_arrow()
    schema = arrow.Table.from_pylist([{k: v for k, v in r.items() if k not in BLOBS} for r in rows])
    for name in BLOBS:
        schema = schema.append_column(name, arrow.array([r[name] for r in rows], arrow.list_(arrow.float32())))
    parquet.write_table(schema, path, compression="zstd")


def _read_parquet(path: Path) -> Iterator[dict[str, Any]]:
    _, parquet = _import_arrow()
    yield from parquet.read_table(path).to_pylist()


def _import_arrow() -> tuple[Any, Any]:
    try:
        import pyarrow as pa
        from pyarrow import parquet
    except ImportError as error:
        raise RecordError(f"Parquet needs pyarrow ({error}): pip install pyarrow, or write .json or .csv") from error
    return pa, parquet
