"""What a time depends on, in columns: sources, flags, clock, inputs; the clock of each sample; names that outlive a database."""

from __future__ import annotations

import uuid

import sqlalchemy as sa
from alembic import op

from harness.records.migrations.guards import create_guards, drop_guards

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Add the columns, give every row there is a name, and guard the tables."""
    drop_guards()
    for table in ("run", "result"):
        op.add_column(table, sa.Column("uid", sa.String(32), nullable=False, server_default=""))
    for name, kind in (
        ("source_hash", sa.String(64)),
        ("flags", sa.Text()),
        ("clock_label", sa.String(32)),
        ("inputs", sa.String(32)),
    ):
        op.add_column("result", sa.Column(name, kind, nullable=False, server_default=""))
    op.add_column("result", sa.Column("clocks", sa.LargeBinary))
    connection = op.get_bind()
    for table in ("run", "result"):
        for row_id in connection.scalars(sa.text(f"SELECT id FROM {table}")).all():
            connection.execute(sa.text(f"UPDATE {table} SET uid = :uid WHERE id = :id"), {"uid": uuid.uuid4().hex, "id": row_id})
        op.create_index(f"{table}_by_uid", table, ["uid"], unique=True)
    if "schema" in sa.inspect(connection).get_table_names():
        op.drop_table("schema")
    create_guards()
