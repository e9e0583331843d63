"""Everything one schema holds, as text that is the same on PostgreSQL 15, 16 and 18.

Regenerate the committed snapshot after a migration, and read the difference before committing it:

    PYTHONPATH=src:. python -m tests.migrations.catalogue > tests/migrations/schema.txt

It uses TASKLIB_TEST_DATABASE_URL if that is set, else the embedded PostgreSQL.
"""

from __future__ import annotations

import os
import uuid
from pathlib import Path

import psycopg
from psycopg import sql
from psycopg.conninfo import make_conninfo

SNAPSHOT = Path(__file__).with_name("schema.txt")
SCHEMA_0_1_0 = Path(__file__).with_name("schema_0_1_0.sql")

_SECTIONS = {
    "tables": """
        SELECT relname, coalesce(array_to_string(ARRAY(SELECT unnest(reloptions) ORDER BY 1), ', '), ''),
               CASE relpersistence WHEN 'p' THEN 'logged' ELSE 'not logged' END
        FROM pg_class WHERE relnamespace = %(schema)s::regnamespace AND relkind IN ('r', 'p') ORDER BY relname""",
    "columns": """
        SELECT relname, attname, format_type(atttypid, atttypmod),
               CASE WHEN attcollation NOT IN (0, 100) THEN 'COLLATE ' || collname ELSE '' END,
               CASE WHEN attnotnull THEN 'NOT NULL' ELSE '' END,
               coalesce('DEFAULT ' || pg_get_expr(adbin, adrelid), '')
        FROM pg_attribute
        JOIN pg_class ON pg_class.oid = attrelid
        LEFT JOIN pg_attrdef ON adrelid = attrelid AND adnum = attnum
        LEFT JOIN pg_collation ON pg_collation.oid = attcollation
        WHERE relnamespace = %(schema)s::regnamespace AND relkind IN ('r', 'p', 'v') AND attnum > 0 AND NOT attisdropped
        ORDER BY relname, attnum""",
    # Since PostgreSQL 18 a NOT NULL is a constraint too; here it is part of its column.
    "constraints": """
        SELECT CASE WHEN contypid = 0 THEN conrelid::regclass::text ELSE contypid::regtype::text END, conname,
               pg_get_constraintdef(oid)
        FROM pg_constraint
        WHERE connamespace = %(schema)s::regnamespace AND contype <> 'n' ORDER BY 1, 2""",
    "indexes": """
        SELECT indrelid::regclass::text, pg_get_indexdef(indexrelid)
        FROM pg_index JOIN pg_class ON pg_class.oid = indexrelid
        WHERE relnamespace = %(schema)s::regnamespace ORDER BY relname""",
    "triggers": """
        SELECT tgname, pg_get_triggerdef(pg_trigger.oid, true)
        FROM pg_trigger JOIN pg_class ON pg_class.oid = tgrelid
        WHERE relnamespace = %(schema)s::regnamespace AND NOT tgisinternal ORDER BY tgname""",
    "functions": """
        SELECT proname, pg_get_functiondef(oid) FROM pg_proc
        WHERE pronamespace = %(schema)s::regnamespace ORDER BY proname, pg_get_function_arguments(oid)""",
    "other relations": """
        SELECT relkind::text, relname FROM pg_class
        WHERE relnamespace = %(schema)s::regnamespace AND relkind NOT IN ('r', 'p', 'i') ORDER BY relname""",
    "types": """
        SELECT typname FROM pg_type
        WHERE typnamespace = %(schema)s::regnamespace AND typrelid = 0 AND typelem = 0 ORDER BY typname""",
}


def catalogue(connection: psycopg.Connection, schema: str = "public") -> str:
    """What is in a schema, its own name left out, so that two schemas can be compared."""
    lines = []
    with connection.transaction():
        # So that PostgreSQL writes the name of the schema before everything that is in it.
        connection.execute("SET LOCAL search_path = pg_catalog")
        (quoted,) = connection.execute("SELECT quote_ident(%s)", [schema]).fetchall()[0]
        for title, query in _SECTIONS.items():
            rows = connection.execute(query, {"schema": quoted}).fetchall()
            lines += [f"# {title}", *(" | ".join(cell for cell in row if cell) for row in rows), ""]
    text = "\n".join(line.rstrip() for line in "\n".join(lines).splitlines())
    # In the bodies of functions the name is always quoted, whether it has to be or not.
    always = '"' + schema.replace('"', '""') + '"'
    return text.replace(f"{always}.", "").replace(f"{quoted}.", "").rstrip() + "\n"


def everything(connection: psycopg.Connection) -> set[tuple[str, str, str]]:
    """Each object of a database that is not PostgreSQL's own: (what, schema, name)."""
    return {
        (what, schema, name)
        for what, query in {
            "schema": "SELECT nspname, '' FROM pg_namespace",
            "relation": "SELECT nspname, relname FROM pg_class JOIN pg_namespace n ON n.oid = relnamespace",
            "function": "SELECT nspname, proname FROM pg_proc JOIN pg_namespace n ON n.oid = pronamespace",
            "type": "SELECT nspname, typname FROM pg_type JOIN pg_namespace n ON n.oid = typnamespace",
            "extension": "SELECT nspname, extname FROM pg_extension JOIN pg_namespace n ON n.oid = extnamespace",
            "event trigger": "SELECT '', evtname FROM pg_event_trigger",
        }.items()
        for schema, name in connection.execute(query).fetchall()
        if not schema.startswith(("pg_toast", "pg_temp"))
    }


def _regenerate(server_url: str) -> str:
    from tasklib import Config
    from tasklib.migrations import migrate

    name = f"tasklib_snapshot_{uuid.uuid4().hex[:10]}"
    url = make_conninfo(server_url, dbname=name)
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        try:
            migrate(Config(url))
            with psycopg.connect(url) as connection:
                return catalogue(connection)
        finally:
            admin.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))


if __name__ == "__main__":
    if given := os.environ.get("TASKLIB_TEST_DATABASE_URL"):
        print(_regenerate(given), end="")
    else:
        from tasklib.embedded import EmbeddedPostgres

        with EmbeddedPostgres() as server:
            print(_regenerate(server.url()), end="")
