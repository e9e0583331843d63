"""Each statement can be planned in a schema that Citus distributes."""

from __future__ import annotations

from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.sql import numbered, statements
from tests.distributed_schemas import CLUSTER, URL_VARIABLE

pytestmark = pytest.mark.skipif(CLUSTER is None, reason=f"{URL_VARIABLE} names no Citus cluster")

NOT_PREPARED = {"submit_copy", "submit_copy_simple", "doctor_claim_plan"}
"""COPY and EXPLAIN can't be prepared."""
TYPED = {"search_aside": {"look": "int"}, "search_aside_newer": {"look": "int"}, "worker_register": {"capacity": "int"}}
"""Types that the driver sends with its numbers, where PostgreSQL would guess others."""
# With null for these, or an empty list, Citus plans nothing to do.
VALUES = {
    "ids": "'{00000000-0000-7000-8000-000000000000}'",
    "tokens": "'{1}'",
    "results": "'{null}'",
    "worker": "'one'",
}


def refusal(connection: psycopg.Connection[Any], name: str) -> str | None:
    """What the server says against a statement, planned for values."""
    text, names = numbered(name, None, before_18=connection.info.server_version < 180_000)
    types = ", ".join(TYPED.get(name, {}).get(parameter, "unknown") for parameter in names)
    try:
        connection.execute(f"PREPARE one{f' ({types})' if types else ''} AS {text}".encode())
        found = connection.execute("SELECT parameter_types::text[] FROM pg_prepared_statements WHERE name = 'one'")
        kinds = [kind for (kinds,) in found for kind in kinds]
        given = [f"{VALUES.get(parameter, 'NULL')}::{kind}" for parameter, kind in zip(names, kinds, strict=True)]
        values = ", ".join(given)
        connection.execute(f"EXPLAIN EXECUTE one{f' ({values})' if values else ''}".encode())
    except psycopg.Error as e:
        return str(e.diag.message_primary)
    finally:
        connection.execute("DEALLOCATE ALL")
    return None


def test_no_statement_is_refused(config: Config) -> None:
    with psycopg.connect(config.database_url, autocommit=True, prepare_threshold=None) as connection:
        connection.execute("SET plan_cache_mode = force_custom_plan")
        refused = {name: refusal(connection, name) for name in sorted(statements().keys() - NOT_PREPARED)}
    assert {name: why for name, why in refused.items() if why is not None} == {}
