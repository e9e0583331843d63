"""Options: what ends up in the row, from which default."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest

from tasklib import Client, Config, task
from tasklib.config import Level
from tasklib.errors import InvalidOption
from tasklib.tasks.options import OPTION_NAMES
from tests.client.conftest import Either
from tests.client.submit.stored import row


@pytest.mark.parametrize(
    ("call", "decorator", "expected"),
    [
        ({"max_retries": 9, "priority": "high"}, {"max_retries": 8, "priority": "low"}, 9),
        ({"priority": "high"}, {"max_retries": 8, "priority": "low"}, 8),
        ({"priority": "high"}, {"priority": "low"}, 5),
        ({}, {"priority": "low"}, 2),
        ({"priority": 7}, {"priority": "low"}, 4),
        ({}, {}, 4),
        ({"max_retries": 0}, {"max_retries": 8}, 0),
        ({}, {"max_retries": 0, "priority": "high"}, 0),
    ],
    ids=["call", "decorator", "level of the call", "level", "integer brings none", "config", "zero", "zero decorated"],
)
def test_retries_come_from_the_call_then_the_decorator_then_the_level_then_the_config(
    call: dict[str, Any], decorator: dict[str, Any], expected: int, config: Config, db: Any
) -> None:
    @task(**decorator)
    def work() -> None: ...

    with Client(config.with_changes(max_retries=4)) as client:
        assert row(db, client.submit_task(work, **call))["max_retries"] == expected


@pytest.mark.parametrize(
    ("call", "decorator", "expected"),
    [
        ({"timeout_seconds": 9, "priority": "high"}, {"timeout_seconds": 8}, 9),
        ({"priority": "high"}, {"timeout_seconds": 8}, 8),
        ({"priority": "high"}, {}, 300),
        ({}, {"priority": "medium"}, 600),
        ({"priority": "low"}, {}, 900),
        ({"priority": -10}, {}, 77),
        ({}, {}, 77),
    ],
    ids=["call", "decorator", "high", "medium", "low", "integer brings none", "config"],
)
def test_the_timeout_comes_from_the_call_then_the_decorator_then_the_level_then_the_config(
    call: dict[str, Any], decorator: dict[str, Any], expected: int, config: Config, db: Any
) -> None:
    @task(**decorator)
    def work() -> None: ...

    with Client(config.with_changes(default_task_timeout_seconds=77)) as client:
        assert row(db, client.submit_task(work, **call))["timeout_seconds"] == expected


@pytest.mark.parametrize(
    ("level", "policy"), [("high", (100, 5, 300)), ("medium", (0, 3, 600)), ("low", (-10, 2, 900))]
)
async def test_a_level_brings_its_priority_retries_and_timeout(
    level: str, policy: tuple[int, int, int], either: Either, greet: Any, db: Any
) -> None:
    r = row(db, await either.submit_task(greet, name="a", priority=level))
    assert (r["priority"], r["max_retries"], r["timeout_seconds"]) == policy


def test_levels_are_configuration(config: Config, greet: Any, db: Any) -> None:
    with Client(config.with_changes(levels={"urgent": Level(50, 1, 5)})) as client:
        r = row(db, client.submit_task(greet, name="a", priority="urgent"))
        assert (r["priority"], r["max_retries"], r["timeout_seconds"]) == (50, 1, 5)
        with pytest.raises(InvalidOption, match="one of urgent, not 'high'"):
            client.submit_task(greet, name="a", priority="high")


async def test_without_options_a_task_is_due_at_once_in_the_default_queue(either: Either, greet: Any, db: Any) -> None:
    r = row(db, await either.submit_task(greet, name="a"))
    assert r["scheduled_at"] == r["created_at"]
    assert (r["queue"], r["priority"], r["max_retries"], r["timeout_seconds"]) == ("default", 0, 3, None)
    assert (r["tags"], r["required_capabilities"], r["trace_context"]) == ({}, [], None)
    assert (r["idempotency_key"], r["retry_count"], r["crash_count"], r["lease_token"]) == (None, 0, 0, 0)


TRACE = {"traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"}
NOON = datetime(2200, 1, 1, 12, tzinfo=UTC)
STORED: dict[str, tuple[dict[str, Any], dict[str, Any]]] = {
    "delay_seconds": ({"delay_seconds": 60}, {"delay": 60}),
    "scheduled_at": ({"scheduled_at": NOON}, {"scheduled_at": NOON}),
    "max_retries": ({"max_retries": 7}, {"max_retries": 7}),
    "timeout_seconds": ({"timeout_seconds": 8}, {"timeout_seconds": 8}),
    "priority": ({"priority": -3}, {"priority": -3}),
    "tags": ({"tags": {"b": [2]}}, {"tags": {"b": [2]}}),
    "queue": ({"queue": "q"}, {"queue": "q"}),
    "required_capabilities": ({"required_capabilities": ["b", "a"]}, {"required_capabilities": ["a", "b"]}),
    "idempotency_key": ({"idempotency_key": "k"}, {"idempotency_key": "k"}),
    "trace_context": ({"trace_context": TRACE}, {"trace_context": TRACE}),
    "unique": ({"unique": "unfinished"}, {"merge_while": "unfinished"}),
    "debounce": ({"debounce": 60}, {"merge_while": "pending", "delay": 60}),
    "throttle": ({"throttle": 60}, {"key_kept_for": 60}),
    "merge_key": ({"unique": "pending", "merge_key": "k"}, {"merge_key": "k", "merge_while": "pending"}),
    "share": ({"share": "s"}, {"lane": "\x01ss"}),
    "serial_key": ({"serial_key": "k"}, {"lane": "\x01kk"}),
}
"""For each option a submission with it, and what its row has."""
NOT_STORED = {"on_duplicate", "max_wait"}
"""Options of a submission that meets another task's key: they change that task, or nothing."""
OF_UNKNOWN = {"payload_version"}
"""Options for a function that this program hasn't got: see test_versions.py."""


