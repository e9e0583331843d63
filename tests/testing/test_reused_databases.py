"""A database that is used again is as good as a new one, or is not used again."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.migrations import check
from tasklib.testing.reused_databases import ReusedDatabases


@pytest.fixture
def reused(server_url: str, template_database: str) -> Iterator[ReusedDatabases]:
    with closing(ReusedDatabases(server_url, template_database)) as made:
        if not made._may_empty:
            pytest.skip("this user may not empty the audit, so each test gets a new copy")
        yield made


def _oid(url: str) -> int:
    with psycopg.connect(url) as connection:
        found = connection.execute("SELECT oid FROM pg_database WHERE datname = current_database()").fetchone()
        assert found is not None
        return int(found[0])


def test_it_comes_back_under_another_name_with_the_rows_of_the_template(reused: ReusedDatabases) -> None:
    with reused.lend() as first, Client(Config(first)) as client:
        used = _oid(first)
        client.submit_task("gone", registered_elsewhere=True)
        client.pause(queue="mail")  # audited: rows that can't be deleted
        with psycopg.connect(first) as connection:
            before = connection.execute("SELECT settings::text FROM settings").fetchone()
            connection.execute("UPDATE settings SET promote_to_high_after_seconds = 7")
    with reused.lend() as second, psycopg.connect(second) as connection:
        assert (_oid(second), second != first) == (used, True)
        for table in ("tasks", "audit", "pauses"):
            assert connection.execute(f"SELECT count(*) FROM {table}").fetchone() == (0,)
        assert connection.execute("SELECT settings::text FROM settings").fetchone() == before
        check(Config(second))


def test_what_an_earlier_test_left_connected_is_cut_off(reused: ReusedDatabases) -> None:
    with reused.lend() as url:
        left_open = psycopg.connect(url)
    with pytest.raises(psycopg.OperationalError):
        left_open.execute("SELECT 1")
    with pytest.raises(psycopg.OperationalError):
        psycopg.connect(url)


@pytest.mark.parametrize(
    "change",
    [
        "CREATE TABLE extra (id int)",
        "ALTER TABLE tasks ADD COLUMN extra int",
        "ALTER TABLE tasks DISABLE TRIGGER ALL",
        "ALTER TABLE pauses SET (autovacuum_enabled = off)",
        "ANALYZE settings",
        "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET timezone = ''Asia/Tokyo''', current_database()); END $$",
    ],
)
def test_one_whose_schema_settings_or_statistics_were_changed_is_not_used_again(
    reused: ReusedDatabases, change: str
) -> None:
    with reused.lend() as first:
        used = _oid(first)
        with psycopg.connect(first, autocommit=True) as connection:
            connection.execute(change)
    with reused.lend() as second:
        assert _oid(second) != used
