"""LISTEN counts only once a notification has arrived: it succeeds in places where none ever will."""

from __future__ import annotations

import psycopg
import pytest

from tasklib import AsyncClient, Config, task
from tasklib.backends.postgres import notifier
from tasklib.backends.postgres.backend import PostgresBackend
from tasklib.events import DatabaseLost, NotificationsMissing, TaskEnded
from tests.worker.watching import working


@pytest.fixture
def short_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(notifier, "_PROBE_SECONDS", 0.05)
    monkeypatch.setattr(notifier, "_WATCHDOG_SECONDS", 1000.0)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.direct("its LISTEN leads to another database")
async def test_worker_that_hears_nothing_says_so_and_polls(config: Config, empty_database_url: str) -> None:
    @task
    async def work() -> None: ...

    elsewhere = config.with_changes(listen_database_url=empty_database_url, poll_interval_seconds=0.05)
    async with AsyncClient(config) as client, working(elsewhere) as watched:
        missing = await watched.until(NotificationsMissing)
        assert "did not arrive within" in missing.reason
        assert missing.poll_seconds == 0.05
        assert isinstance(watched.worker._backend, PostgresBackend)
        assert not watched.worker._backend.notifier.is_listening
        await client.submit_task(work)
        await watched.until(TaskEnded)
        assert not watched.worker._claimer.claims.sleep.is_announced, "no producer may rely on waking it"
        assert not watched.all(DatabaseLost)


@pytest.mark.usefixtures("short_patience")
@pytest.mark.direct("its LISTEN leads to another database")
async def test_notification_that_arrives_late_ends_the_polling(config: Config, empty_database_url: str) -> None:
    async with working(config.with_changes(listen_database_url=empty_database_url)) as watched:
        await watched.until(NotificationsMissing)
        assert isinstance(watched.worker._backend, PostgresBackend)
        found = watched.worker._backend.notifier
        with psycopg.connect(empty_database_url, autocommit=True) as there:
            there.execute("SELECT pg_notify(%s, %s)", (found.channel, found.channel))
        await found.listening.wait()


async def test_worker_that_hears_itself_says_nothing(config: Config) -> None:
    async with working(config) as watched:
        await watched.asleep()
        assert not watched.all(NotificationsMissing)
