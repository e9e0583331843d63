"""What the doctor finds on the mode to the database."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tasklib import Config
from tasklib.doctor import connectivity
from tasklib.doctor.findings import Severity
from tasklib.testing.databases import with_database
from tests.doctor.conftest import Look
from tests.pgbouncer import PROGRAM, Pooler, pgbouncer

pytestmark = pytest.mark.long

needs_pgbouncer = pytest.mark.skipif(PROGRAM is None, reason="PgBouncer is not installed")


@pytest.fixture
def through(server_url: str, config: Config) -> Iterator[Config]:
    """The mode through PgBouncer in transaction mode."""
    with pgbouncer(server_url) as pooler:
        yield config.with_changes(database_url=_same_database(pooler, config))


def _same_database(pooler: Pooler, config: Config) -> str:
    return with_database(pooler.url(), config.database_url.rpartition("/")[2])


@pytest.mark.direct(reason="it is about a mode without a pooler")
def test_a_direct_way_on_which_notifications_arrive(look: Look) -> None:
    assert look("pooler")["pooler"].severity is Severity.OK
    assert look("notifications")["listen"].details["seconds"] < connectivity.PATIENCE_SECONDS


def test_polling_only_is_worth_a_note(look: Look, config: Config) -> None:
    assert look("notifications", config.with_changes(listen=False))["listen"].severity is Severity.NOTE


def test_notifications_that_never_arrive(
    look: Look, config: Config, empty_database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connectivity, "PATIENCE_SECONDS", 0.5)
    astray = config.with_changes(listen_database_url=empty_database_url)
    finding = look("notifications", astray)["listen"]
    assert finding.severity is Severity.WARNING
    assert "did not arrive" in finding.seen


@pytest.mark.direct(reason="it has a pooler of its own")
@needs_pgbouncer
def test_prepared_statements_and_listen_through_a_transaction_pooler(
    look: Look, config: Config, through: Config
) -> None:
    finding = look("pooler", through)["pooler"]
    assert (finding.severity, finding.details["mode"]) == (Severity.CRITICAL, "transaction")
    assert "TASKLIB_PREPARED_STATEMENTS=false" in finding.action
    fitting = through.with_changes(prepared_statements=False)
    assert look("pooler", fitting)["pooler"].severity is Severity.NOTE
    assert "TASKLIB_LISTEN_DATABASE_URL" in look("notifications", fitting)["listen"].action
    listening = fitting.with_changes(listen_database_url=config.database_url)
    assert look("notifications", listening)["listen"].severity is Severity.OK


@pytest.mark.direct(reason="it has a pooler of its own")
@needs_pgbouncer
def test_a_session_pooler_that_refuses_the_settings_of_workers(look: Look, server_url: str, config: Config) -> None:
    with pgbouncer(server_url, pool_mode="session") as pooler:
        through = config.with_changes(database_url=_same_database(pooler, config))
        finding = look("pooler", through)["pooler"]
        assert (finding.severity, finding.details["mode"]) == (Severity.CRITICAL, "session")
        assert "unsupported startup parameter" in finding.seen
        assert look("pooler", through.with_changes(prepared_statements=False))["pooler"].severity is Severity.NOTE
