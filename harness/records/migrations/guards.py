"""Triggers that keep rows from being changed or deleted, for SQLite and PostgreSQL."""

from __future__ import annotations

from alembic import op

_TABLES = ("environment", "run", "result")
_MESSAGE = "records are never changed or deleted"


def create_guards() -> None:
    """Refuse every UPDATE and DELETE from now on."""
    dialect = op.get_bind().dialect.name
    if dialect == "postgresql":
        op.execute(
            "CREATE OR REPLACE FUNCTION aicf_refuse_change() RETURNS trigger AS $$ "
            f"BEGIN RAISE EXCEPTION '{_MESSAGE}'; END $$ LANGUAGE plpgsql"
        )
    for table in _TABLES:
        for verb in ("UPDATE", "DELETE"):
            name = f"{table}_refuse_{verb.lower()}"
            if dialect == "sqlite":
                op.execute(f"CREATE TRIGGER {name} BEFORE {verb} ON {table} BEGIN SELECT RAISE(ABORT, '{_MESSAGE}'); END")
            elif dialect == "postgresql":
                op.execute(f"CREATE TRIGGER {name} BEFORE {verb} ON {table} EXECUTE FUNCTION aicf_refuse_change()")


def drop_guards() -> None:
    """Allow changes again, for the length of a migration."""
    dialect = op.get_bind().dialect.name
    for table in _TABLES:
        for verb in ("update", "delete"):
            if dialect == "sqlite":
                op.execute(f"DROP TRIGGER IF EXISTS {table}_refuse_{verb}")
            elif dialect == "postgresql":
                op.execute(f"DROP TRIGGER IF EXISTS {table}_refuse_{verb} ON {table}")
