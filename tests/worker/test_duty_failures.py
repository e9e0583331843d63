"""An error in what a worker does beside its tasks is reported and counted; the worker goes on and tries again."""

from __future__ import annotations

import psycopg
import pytest

from tasklib import Client, Config, task
from tasklib.events import DutyFailed, Events, LeadershipTaken, WorkerRenewed
from tasklib.maintenance import stats_reporter
from tasklib.maintenance.calendar import duties_of
from tasklib.maintenance.failures import Failures
from tasklib.metrics import families
from tasklib.stats import StatsCollector
from tests.eventually import soon
from tests.worker.watching import working

QUICK = {"sweep_interval_seconds": 0.05, "upkeep_interval_seconds": 0.05, "leader_lease_seconds": 1.0}

BREAK = """
CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'out of order'; END $$;
CREATE TRIGGER broken BEFORE INSERT OR UPDATE OR DELETE ON {} FOR EACH STATEMENT EXECUTE FUNCTION refuse();
"""


def counted(db: psycopg.Connection, duty: str) -> int:
    told = "SELECT outcome, reason, count FROM stats_deltas UNION ALL SELECT outcome, reason, count FROM stats"
    query = f"SELECT COALESCE(sum(count), 0)::int FROM ({told}) AS told WHERE outcome = 'duty_failed' AND reason = %s"
    row = db.execute(query.encode(), (duty,)).fetchone()
    assert row is not None
    return int(row[0])


@pytest.mark.parametrize(
    ("duty", "table"),
    [("snapshot", "snapshots"), ("stats", "stats"), ("election", "leadership"), ("stats", "stats_deltas")],
)
async def test_duty_that_fails_is_reported_counted_and_repeated_and_the_worker_goes_on(
    config: Config, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch, duty: str, table: str
) -> None:
    monkeypatch.setattr(stats_reporter, "_REPORT_SECONDS", 0.05)

    @task
    async def ping() -> str:
        return "pong"

    async with working(config.with_changes(**QUICK)) as watched:
        await watched.until(LeadershipTaken)
        db.execute(BREAK.format(table).encode())
        with Client(config) as client:
            for _ in range(2):
                await watched.ended(client.submit_task(ping), "completed")
        failed = await watched.until(DutyFailed, lambda e: e.duty == duty, count=2)
        assert "out of order" in failed.reason
        db.execute(f"DROP TRIGGER broken ON {table}".encode())
        await soon(lambda: counted(db, duty) >= 2)


async def test_worker_declared_dead_registers_anew_though_the_database_refuses_at_first(
    config: Config, db: psycopg.Connection
) -> None:
    quick = config.with_changes(heartbeat_interval_seconds=0.1, heartbeat_timeout_seconds=60)
    async with working(quick) as watched:
        db.execute("CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE 'out of order'; END $$")
        db.execute("CREATE TRIGGER broken BEFORE INSERT ON worker_registrations EXECUTE FUNCTION refuse()")
        db.execute("UPDATE workers SET reported_status = 'dead'")
        await watched.until(DutyFailed, lambda e: e.duty == "registration", count=2)
        db.execute("DROP TRIGGER broken ON worker_registrations")
        await watched.until(WorkerRenewed)


def test_failed_duty_is_logged_where_the_events_have_no_subscriber(caplog: pytest.LogCaptureFixture) -> None:
    events = Events()
    with Failures(events, StatsCollector()).survived("snapshot"):
        raise RuntimeError("out of order")
    assert "out of order" in caplog.text
    caplog.clear()
    events.subscribe(lambda event: None)
    events.emit(DutyFailed("snapshot", "out of order"))
    assert not caplog.text


async def test_fleet_of_a_database_that_publishes_all_its_tables_keeps_counting(
    config: Config, db: psycopg.Connection
) -> None:
    db.execute("CREATE PUBLICATION everything FOR ALL TABLES")
    db.execute("INSERT INTO stats_deltas (outcome, count) VALUES ('completed', 7)")
    async with working(config.with_changes(**QUICK)) as watched:
        total = "SELECT count FROM stats WHERE span = 0 AND outcome = 'completed'"
        await soon(lambda: db.execute(total).fetchone() == (7,))
        assert not watched.all(DutyFailed)


def test_every_table_has_a_primary_key(db: psycopg.Connection) -> None:
    without = """
        SELECT relname FROM pg_class
        WHERE relkind = 'r' AND relnamespace = current_schema()::regnamespace
          AND NOT EXISTS (SELECT FROM pg_index WHERE indrelid = pg_class.oid AND indisprimary)
    """
    assert db.execute(without).fetchall() == []


def test_every_duty_has_its_series_in_the_metrics(config: Config) -> None:
    assert {duty.name for duty in duties_of(config)} <= set(families.DUTIES)
