"""Configuration: every field is checked when it is read, by a sentence that names it; a password is never shown."""

from __future__ import annotations

import ast
import inspect
import math
import re
from dataclasses import FrozenInstanceError, fields
from typing import Any

import pytest

import tasklib
from tasklib import Client, Config, config
from tasklib.addresses import MAX_SCHEMA_BYTES
from tasklib.config import Level, Retention
from tasklib.db.connect import address, conninfo, unavailable
from tasklib.errors import ConfigError

URL = "postgresql://app@db.example:5433/shop"
NUMBERS = [f.name for f in fields(Config) if str(f.type).startswith(("int", "float"))]
WHOLE_NUMBERS = [f.name for f in fields(Config) if str(f.type).startswith("int")]
FLAGS = [f.name for f in fields(Config) if f.type == "bool"]
TEXTS = [f.name for f in fields(Config) if f.type in ("str", "str | None") and not f.name.endswith("database_url")]


def made(**changes: Any) -> Config:
    return Config(URL, **changes)


# ---- the fields ----


def test_every_field_has_its_sentence() -> None:
    (definition,) = (
        node
        for node in ast.parse(inspect.getsource(config)).body
        if isinstance(node, ast.ClassDef) and node.name == "Config"
    )
    sentences = {
        field.target.id: below.value.value
        for field, below in zip(definition.body, definition.body[1:], strict=False)
        if isinstance(field, ast.AnnAssign)
        and isinstance(field.target, ast.Name)
        and isinstance(below, ast.Expr)
        and isinstance(below.value, ast.Constant)
        and isinstance(below.value.value, str)
    }
    assert [f.name for f in fields(Config) if not sentences.get(f.name, "").endswith(".")] == []


def test_the_defaults_are_those_of_the_design() -> None:
    c = made()
    assert (c.schema, c.max_retries, c.base_retry_delay_seconds, c.retry_backoff_multiplier) == (None, 3, 5, 2)
    assert (c.default_task_timeout_seconds, c.lock_timeout_seconds) == (None, 600)
    assert (c.promote_to_medium_after_seconds, c.promote_to_high_after_seconds) == (600, 1200)
    assert c.idempotency_window_seconds == 86400
    assert c.levels == {"high": Level(100, 5, 300), "medium": Level(0, 3, 600), "low": Level(-10, 2, 900)}


def test_a_config_cant_be_changed_but_copied_with_changes() -> None:
    c = made(max_retries=5)
    with pytest.raises(FrozenInstanceError):
        c.max_retries = 6  # type: ignore[misc]
    changed = c.with_changes(schema="jobs")
    assert (changed.schema, changed.max_retries, c.schema) == ("jobs", 5, None)
    with pytest.raises(ConfigError, match="max_retries must be at least 0, not -1"):
        c.with_changes(max_retries=-1)


def test_the_channel_is_named_after_the_schema() -> None:
    assert made().channel is None
    assert made(schema="jobs").channel == "tasklib_jobs"
    assert len(str(made(schema="x" * MAX_SCHEMA_BYTES).channel).encode()) == 63, "PostgreSQL cuts longer ones"


# ---- what is refused ----


@pytest.mark.parametrize("name", NUMBERS)
@pytest.mark.parametrize("wrong", ["5", True, [], -1, 2**31, math.nan, math.inf], ids=repr)
def test_a_number_that_cant_be_is_refused_by_name(name: str, wrong: Any) -> None:
    with pytest.raises(
        ConfigError,
        match=rf"^{name} must be (a (whole )?number( or None)?|at least \d+|more than \d+|below [\d,]+), "
        rf"not {re.escape(repr(wrong))}\.$",
    ):
        made(**{name: wrong})


@pytest.mark.parametrize("name", WHOLE_NUMBERS)
def test_a_whole_number_is_whole(name: str) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} must be a whole number( or None)?, not 1500\.5\.$"):
        made(**{name: 1500.5})


@pytest.mark.parametrize("name", FLAGS)
@pytest.mark.parametrize("wrong", ["true", 1, None])
def test_a_flag_is_true_or_false(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} must be True or False, not {wrong!r}\.$"):
        made(**{name: wrong})


