"""Connections to the database of the records: SQLite for one machine, or what SQLAlchemy has a driver for."""

from __future__ import annotations

import os
import sqlite3
import time
import warnings
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, event
from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError, NoSuchModuleError, SAWarning

from harness.errors import RecordUseError

_BUSY_TIMEOUT_MS = 30_000
_SQLITE_PRAGMAS = (f"PRAGMA busy_timeout = {_BUSY_TIMEOUT_MS}", "PRAGMA foreign_keys = ON")


def hide_password(url: str) -> str:
    """Return a database URL for people and pages: without its password."""
    try:
        return make_url(url).render_as_string(hide_password=True)
    except (ArgumentError, ValueError):
        return url


def open_engine(url: str) -> Engine:
    """Return an engine for a database URL, the folder of an SQLite file made. Raises :class:`RecordError` with the remedy."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise RecordUseError(f"AICF_RECORDS_URL={url!r} is not a database URL: write e.g. sqlite:////tmp/records.sqlite") from error
    is_sqlite = parsed.get_backend_name() == "sqlite"
    try:
        if is_sqlite and parsed.database:
            Path(parsed.database).parent.mkdir(parents=True, exist_ok=True)
        with warnings.catch_warnings():
            # SQLite's driver passes over what it does not know in the URL, and says so in a warning.
            warnings.simplefilter("error", SAWarning)
            engine = create_engine(parsed, pool_pre_ping=not is_sqlite)
    except SAWarning as error:
        raise RecordUseError(f"AICF_RECORDS_URL={hide_password(url)!r} cannot be used: {str(error).partition(';')[0]}") from error
    except OSError as error:
        raise RecordUseError(
            f"cannot make the folder of {parsed.database}: {error.strerror}; set AICF_RECORDS_URL to another place"
        ) from error
    except (ImportError, NoSuchModuleError) as error:
        raise RecordUseError(f"no driver for {parsed.drivername} is installed ({error}): install it, or use sqlite") from error
    if is_sqlite:
        event.listen(engine, "connect", _configure_sqlite)
    return engine


def _configure_sqlite(connection: Any, _: object) -> None:
    # Without this the driver opens transactions of its own, late, and BEGIN IMMEDIATE would come second.
    connection.isolation_level = None
    cursor = connection.cursor()
    _switch_to_wal(cursor)
    for pragma in _SQLITE_PRAGMAS:
        cursor.execute(pragma)
    cursor.close()


def _switch_to_wal(cursor: Any) -> None:
    """Choose the write-ahead log, which lets readers go on while one writer commits.

    Processes that open a new database at the same moment each hold what the other waits for. SQLite then gives up at once, or waits for
    all of its timeout: here each lets go soon, and tries again.
    """
    cursor.execute("PRAGMA busy_timeout = 10")
    last_try = time.monotonic() + _BUSY_TIMEOUT_MS / 1000
    while True:
        try:
            cursor.execute("PRAGMA journal_mode = WAL")
            return
        except sqlite3.OperationalError as error:
            if error.sqlite_errorcode & 0xFF != sqlite3.SQLITE_BUSY or time.monotonic() > last_try:
                raise
        time.sleep(0.002 + os.getpid() % 13 / 1000)  # not all at the same time again
