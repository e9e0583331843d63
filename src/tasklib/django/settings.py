"""Where the configuration comes from: `DATABASES` and the setting `TASKLIB`.

TASKLIB = {"DATABASE": "default", "SCHEMA": "jobs", "MAX_RETRIES": 5}
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields
from functools import cache
from typing import Any

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, connections
from django.db.utils import ConnectionDoesNotExist
from psycopg import pq
from psycopg.conninfo import make_conninfo

from tasklib.config import Config
from tasklib.errors import ConfigError
from tasklib.tasks.options import did_you_mean

_ALIAS = "DATABASE"
_NOT_HERE = "database_url"
_URLS = ("TASKLIB_DATABASE_URL", "DATABASE_URL")


def alias() -> str:
    """The database of DATABASES that has TaskLib's tables."""
    return str(_given().get(_ALIAS, DEFAULT_DB_ALIAS))


def config() -> Config:
    """The configuration as it is now: Django's tests change the database while the program runs.

    The setting TASKLIB counts before the variables TASKLIB_..., and DATABASES before both.
    """
    environ = {name: value for name, value in os.environ.items() if name not in _URLS}
    given = _fields(_given())
    if given.get("shards") or given.get("shards_file") or environ.get("TASKLIB_SHARDS_FILE"):
        raise ConfigError(
            "in Django, TaskLib submits on Django's own connection, which leads to one database: it has no shards. "
            "For tasks over shards, make a client beside it: tasklib.Client(Config(shards_file=...))."
        )
    return Config.from_env(environ, database_url=_conninfo(alias()), **given)


def table(name: str) -> str:
    """The name of one of TaskLib's tables for Django, which knows no schemas: it puts quotes around it."""
    schema = _given().get("SCHEMA") or os.environ.get("TASKLIB_SCHEMA")
    return f'{schema}"."{name}' if schema else name


def require_postgresql(name: str) -> Any:
    """The connection of this alias; ConfigError if TaskLib can't use it."""
    setting = f"DATABASES[{name!r}]"
    try:
        connection = connections[name]
    except ConnectionDoesNotExist:
        raise ConfigError(f"there is no {setting}, which TASKLIB = {{'{_ALIAS}': {name!r}}} names.") from None
    if connection.vendor != "postgresql":
        raise ConfigError(
            f"TaskLib needs PostgreSQL, and {setting} has the engine {connection.settings_dict['ENGINE']}. Set it to "
            f"django.db.backends.postgresql, or name another entry: TASKLIB = {{'{_ALIAS}': '...'}}."
        )
    from django.db.backends.postgresql.psycopg_any import is_psycopg3

    if not is_psycopg3:
        raise ConfigError(f"{setting} uses psycopg2, and TaskLib needs psycopg 3: pip install 'psycopg[binary]>=3.2'.")
    return connection


def _given() -> Mapping[str, Any]:
    given = getattr(settings, "TASKLIB", {})
    if not isinstance(given, Mapping):
        raise ConfigError(f"the setting TASKLIB must be a dictionary, not {given!r}.")
    return given


def _fields(given: Mapping[str, Any]) -> dict[str, Any]:
    known = {field.name.upper(): field.name for field in fields(Config) if field.name != _NOT_HERE}
    for name in given:
        if name != _ALIAS and name not in known:
            hint = " The database's address is in DATABASES." if str(name).lower() == _NOT_HERE else ""
            raise ConfigError(
                f"the setting TASKLIB has no entry {name!r}.{did_you_mean(str(name), [_ALIAS, *known])}{hint}"
            )
    return {known[name]: value for name, value in given.items() if name != _ALIAS}


def _conninfo(name: str) -> str:
    """What psycopg is given by Django, as far as it is meant for libpq."""
    connection = require_postgresql(name)
    given = {key: value for key, value in connection.get_connection_params().items() if key in _libpq_keywords()}
    if role := connection.settings_dict.get("OPTIONS", {}).get("assume_role"):
        escaped = role.replace("\\", r"\\").replace(" ", r"\ ")
        given["options"] = f"{given.get('options') or ''} -c role={escaped}".strip()
    return make_conninfo("", **given)


@cache
def _libpq_keywords() -> frozenset[str]:
    return frozenset(option.keyword.decode() for option in pq.Conninfo.get_defaults())