@pytest.mark.parametrize("name", TEXTS)
@pytest.mark.parametrize("wrong", [5, b"x", ["x"]], ids=repr)
def test_a_text_is_text(name: str, wrong: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^{name} must be a string( or None)?, not {re.escape(repr(wrong))}\.$"):
        made(**{name: wrong})


@pytest.mark.parametrize("wrong", [5, b"x", ["x"]], ids=repr)
def test_a_payload_store_is_a_place_or_has_all_methods_of_one(wrong: Any) -> None:
    with pytest.raises(ConfigError, match=rf"^payload_store must be a directory.*, not {re.escape(repr(wrong))}\.$"):
        made(payload_store=wrong)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"retry_backoff_multiplier": 0.9}, "retry_backoff_multiplier must be at least 1, not 0.9."),
        ({"retry_jitter": 1.1}, "retry_jitter is a fraction and must be at most 1, not 1.1."),
        ({"default_task_timeout_seconds": 0}, "default_task_timeout_seconds must be more than 0, not 0."),
        ({"lock_timeout_seconds": 0.5}, "lock_timeout_seconds must be at least 1, not 0.5."),
        ({"poll_interval_seconds": 0}, "poll_interval_seconds must be more than 0, not 0."),
        ({"crash_limit": 0}, "crash_limit must be at least 1, not 0."),
        ({"max_connections": 0}, "max_connections must be at least 1, not 0."),
        ({"max_error_bytes": 1023}, "max_error_bytes must be at least 1024, not 1023."),
        ({"schema": ""}, "schema must be a name of 1 to 55 bytes, not ''."),
        ({"schema": "x" * 56}, f"schema must be a name of 1 to 55 bytes, not '{'x' * 56}'."),
        ({"schema": "é" * 28}, f"schema must be a name of 1 to 55 bytes, not '{'é' * 28}'."),
        ({"schema": "a\x00"}, "schema must be a name of 1 to 55 bytes, not 'a\\x00'."),
        ({"schema": "\ud800"}, "schema must be a name of 1 to 55 bytes, not '\\ud800'."),
        ({"actor": " "}, "actor must be a name of 1 to 200 printable characters, not ' '."),
        ({"actor": "a\nb"}, "actor must be a name of 1 to 200 printable characters, not 'a\\nb'."),
        ({"actor": "x" * 201}, f"actor must be a name of 1 to 200 printable characters, not '{'x' * 201}'."),
        ({"levels": ["high"]}, "levels must map names to Level(priority, max_retries, timeout_seconds), not ['high']."),
        (
            {"levels": {"high": 100}},
            "levels must map names to Level(priority, max_retries, timeout_seconds), not {'high': 100}.",
        ),
        ({"levels": {"max": Level(101, 1, 1)}}, "level 'max' has priority 101; it must be from -10 to 100."),
        (
            {"levels": {"bad": Level(1, -1, 1)}},
            "level 'bad' needs max_retries of at least 0 and a timeout above 0 seconds.",
        ),
        (
            {"levels": {"bad": Level(1, 1, 0)}},
            "level 'bad' needs max_retries of at least 0 and a timeout above 0 seconds.",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_each_bound_is_said(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        made(**changes)


# ---- the address of the database ----


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://app@db/shop",
        "postgres://app@db/shop",
        "postgresql://a,b:5433/shop?target_session_attrs=any",
        "postgresql:///shop?host=/run/postgresql",
        "host=db user=app dbname=shop",
        "service=shop",
        "postgresql://app:p%40ss%2F@db/shop",
        "postgresql://app@[::1]:5432/shop",
    ],
)
def test_any_address_that_libpq_knows_is_taken_as_it_is(url: str) -> None:
    assert Config(url).database_url == url
    assert made(listen_database_url=url).listen_database_url == url


@pytest.mark.parametrize("driver", ["psycopg", "psycopg2", "asyncpg", "psycopg_async"])
def test_the_address_of_sqlalchemy_is_understood(driver: str) -> None:
    assert Config(f" postgresql+{driver}://app@db/shop ").database_url == "postgresql://app@db/shop"


BAD_URLS = [
    ("", "must be a PostgreSQL URL such as postgresql://user@host/db, not an empty string."),
    ("  ", "must be a PostgreSQL URL such as postgresql://user@host/db, not an empty string."),
    (None, "must be a PostgreSQL URL such as postgresql://user@host/db, not a value of type NoneType."),
    (b"postgresql://app:hunter2@db/shop", "must be a PostgreSQL URL such as .*, not a value of type bytes."),
    ("mysql://app:hunter2@db/shop", "starts with mysql://, but TaskLib needs PostgreSQL: postgresql://user@host/db."),
    ("app:hunter2@db/shop", "is not a connection string PostgreSQL understands: missing .* in connection info string."),
    ("postgresql://app:hunter2%zz@db/shop", "is not a connection string PostgreSQL understands: invalid percent-encod"),
    ("postgresql://app:hunter2 x@db/shop", "is not a connection string PostgreSQL understands: "),
    ("host=db password hunter2", "is not a connection string PostgreSQL understands: missing"),
    ("password='hunter2", "is not a connection string PostgreSQL understands: unterminated quoted string"),
    ("postgresql://app@db/shop?hunter2", "is not a connection string PostgreSQL understands: missing key/value"),
    ("postgresql://app@db/shop?hunter2=1", "is not a connection string PostgreSQL understands: invalid URI query"),
    ("postgresql://app:p@hunter2@db/shop", "has an invalid host or port. In a user or password, write @ as"),
    ("postgresql://app:hunter2/x@db/shop", "has an invalid host or port. In a user or password, write @ as"),
    ("postgresql://app:p@hunter2/x@db/shop", "has an invalid host or port. In a user or password, write @ as"),
    ("postgresql://app:1/hunter2@db/shop", "has an invalid host or port. In a user or password, write @ as"),
]


