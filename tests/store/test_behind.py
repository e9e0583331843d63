"""Since when a queue is behind: from the leader's counts, and never more precisely than they say."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.store import behind, fleet, maintenance
from tasklib.store.behind import Look

NOW = datetime(2026, 5, 4, 14, 30, tzinfo=UTC)


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.close()


def counts(*ages: float, until: int = 1, each: int = 1) -> list[Look]:
    """One count for each age, `each` minutes apart, the last one `until` minutes ago."""
    start = NOW - timedelta(minutes=until + each * (len(ages) - 1))
    return [(start + timedelta(minutes=each * n), age) for n, age in enumerate(ages)]


def test_it_is_behind_since_the_oldest_task_of_the_first_bad_count_exceeded_the_bound() -> None:
    found = behind.since("mail", counts(0, 5, 90, 150, 210), 270, 60, NOW)
    assert found.since == NOW - timedelta(minutes=3, seconds=30)
    assert not found.or_earlier


def test_it_is_not_behind_since_before_the_last_count_at_which_it_kept_up() -> None:
    # A task that was replayed has waited for an hour at once; a minute before, nothing had.
    found = behind.since("mail", counts(0, 3600), 3660, 60, NOW)
    assert (found.since, found.or_earlier) == (NOW - timedelta(minutes=2), False)


def test_a_short_recovery_begins_anew() -> None:
    found = behind.since("mail", counts(500, 600, 10, 70, 130), 190, 60, NOW)
    assert found.since == NOW - timedelta(minutes=2, seconds=10)


def test_what_no_count_has_seen_yet_is_computed_from_the_oldest_task() -> None:
    found = behind.since("mail", counts(0, 0, 30), 75, 60, NOW)
    assert (found.since, found.or_earlier) == (NOW - timedelta(seconds=15), False)


@pytest.mark.parametrize(
    "seen",
    [
        [],
        counts(300, 360, 420),  # the counts begin while it is behind already
        [*counts(0, until=60), *counts(300, 360, 420)],  # no leader counted for an hour
    ],
)
def test_it_says_so_where_the_counts_do_not_reach_back(seen: list[Look]) -> None:
    assert behind.since("mail", seen, 480, 60, NOW).or_earlier


def test_only_those_over_their_own_bound_are_late_the_oldest_first() -> None:
    ages = {"mail": 61.0, "media": 900.0, "bulk": 3000.0, "fast": 12.0}
    assert list(behind.late(ages, {"bulk": 3600.0, "fast": 10.0})) == ["media", "mail", "fast"]


def test_the_leader_counts_by_queue_and_by_name_and_says_when_nothing_waited(
    database: Database, db: psycopg.Connection
) -> None:
    term = database.run(fleet.lead("leader", 600))
    assert term is not None
    db.execute(
        """INSERT INTO tasks (name, queue, scheduled_at)
           VALUES ('a', 'mail', now() - interval '90 s'), ('b', 'mail', now() - interval '30 s')"""
    )
    database.run(maintenance.take_snapshot(term, 1000))
    database.run(maintenance.remember_names(term, 1000, 100))
    by_queue = database.run(behind.looks("queue", ["mail", "other"]))
    assert {queue: round(found[-1][1]) for queue, found in by_queue.items()} == {"mail": 90, "other": 0}
    by_name = database.run(behind.looks("name", ["a", "b", "c"]))
    assert {name: round(found[-1][1]) for name, found in by_name.items()} == {"a": 90, "b": 30, "c": 0}
    assert database.run(behind.looks("queue", [])) == {}
