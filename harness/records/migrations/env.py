"""What Alembic runs to apply migrations: on the connection that the function ``migrate`` hands over, in its transaction."""

from __future__ import annotations

from alembic import context

context.configure(connection=context.config.attributes["connection"])
context.run_migrations()
