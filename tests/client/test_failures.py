"""Failures by cause: what broke in a time range, since when, whether it is new, and for whom."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.errors import InvalidOption
from tasklib.store import failures
from tasklib.store.failures import FailureFilter
from tests.client.conftest import Either
from tests.client.test_dead_letters import die, explained, fingerprint
from tests.store.test_claim import rows_read

HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def no_deploys(db: psycopg.Connection) -> None:
    """The tests of this file share a database."""
    db.execute("DELETE FROM deploys")


def waits(
    db: psycopg.Connection,
    error: str,
    *,
    ago: float = 60,
    state: str = "failed",
    before: Sequence[tuple[str, float]] = (),
    **columns: Any,
) -> None:
    """A task whose last attempt failed so many seconds ago; `before`: the errors of earlier attempts, and when."""
    entries = [*before, (error, ago)]
    now = datetime.now(UTC)
    history = [
        {"outcome": "error", "error": e[-500:], "ended_at": (now - timedelta(seconds=s)).isoformat()}
        for e, s in entries
    ]
    values = {
        "name": "send", "tags": "{}", "kwargs": "{}", "queue": "default", **columns, "state": state, "error": error,
        "history": json.dumps(history),
    }  # fmt: skip
    if state == "failed":
        values["next_retry_at"] = now + HOUR
    if state == "completed":
        values |= {"completed_at": now, "error": None}
    marks = ", ".join(["%s"] * len(values))
    db.execute(f"INSERT INTO tasks ({', '.join(values)}) VALUES ({marks})".encode(), list(values.values()))


async def test_attempts_that_are_retried_and_dead_letters_are_one_cause(either: Either, db: psycopg.Connection) -> None:
    die(db, "send", "TimeoutError: 17 s", ago=30)
    waits(db, "TimeoutError: 18 s", before=[("TimeoutError: 19 s", 300)])
    waits(db, "x", state="completed", before=[("TimeoutError: 20 s", 200)])
    report = await either.failures(since=HOUR)
    [cause] = [c for c in report.causes if c.fingerprint == fingerprint(db, "send", "TimeoutError: 1 s")]
    assert (cause.attempts, cause.tasks, cause.dead_letters, cause.retrying) == (4, 3, 1, 1)
    assert (cause.name, cause.error) == ("send", "TimeoutError: 17 s")
    assert sum(cause.counts) == 4
    assert report.attempts == 5, "one of another cause"


async def test_only_attempts_of_the_range_count_and_causes_without_any_are_left_out(
    either: Either, db: psycopg.Connection
) -> None:
    die(db, "send", "Old", ago=7200)
    waits(db, "Both", ago=60, before=[("Both", 7200)])
    [cause] = (await either.failures(since=HOUR)).causes
    assert (cause.error, cause.attempts) == ("Both", 1)
    assert cause.last_seen - cause.first_seen > timedelta(seconds=7000), "first seen before the range"
    until = datetime.now(UTC) - HOUR
    found = await either.failures(since=until - 3 * HOUR, until=until)
    assert {c.error: c.attempts for c in found.causes} == {"Old": 1, "Both": 1}


async def test_for_whom_counts_the_values_of_each_tag_and_argument(either: Either, db: psycopg.Connection) -> None:
    for n in range(5):
        tags = json.dumps({"customer": "acme" if n < 4 else "other", "nested": {"secret": 1}})
        waits(db, "Boom", tags=tags, kwargs=json.dumps({"order": n}))
    report = await either.failures(since=HOUR, values=2)
    argument, tag = sorted(report.fields[report.causes[0].fingerprint], key=lambda f: f.kind)
    assert (tag.key, tag.different, tag.tasks) == ("customer", 2, 5)
    assert [(v.text, v.tasks) for v in tag.values] == [("acme", 4), ("other", 1)]
    assert (argument.kind, argument.key, argument.different) == ("argument", "order", 5)
    assert [v.text for v in argument.values] == ["0", "1"]


async def test_a_cause_is_new_if_it_was_first_seen_after_the_last_deploy(
    either: Either, db: psycopg.Connection
) -> None:
    die(db, "send", "Known", ago=7200)
    die(db, "send", "Known", ago=60)
    die(db, "send", "Fresh", ago=30)
    before = await either.failures(since=HOUR)
    assert {c.error: before.is_new(c) for c in before.causes} == {"Known": None, "Fresh": None}, "no deploy is known"
    db.execute(
        "INSERT INTO deploys (deployed_at, seen_at) VALUES (now() - interval '2 days', now() - interval '1 day'), "
        "(now() - interval '3 hours', now() - interval '1 hour')"
    )
    report = await either.failures(since=HOUR)
    assert {c.error: report.is_new(c) for c in report.causes} == {"Known": False, "Fresh": True}


async def test_whether_a_cause_is_new_is_open_if_the_sample_does_not_reach_back(
    either: Either, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(failures, "LOOK", 2)
    monkeypatch.setattr(failures, "LOOK_AT_OTHERS", 1)
    for ago in (50, 40, 30):
        die(db, "send", "Often", ago=ago)
    db.execute("INSERT INTO deploys (deployed_at, seen_at) VALUES (now(), now() - interval '1 hour')")
    report = await either.failures(since=2 * HOUR)
    assert report.back_to is not None
    assert report.attempts == 2
    assert [report.is_new(c) for c in report.causes] == [None]


async def test_filters_by_name_queue_and_fingerprint(either: Either, db: psycopg.Connection) -> None:
    waits(db, "A", name="one", queue="x")
    waits(db, "B", name="two", queue="y")
    cause = fingerprint(db, "two", "B")
    for condition in ({"name": "two"}, {"queue": "y"}, {"fingerprint": cause}, {"fingerprint": cause[:8]}):
        assert [c.error for c in (await either.failures(**condition)).causes] == ["B"]


def test_an_owner_sees_only_failures_of_its_own(config: Config, db: psycopg.Connection) -> None:
    waits(db, "Mine", submitted_by="ann")
    waits(db, "Theirs", submitted_by="bob")
    with Client(config) as client:
        own = client.on_behalf_of("ann", submitted_by="ann", only_own=True)
        assert [c.error for c in own.failures().causes] == ["Mine"]


async def test_a_range_that_ends_before_it_begins_is_refused(either: Either) -> None:
    now = datetime.now(UTC)
    with pytest.raises(InvalidOption, match="has to be before"):
        await either.failures(since=now, until=now - HOUR)


def test_no_more_rows_are_read_than_the_sample_has(config: Config, db: psycopg.Connection) -> None:
    """Beside many finished, failed and dead rows the statement reads its sample by index."""
    db.execute(
        "INSERT INTO tasks (name, state, completed_at, error, next_retry_at) "
        "SELECT 'n', s, CASE WHEN s <> 'failed' THEN now() - make_interval(secs => g) END, 'E', "
        "CASE WHEN s = 'failed' THEN now() + interval '1 h' END "
        "FROM generate_series(1, 3000) AS g, unnest('{completed,dead_letter,failed}'::text[]) AS s"
    )
    db.execute("ANALYZE tasks")
    now = datetime.now(UTC)
    query = failures.causes(FailureFilter(now - HOUR, now), 50, 30)
    query = replace(query, parameters={**query.parameters, "look": 50, "look_at_others": 20})
    # Each row once to find it and once to read it.
    assert rows_read(explained(db, query)) <= 2 * (2 * 50 + 2 * 20)
