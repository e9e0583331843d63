"""What a migration script is made of: SQL files with the schema's name filled in."""

from __future__ import annotations

from importlib.resources import files

from alembic import context, op

from tasklib.sql import indexed, quoted


def run_script(name: str) -> None:
    """Execute versions/NAME.sql in the schema being migrated."""
    schema: str | None = context.config.attributes["schema"]
    text = files("tasklib.migrations").joinpath("versions", f"{name}.sql").read_text(encoding="utf-8")
    text = indexed(text).replace("{schema.}", f"{quoted(schema)}." if schema else "")
    # A colon is not a parameter here.
    op.execute(text.replace(":", r"\:"))
