"""What a migration script is made of: SQL files with the schema's name filled in."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.resources import files

from alembic import context, op

from tasklib.sql import indexed, quoted


def run_script(name: str) -> None:
    """Execute versions/NAME.sql in the schema being migrated."""
    schema: str | None = context.config.attributes["schema"]
    text = files("tasklib.migrations").joinpath("versions", f"{name}.sql").read_text(encoding="utf-8")
    text = indexed(text).replace("{schema.}", f"{quoted(schema)}." if schema else "")
    # One by one: Citus repeats some of them on its nodes, where several commands in one text are refused.
    for statement in separated(text):
        # A colon is not a parameter here.
        op.execute(statement.replace(":", r"\:"))


# What may hold a semicolon that ends nothing, and those that end a statement.
_PIECE = re.compile(r"--[^\n]*|'(?:[^']|'')*'|\"[^\"]*\"|(\$\w*\$).*?\1|;", re.DOTALL)


def separated(script: str) -> Iterator[str]:
    """The statements of a script, each with the comments above it."""
    begin = 0
    for piece in _PIECE.finditer(script):
        if piece[0] == ";":
            yield script[begin : piece.start()].strip()
            begin = piece.end()
    rest = re.sub(r"--[^\n]*", "", script[begin:]).strip()
    if rest:
        raise ValueError(f"a statement has no semicolon at its end: {rest[:100]}")