@pytest.mark.parametrize(("url", "message"), BAD_URLS, ids=[str(url) for url, _ in BAD_URLS])
def test_an_address_that_cant_be_is_refused_without_showing_it(url: Any, message: str) -> None:
    pattern = re.escape(message).replace(r"\.\*", ".*")
    with pytest.raises(ConfigError, match=f"^database_url {pattern}") as caught:
        Config(url)
    assert "hunter2" not in str(caught.value)
    assert caught.value.__cause__ is None
    if url is not None:
        with pytest.raises(ConfigError, match=f"^listen_database_url {pattern}") as caught:
            made(listen_database_url=url)
        assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["postgresql://app:hunter2@db:5433/shop", "host=db port=5433 user=app dbname=shop password=hunter2"]
)
def test_a_password_is_in_no_repr_and_no_message(url: str) -> None:
    c = Config(url, listen_database_url=url)
    client = Client(c)
    shown = [repr(c), str(c), repr(client), repr(client.calls), address(url), str(unavailable(url, OSError("no")))]
    assert [text for text in shown if "hunter2" in text] == []
    assert address(url) == "app@db:5433/shop"


@pytest.mark.parametrize("password", ["p@hunter2", "p@hunter2/x", "1/hunter2", "@hunter2", "hunter2@", "h@@unter2/@"])
def test_a_password_with_a_raw_at_sign_is_in_no_address(password: str) -> None:
    url = f"postgresql://app:{password}@db/shop"
    with pytest.raises(ConfigError) as caught:
        Config(url)
    for text in (address(url), str(unavailable(url, OSError("no"))), str(caught.value)):
        assert "unter2" not in text


def test_an_address_is_shown_as_far_as_it_says() -> None:
    assert address("postgresql://") == "the local socket"
    assert address("host=/run/postgresql dbname=shop") == "/run/postgresql/shop"
    assert address("hostaddr=10.0.0.1 port=1") == "10.0.0.1:1"


def test_what_the_address_says_wins_over_our_settings() -> None:
    ours = conninfo(made(connect_timeout_seconds=7.2))
    for setting in ("connect_timeout=8", "keepalives_idle=10", "application_name='tasklib client'"):
        assert setting in ours
    assert "target_session_attrs=read-write" in ours
    theirs = conninfo(Config(f"{URL}?connect_timeout=3&application_name=shop&target_session_attrs=any"))
    for setting in ("connect_timeout=3", "application_name=shop", "target_session_attrs=any"):
        assert setting in theirs


# ---- the environment ----


@pytest.mark.parametrize("raw", ["completed", "completed=soon", "running=3", "=3"])
def test_retention_that_can_not_be_read_is_refused(raw: str) -> None:
    with pytest.raises(ConfigError, match=r"retention|TASKLIB_RETENTION"):
        Config.from_env({"TASKLIB_DATABASE_URL": URL, "TASKLIB_RETENTION": raw})


def test_unknown_way_to_start_children_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"process_start must be one of template, spawn, not 'fork'\."):
        made(process_start="fork")


def test_every_field_but_levels_and_functions_is_read_from_the_environment() -> None:
    samples = {"int": "2000", "float": "2000.5", "bool": "no", "str": "text"}
    environ = {
        "TASKLIB_DATABASE_URL": URL,
        "TASKLIB_LISTEN_DATABASE_URL": URL,
        "TASKLIB_RETRY_JITTER": "0.5",
        "TASKLIB_PROCESS_START": "spawn",
        "TASKLIB_DEPLOYED_AT": "2026-11-16T12:00:00Z",
        "TASKLIB_TRANSACTIONAL": "yes",
        "TASKLIB_BACKPRESSURE": "yes",
        "TASKLIB_HEARTBEAT_INTERVAL_SECONDS": "600",
        "TASKLIB_RETENTION": "completed=30, completed:ping=0.5",
        "TASKLIB_KEYS": f"a:{'A' * 43}=",
        "TASKLIB_PAYLOAD_STORE": "/srv/payloads",
        "TASKLIB_SHARD": "7",
        "TASKLIB_SHARDS_FILE": "",  # tests/test_shards.py: beside an address it is refused
    }
    for f in fields(Config):
        kind = str(f.type).removesuffix(" | None")
        if kind in samples:
            environ.setdefault(f"TASKLIB_{f.name.upper()}", samples[kind])
    read = Config.from_env(environ)
    defaults = made()
    unread = [f.name for f in fields(Config) if getattr(read, f.name) == getattr(defaults, f.name)]
    assert unread == ["database_url", "key_for", "levels", "shards", "shards_file"]
    assert read.retention == (Retention("completed", 30), Retention("completed", 0.5, "ping"))
    assert (read.max_retries, read.poll_interval_seconds, read.listen, read.schema) == (2000, 2000.5, False, "text")


