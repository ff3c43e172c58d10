"""Environments, runs and results, as the first version had them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Create the tables."""
    op.create_table(
        "environment",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("device_kind", sa.String(16), nullable=False),
        sa.Column("device_name", sa.String(128), nullable=False),
        sa.Column("device_uuid", sa.String(64), nullable=False),
        sa.Column("driver_version", sa.Integer, nullable=False),
        sa.Column("runtime_version", sa.Integer, nullable=False),
        sa.Column("runtime_hash", sa.String(64), nullable=False),
        sa.Column("toolchain", sa.String(256), nullable=False),
        sa.Column("target", sa.String(64), nullable=False),
        sa.Column("host", sa.String(256), nullable=False),
    )
    op.create_table(
        "run",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("started_at", sa.String(32), nullable=False),
        sa.Column("command", sa.Text, nullable=False),
        sa.Column("commit", sa.String(64), nullable=False),
        sa.Column("dirty", sa.Boolean, nullable=False),
        sa.Column("environment_id", sa.Integer, sa.ForeignKey("environment.id"), nullable=False),
    )
    op.create_table(
        "result",
        sa.Column("id", sa.Integer, primary_key=True),
        sa.Column("run_id", sa.Integer, sa.ForeignKey("run.id"), nullable=False),
        sa.Column("created_at", sa.String(32), nullable=False),
        sa.Column("kind", sa.String(16), nullable=False),
        sa.Column("op", sa.String(64), nullable=False),
        sa.Column("variant", sa.String(160), nullable=False),
        sa.Column("problem", sa.String(200), nullable=False),
        sa.Column("status", sa.String(16), nullable=False),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("code_hash", sa.String(64), nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("spec_hash", sa.String(64), nullable=False),
        sa.Column("device_kind", sa.String(16), nullable=False),
        sa.Column("verify_version", sa.Integer, nullable=False),
        sa.Column("figures", sa.JSON, nullable=False),
        sa.Column("samples", sa.LargeBinary),
    )
    op.create_index("result_by_build", "result", ["op", "kind", "key", "spec_hash"])
    op.create_index("result_by_run", "result", ["run_id"])
