"""What `explain` says of a limit that is full: when its next place is expected, as far as that is known."""

from __future__ import annotations

import psycopg
import pytest

from tasklib import Client, Config
from tests.doctor.test_limits import hold
from tests.store.test_limited_claim import lane, set_limit


@pytest.fixture(autouse=True)
def _no_stats(db: psycopg.Connection) -> None:
    db.execute("DELETE FROM stats")


def explained(config: Config, db: psycopg.Connection) -> tuple[str, object]:
    insert = f"INSERT INTO tasks (name, lane) VALUES ('charge', {lane('lstripe=')}) RETURNING id"
    row = db.execute(insert.encode()).fetchone()
    assert row is not None
    with Client(config) as client:
        reasons = client.explain_task(row[0]).reasons
    (reason,) = [reason for reason in reasons if reason.code == "limit_reached"]
    return reason.sentence, reason.details.get("seconds")


def completed(db: psycopg.Connection, name: str, count: int, seconds: float) -> None:
    """So many tasks of a name took so long in all, a minute ago."""
    db.execute(
        "INSERT INTO stats (span, start, name, queue, level, outcome, reason, count, seconds, waited, buckets, waits) "
        "VALUES (60, date_trunc('minute', now()), %s, 'default', 'medium', 'completed', '', %s, %s, 0, '{}', '{}')",
        [name, count, seconds],
    )


def test_the_next_place_is_expected_by_how_long_such_tasks_took(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=2)
    hold(db, "stripe", "100 seconds")
    hold(db, "stripe", "40 minutes")
    completed(db, "charge", 10, 36_000)  # an hour each
    sentence, seconds = explained(config, db)
    assert sentence.startswith("The limit 'stripe' is reached: 2 of 2 tasks run. By how long such tasks took")
    assert isinstance(seconds, float)
    assert 600 < seconds <= 1200  # of the one that began first


def test_a_holder_that_is_late_ends_any_moment(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=1)
    hold(db, "stripe", "40 minutes")
    completed(db, "charge", 10, 10)
    sentence, seconds = explained(config, db)
    assert sentence.endswith("the first of them ends any moment.")
    assert seconds == 0


@pytest.mark.parametrize("others", [False, True])
def test_without_completed_tasks_of_its_name_the_time_is_not_known(
    config: Config, db: psycopg.Connection, others: bool
) -> None:
    set_limit(db, "stripe", max_running=1)
    hold(db, "stripe", "40 minutes")
    if others:
        completed(db, "refund", 10, 10)
    sentence, seconds = explained(config, db)
    assert sentence.endswith("When the first of them ends is not known.")
    assert seconds is None


def test_the_end_of_a_block_is_not_known(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=1)
    hold(db, "stripe", "1 minute")
    completed(db, "charge", 10, 36_000)
    db.execute("UPDATE places SET block = 1")
    assert explained(config, db)[1] is None


def test_a_limit_of_none_at_a_time_says_so(config: Config, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=0)
    assert explained(config, db)[0] == "The limit 'stripe' lets no task begin."