@pytest.mark.parametrize(
    ("raw", "value"),
    [("1", True), ("true", True), ("YES", True), (" on ", True), ("0", False), ("False", False), ("no", False)],
)
def test_a_flag_has_the_usual_spellings(raw: str, value: bool) -> None:
    assert Config.from_env({"TASKLIB_DATABASE_URL": URL, "TASKLIB_LISTEN": raw}).listen is value


@pytest.mark.parametrize(
    ("variable", "raw", "message"),
    [
        ("MAX_RETRIES", "many", "TASKLIB_MAX_RETRIES must be a whole number, not 'many'."),
        ("MAX_RETRIES", "1.5", "TASKLIB_MAX_RETRIES must be a whole number, not '1.5'."),
        ("POLL_INTERVAL_SECONDS", "soon", "TASKLIB_POLL_INTERVAL_SECONDS must be a number, not 'soon'."),
        ("POLL_INTERVAL_SECONDS", "nan", "poll_interval_seconds must be more than 0, not nan."),
        ("LISTEN", "maybe", "TASKLIB_LISTEN must be true or false, not 'maybe'."),
        ("MAX_RETRIES", "-1", "max_retries must be at least 0, not -1."),
        ("SCHEMA", "x" * 60, f"schema must be a name of 1 to 55 bytes, not '{'x' * 60}'."),
    ],
)
def test_a_value_in_the_environment_that_cant_be_is_refused(variable: str, raw: str, message: str) -> None:
    with pytest.raises(ConfigError, match=f"^{re.escape(message)}$"):
        Config.from_env({"TASKLIB_DATABASE_URL": URL, f"TASKLIB_{variable}": raw})


def test_what_is_said_in_the_program_wins_over_the_environment() -> None:
    environ = {"TASKLIB_DATABASE_URL": URL, "TASKLIB_MAX_RETRIES": "7", "TASKLIB_SCHEMA": ""}
    assert Config.from_env(environ).max_retries == 7
    assert Config.from_env(environ, max_retries=0).max_retries == 0
    assert Config.from_env(environ, max_retries=None).max_retries == 7
    assert Config.from_env(environ).schema is None, "an empty variable says nothing"
    assert Config.from_env({}, database_url=URL).database_url == URL


def test_an_environment_without_a_database_says_what_to_set() -> None:
    with pytest.raises(
        ConfigError,
        match=r"^no database is configured\. Set TASKLIB_DATABASE_URL=postgresql://user@host/db, or pass the URL",
    ):
        Config.from_env({})


def test_database_url_of_the_whole_program_is_read_where_ours_is_absent() -> None:
    common = {"DATABASE_URL": "postgresql+asyncpg://app@db/app"}
    assert Config.from_env(common).database_url == "postgresql://app@db/app"
    assert Config.from_env({**common, "TASKLIB_DATABASE_URL": "postgresql://q@db/q"}).database_url.endswith("/q")
    assert Config.from_env(common, database_url="postgresql://x@db/x").database_url.endswith("/x")


def test_database_url_of_another_kind_of_database_is_not_read() -> None:
    with pytest.raises(ConfigError, match="DATABASE_URL is not a PostgreSQL URL"):
        Config.from_env({"DATABASE_URL": "mysql://app@db/app"})
    ours = {"DATABASE_URL": "sqlite:///app.db", "TASKLIB_DATABASE_URL": "postgresql://q@db/q"}
    assert Config.from_env(ours).database_url == "postgresql://q@db/q"


def test_worker_takes_what_it_is_given_then_what_init_got_then_the_environment(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TASKLIB_DATABASE_URL", "postgresql://env@db/env")
    assert tasklib.Worker().config.database_url.endswith("/env")
    given = tasklib.init(Config("postgresql://init@db/init", max_retries=7))
    assert tasklib.Worker().config is given
    assert tasklib.Worker(poll_interval_seconds=5).config.max_retries == 7
    assert tasklib.Worker("postgresql://given@db/given").config.database_url.endswith("/given")