def test_there_is_a_submission_for_every_option() -> None:
    assert STORED.keys() | NOT_STORED | OF_UNKNOWN == OPTION_NAMES


@pytest.mark.parametrize("form", ["submit_task", "submit_many"])
@pytest.mark.parametrize("option", STORED)
async def test_every_option_reaches_its_column(option: str, form: str, either: Either, greet: Any, db: Any) -> None:
    options, expected = STORED[option]
    if form == "submit_task":
        id_ = await either.submit_task(greet, name="a", **options)
    else:
        (id_,) = await either.submit_many(greet, [{"name": "a"}], **options)
    r = row(db, id_)
    r["delay"] = round((r["scheduled_at"] - r["created_at"]).total_seconds())
    if r["idempotency_expires_at"] is not None:
        r["key_kept_for"] = (r["idempotency_expires_at"] - r["created_at"]).total_seconds()
    assert {name: r[name] for name in expected} == expected


@pytest.mark.parametrize("spelling", [["b", "a"], ("a", "b", "a"), {"a", "b"}, iter(["b", "a", "b"])])
def test_capabilities_are_a_set_with_one_spelling(spelling: Any, client: Client, greet: Any, db: Any) -> None:
    task_id = client.submit_task(greet, name="a", required_capabilities=spelling)
    assert row(db, task_id)["required_capabilities"] == ["a", "b"]


@pytest.fixture
def _clock_of_2001(monkeypatch: pytest.MonkeyPatch) -> None:
    """This client's clock is wrong."""
    monkeypatch.setattr(time, "time_ns", lambda: 1_000_000_000 * 10**9)


@pytest.mark.usefixtures("_clock_of_2001")
async def test_a_delay_counts_on_the_clock_of_the_database(either: Either, greet: Any, db: Any) -> None:
    before = db.execute("SELECT now()").fetchone()[0]
    r = row(db, await either.submit_task(greet, name="a", delay_seconds=90.5))
    after = db.execute("SELECT now()").fetchone()[0]
    assert r["scheduled_at"] - r["created_at"] == timedelta(seconds=90.5)
    assert before <= r["created_at"] <= after


@pytest.mark.parametrize(
    "moment",
    [
        datetime(2031, 5, 6, 7, 8, 9, 123456, tzinfo=UTC),
        datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=5, minutes=45))),
        datetime(2031, 5, 6, 7, 8, 9, tzinfo=timezone(timedelta(hours=-23, seconds=-1))),
        datetime(1, 1, 3, tzinfo=UTC),
        datetime(9999, 12, 29, 23, 59, 59, 999999, tzinfo=UTC),
    ],
    ids=["utc", "offset", "offset that PostgreSQL doesn't read", "first", "last"],
)
async def test_scheduled_at_is_the_moment_that_was_given_or_now_if_it_has_passed(
    moment: datetime, either: Either, greet: Any, db: Any
) -> None:
    task_id = await either.submit_task(greet, name="a", scheduled_at=moment)
    difference = "SELECT scheduled_at = greatest(%s::timestamptz, created_at) FROM tasks WHERE id = %s"
    assert db.execute(difference, [moment.astimezone(UTC).isoformat(), task_id]).fetchone() == (True,)


async def test_a_delay_of_zero_is_no_delay(either: Either, greet: Any, db: Any) -> None:
    r = row(db, await either.submit_task(greet, name="a", delay_seconds=0))
    assert r["scheduled_at"] == r["created_at"]


async def test_the_longest_delay_is_stored(either: Either, greet: Any, db: Any) -> None:
    r = row(db, await either.submit_task(greet, name="a", delay_seconds=1000 * 365 * 86400))
    assert r["scheduled_at"] - r["created_at"] == timedelta(days=1000 * 365)


async def test_a_time_said_by_the_call_replaces_the_time_of_the_batch(either: Either, greet: Any, db: Any) -> None:
    at = datetime(2031, 1, 1, tzinfo=UTC)
    ids = await either.submit_many(
        [greet.options(scheduled_at=at).bind(name="a"), greet.bind(name="b")], delay_seconds=60
    )
    assert row(db, ids[0])["scheduled_at"] == at
    assert row(db, ids[1])["scheduled_at"] - row(db, ids[1])["created_at"] == timedelta(seconds=60)


def test_options_chosen_later_count(client: Client, greet: Any) -> None:
    task_id = client.submit(greet.options(queue="one", priority=5).options(queue="two").bind("a"))
    assert (task_id.get().queue, task_id.get().priority) == ("two", 5)
