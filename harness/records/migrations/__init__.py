"""Migrations of the records' tables, by Alembic: one file per step in ``versions``, run when a store is opened.

A new step gets the next number as its revision, names the one before, and changes :mod:`harness.records.tables` in the same commit; a test
holds the two together. Steps add and never lose: rows that were recorded under an older schema are kept, whatever it takes to fill in.
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, inspect, text

from harness.errors import RecordUseError

FIRST = "0001"
HEAD = "0002"


def read_revision(connection: Connection) -> str:
    """Return the revision of a database's tables, "" where there are none."""
    tables = set(inspect(connection).get_table_names())
    if "alembic_version" in tables:
        return str(connection.scalar(text("SELECT version_num FROM alembic_version")) or "")
    # Before there were migrations, a table of one row held the number 1.
    return FIRST if "schema" in tables else ""


def require_known(revision: str) -> None:
    """Raise :class:`RecordUseError` for tables that a later version of the project, or another program, made."""
    if revision > HEAD:
        raise RecordUseError(
            f"the records have schema {revision}, this version of the project knows {HEAD}: "
            "use the later version, or set AICF_RECORDS_URL to another database"
        )


def migrate(connection: Connection) -> None:
    """Bring the tables to :data:`HEAD` within the connection's transaction.

    Raises :class:`RecordUseError` for a database that a later version of the project wrote.
    """
    found = read_revision(connection)
    if found == HEAD:
        return
    require_known(found)
    # Slow to import, and hardly ever needed.
    from alembic import command
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent))
    config.attributes["connection"] = connection
    if found == FIRST and "alembic_version" not in inspect(connection).get_table_names():
        command.stamp(config, FIRST)
    command.upgrade(config, HEAD)
