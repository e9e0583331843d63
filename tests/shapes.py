"""Databases of odd shape: settings of the role or the database that a program never asked for, as others have them.

Each is a list of statements; `{database}` and `{role}` are its names.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
from psycopg.conninfo import make_conninfo

SETTINGS = {
    "short lock_timeout": {"lock_timeout": "1ms"},
    "short statement_timeout": {"statement_timeout": "1ms"},
    "short idle timeouts": {"idle_in_transaction_session_timeout": "1ms"},
    "SERIALIZABLE": {"default_transaction_isolation": "serializable"},
    "REPEATABLE READ": {"default_transaction_isolation": "repeatable read"},
    "German dates": {"datestyle": "German, DMY"},
    "SQL dates": {"datestyle": "SQL, MDY", "intervalstyle": "iso_8601"},
    "far time zone": {"timezone": "Pacific/Chatham"},
    "LATIN1 client": {"client_encoding": "LATIN1"},
    "JIT always": {"jit": "on", "jit_above_cost": "0", "jit_inline_above_cost": "0", "jit_optimize_above_cost": "0"},
    "odd plans": {"enable_indexscan": "off", "plan_cache_mode": "force_custom_plan", "enable_nestloop": "off"},
    "other strings": {"bytea_output": "escape", "extra_float_digits": "-5", "array_nulls": "off"},
}


@contextmanager
def role_with(database_url: str, settings: dict[str, str]) -> Iterator[str]:
    """The URL of this database for a new superuser with these settings."""
    with psycopg.connect(database_url, autocommit=True) as db:
        role = f"odd_{db.info.backend_pid}"
        db.execute(f"CREATE ROLE {role} SUPERUSER LOGIN PASSWORD 'odd'".encode())
        try:
            for name, value in settings.items():
                db.execute(f"ALTER ROLE {role} SET {name} = '{value}'".encode())
            yield make_conninfo(database_url, user=role, password="odd")
        finally:
            db.execute(f"DROP ROLE {role}".encode())
