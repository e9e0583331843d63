"""`effective_priority` in Python says what the SQL function says."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import psycopg
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tasklib import Client, Config, effective_priority
from tasklib.priorities import raised

MOMENT = datetime(2026, 1, 1, tzinfo=UTC)
seconds = st.floats(0.000001, 1e6)


@settings(max_examples=300)
@given(
    priority=st.integers(-10, 100),
    waited=st.one_of(
        st.integers(-10, 10_000_000_000).map(lambda us: us / 1e6), st.sampled_from([600.0, 1200.0, 1800.0])
    ),
    medium_after=st.one_of(st.just(600.0), seconds),
    high_after=st.one_of(st.just(1200.0), seconds),
)
@example(priority=-10, waited=600.0, medium_after=600.0, high_after=1200.0)
@example(priority=-1, waited=1800.0, medium_after=600.0, high_after=1200.0)
@example(priority=0, waited=1200.0, medium_after=600.0, high_after=1200.0)
@example(priority=50, waited=1199.999999, medium_after=600.0, high_after=1200.0)
@example(priority=50, waited=1.0, medium_after=5.0, high_after=0.5)
def test_python_and_sql_agree(
    db: psycopg.Connection, priority: int, waited: float, medium_after: float, high_after: float
) -> None:
    due = MOMENT - timedelta(seconds=waited)
    in_sql = db.execute(
        "SELECT tasklib_effective_priority(%s::int, %s, %s::float8, %s::float8, %s)",
        [priority, due, medium_after, high_after, MOMENT],
    ).fetchall()[0][0]
    assert raised(priority, due, MOMENT, medium_after, high_after) == in_sql


def test_of_a_row_both_agree_and_only_what_waits_is_raised(config: Config, db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO tasks (name, priority, scheduled_at, state, next_retry_at, completed_at) VALUES "
        "('new', -10, now(), 'pending', NULL, NULL), "
        "('older', -10, now() - interval '700 s', 'pending', NULL, NULL), "
        "('oldest', -10, now() - interval '1 h', 'pending', NULL, NULL), "
        "('retried', -10, now() - interval '1 h', 'failed', now() - interval '1 s', NULL), "
        "('done', -10, now() - interval '1 h', 'completed', NULL, now())"
    )
    expected = {"new": -10, "older": 0, "oldest": 100, "retried": -10, "done": -10}
    assert dict(db.execute("SELECT name, tasklib_effective_priority(tasks) FROM tasks").fetchall()) == expected
    with Client(config) as client:
        tasks = client.list_tasks()
    assert {t.name: effective_priority(t) for t in tasks} == expected
    [new] = [t for t in tasks if t.name == "new"]
    assert effective_priority(new, new.scheduled_at + timedelta(seconds=1800)) == 100
    assert effective_priority(new, promote_to_medium_after_seconds=0.000001) == 0


def test_thresholds_default_to_those_of_the_configuration() -> None:
    from tasklib import priorities

    config = Config("postgresql://")
    assert config.promote_to_medium_after_seconds == priorities.MEDIUM_AFTER_SECONDS
    assert config.promote_to_high_after_seconds == priorities.HIGH_AFTER_SECONDS


@pytest.mark.parametrize("state", ["running", "completed"])
def test_task_that_does_not_wait_has_its_own_priority(state: str) -> None:
    from tasklib import Task

    task = Task(id=None, name="t", state=state, priority=3, scheduled_at=MOMENT)
    assert effective_priority(task) == 3
