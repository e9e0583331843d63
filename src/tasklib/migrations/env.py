"""Alembic's entry point; tasklib.migrations.migrate sets the connection and the schema."""

from __future__ import annotations

from alembic import context

from tasklib.migrations.revisions import VERSION_TABLE

attributes = context.config.attributes
context.configure(
    connection=attributes.get("connection"),
    dialect_name=None if attributes.get("connection") is not None else "postgresql",
    version_table=VERSION_TABLE,
    version_table_schema=attributes["schema"],
    transactional_ddl=True,
    # For the script: with the driver's own style each percent sign would be written twice.
    dialect_opts={"paramstyle": "named"},
)
with context.begin_transaction():
    context.run_migrations()
