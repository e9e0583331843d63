"""Schemas that Citus distributes (schema-based sharding): what a migration does besides, so that triggers work there.

All tables of such a schema have one shard each, on one node. So a trigger may read and write the other tables: they are
on its own node, and what it does is part of the same transaction.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from tasklib.migrations.statements import exists, firsts, run

if TYPE_CHECKING:
    from sqlalchemy import Connection


def is_distributed(connection: Connection, schema: str) -> bool:
    """Whether Citus distributes this schema."""
    return exists(connection, "SELECT to_regclass('pg_catalog.pg_dist_schema')") and exists(
        connection, "SELECT 1 FROM pg_dist_schema WHERE schemaid = to_regnamespace(quote_ident(%(name)s))", name=schema
    )


@contextmanager
def triggers_allowed(connection: Connection, schema: str) -> Iterator[None]:
    """Make triggers on distributed tables, and let our functions be called on a shard."""
    if not is_distributed(connection, schema):
        yield
        return
    run(connection, "SET LOCAL citus.enable_unsafe_triggers = on")
    yield
    for function in firsts(connection, _FUNCTIONS, name=schema):
        run(connection, f"ALTER FUNCTION {function} SET citus.allow_nested_distributed_execution = on")


# Those that read tables. Of the one that takes a row there is none on a shard, whose rows are of another type.
_FUNCTIONS = """
    SELECT oid::regprocedure::text FROM pg_proc
    WHERE pronamespace = to_regnamespace(quote_ident(%(name)s))
      AND starts_with(proname, 'tasklib_') AND provolatile <> 'i'
      AND NOT EXISTS (SELECT FROM unnest(proargtypes) AS type JOIN pg_type ON pg_type.oid = type WHERE typtype = 'c')
    ORDER BY oid"""
