"""What the doctor finds in a server that is badly set up."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import psycopg
import pytest

from tasklib import Config
from tasklib.doctor import clock, server, snapshots
from tasklib.doctor.findings import Severity
from tasklib.embedded import EmbeddedPostgres
from tasklib.testing import databases
from tests.doctor.conftest import Look

SETTINGS = {
    "autovacuum": "off",
    "autovacuum_vacuum_cost_limit": "10",
    "autovacuum_vacuum_cost_delay": "50",
    "autovacuum_naptime": "1000",
    "max_connections": "13",
    "max_prepared_transactions": "2",
    "synchronous_commit": "off",
    "superuser_reserved_connections": "3",
    "max_wal_senders": "2",
    "shared_buffers": "16MB",
}


@pytest.fixture(scope="module")
def bad_url() -> Iterator[str]:
    with EmbeddedPostgres(settings=SETTINGS) as postgres, databases.template(postgres.url()) as name:
        yield postgres.url(name)


@pytest.fixture
def bad(bad_url: str) -> Config:
    return Config(bad_url)


def test_autovacuum_that_is_off_or_slow(look: Look, bad: Config) -> None:
    found = look("autovacuum", bad)
    assert found["autovacuum_off"].severity is Severity.CRITICAL
    assert found["autovacuum_slow"].severity is Severity.WARNING
    assert look("autovacuum")["autovacuum"].severity is Severity.OK


def test_a_server_that_forgets(look: Look, bad: Config) -> None:
    found = look("durability", bad)
    assert found["not_durable"].details["setting"] == "synchronous_commit"
    assert "ALTER SYSTEM SET synchronous_commit = on" in found["not_durable"].action


def test_a_server_that_may_be_corrupt_after_a_crash(look: Look, bad: Config) -> None:
    # A temporary server has no disk to trust.
    safe = bad.with_changes(database_url=f"{bad.database_url}?options=-c%20synchronous_commit%3Don")
    found = look("durability", safe)
    assert (found["not_durable"].severity, found["not_durable"].details["setting"]) == (
        Severity.CRITICAL,
        "full_page_writes",
    )


def test_connections_that_run_out(look: Look, bad: Config) -> None:
    assert look("connections", bad)["connections"].severity is Severity.OK
    with ExitStack() as stack:
        for _ in range(6):
            stack.enter_context(psycopg.connect(bad.database_url))
        finding = look("connections", bad)["connections"]
    assert finding.severity is Severity.WARNING
    assert finding.details["most"] == 10


def test_transaction_ids_that_run_out(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look("transaction ids")["transaction_ids"].severity is Severity.OK
    monkeypatch.setattr(server, "WARN_AGE", 2)
    assert look("transaction ids")["transaction_ids"].severity is Severity.WARNING
    monkeypatch.setattr(server, "CRITICAL_AGE", 2)
    assert look("transaction ids")["transaction_ids"].severity is Severity.CRITICAL


@pytest.mark.direct(reason="a pooler hides the server's process")
def test_an_old_snapshot_and_who_holds_it(look: Look, config: Config, monkeypatch: pytest.MonkeyPatch) -> None:
    with psycopg.connect(config.database_url, application_name="a report") as holder:
        holder.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        holder.execute("SELECT count(*) FROM tasks")
        assert look("old snapshots")["old_snapshot"].severity is Severity.OK  # it is young
        monkeypatch.setattr(snapshots, "WARN_SECONDS", 0.0)
        finding = look("old snapshots")["old_snapshot"]
        assert (finding.severity, finding.details["pid"]) == (Severity.WARNING, holder.info.backend_pid)
        assert "a report" in finding.seen
        monkeypatch.setattr(snapshots, "CRITICAL_SECONDS", 0.0)
        assert look("old snapshots")["old_snapshot"].severity is Severity.CRITICAL
    assert look("old snapshots")["old_snapshot"].severity is Severity.OK


def test_a_transaction_that_wrote_and_went_quiet_holds_one_too(
    look: Look, config: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "WARN_SECONDS", 0.0)
    with psycopg.connect(config.database_url) as writer:
        writer.execute("INSERT INTO tasks (name) VALUES ('mail')")
        finding = look("old snapshots")["old_snapshot"]
        assert "idle in transaction" in finding.seen


def test_a_prepared_transaction_and_a_slot_without_a_reader(
    look: Look, bad: Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(snapshots, "WARN_SECONDS", 0.0)
    with psycopg.connect(bad.database_url, autocommit=True) as db:
        db.execute("SELECT pg_create_physical_replication_slot('forgotten', true)")
        db.execute("BEGIN")
        db.execute("INSERT INTO tasks (name) VALUES ('mail')")
        db.execute("PREPARE TRANSACTION 'half done'")
        found = look("old snapshots", bad)
        assert "ROLLBACK PREPARED 'half done'" in found["prepared_transaction"].action
        db.execute("ROLLBACK PREPARED 'half done'")
        assert found["replication_slot"].severity is Severity.WARNING
        db.execute(found["replication_slot"].action.partition("or: ")[2].encode())
        assert look("old snapshots", bad).keys() == {"old_snapshot"}


def test_clocks_that_disagree(look: Look, monkeypatch: pytest.MonkeyPatch) -> None:
    assert look("clocks")["clock_skew"].severity is Severity.OK
    now = clock.time.time
    monkeypatch.setattr(clock.time, "time", lambda: now() - 3600)
    finding = look("clocks")["clock_skew"]
    assert finding.severity is Severity.WARNING
    assert "1 h behind" in finding.seen
