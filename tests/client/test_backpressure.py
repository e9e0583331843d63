"""Bounds on what may wait in a queue: submissions beyond them are refused where that is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tasklib import AsyncClient, Client, Config, InvalidOption, QueueFull
from tasklib.client.backpressure import REMEMBERED_SECONDS, Unbounded
from tasklib.db.database import Database
from tasklib.store import fleet, maintenance
from tasklib.store.backpressure import Pressure
from tests.client.submit.stored import count


@pytest.fixture(autouse=True)
def _no_bounds(janitor: psycopg.Connection) -> Iterator[None]:
    yield
    janitor.execute("DELETE FROM backpressure")
    janitor.execute("DELETE FROM snapshots")
    janitor.execute("DELETE FROM depths")


@pytest.fixture
def asking(config: Config) -> Config:
    return config.with_changes(backpressure=True)


def submit(client: Client, queue: str = "mail", **options: Any) -> Any:
    return client.submit_task("send", registered_elsewhere=True, queue=queue, **options)


def test_a_submission_is_refused_while_the_oldest_due_task_has_waited_too_long(
    asking: Config, db: psycopg.Connection
) -> None:
    with Client(asking) as client:
        client.bound_queue("mail", max_wait=60)
        submit(client)
        submit(client, delay_seconds=3600)
        db.execute("UPDATE tasks SET scheduled_at = now() - interval '100 s' WHERE scheduled_at <= now()")
        with pytest.raises(QueueFull, match=r"has waited \d+ s, of 60 s at most") as refused:
            submit(client)
        assert (refused.value.queue, 1 <= refused.value.retry_after <= 60) == ("mail", True)
        with pytest.raises(QueueFull):
            client.submit_many("send", [{}, {}], registered_elsewhere=True, queue="mail")
        submit(client, "other")
        db.execute("UPDATE tasks SET state = 'completed', completed_at = now() WHERE scheduled_at <= now()")
        submit(client)
    assert count(db) == 4


def test_a_submission_is_refused_while_too_many_tasks_wait_by_the_leaders_last_count(
    asking: Config, db: psycopg.Connection
) -> None:
    database = Database(asking)
    with Client(asking) as client:
        client.bound_queue("mail", max_pending=2)
        for _ in range(3):
            submit(client)
        term = database.run(fleet.lead("leader", 60))
        assert term is not None
        database.run(maintenance.take_snapshot(term, 1000))
        with pytest.raises(QueueFull, match="3 due tasks wait, of 2 at most"):
            submit(client)
        client.bound_queue("mail", max_pending=4)
        submit(client)


async def test_an_async_client_refuses_too(asking: Config, db: psycopg.Connection) -> None:
    async with AsyncClient(asking) as client:
        await client.bound_queue("mail", max_wait=60)
        db.execute("INSERT INTO tasks (name, queue, scheduled_at) VALUES ('a', 'mail', now() - interval '2 min')")
        with pytest.raises(QueueFull):
            await client.submit_task("send", registered_elsewhere=True, queue="mail")


def test_in_the_callers_transaction_a_refused_submission_leaves_the_rest_alone(
    asking: Config, db: psycopg.Connection, database_url: str
) -> None:
    db.execute("INSERT INTO tasks (name, queue, scheduled_at) VALUES ('a', 'mail', now() - interval '2 min')")
    with Client(asking) as client, psycopg.connect(database_url) as connection:
        client.bound_queue("mail", max_wait=60)
        submit(client, "other", connection=connection)
        with pytest.raises(QueueFull):
            submit(client, connection=connection)
        connection.commit()
    assert count(db) == 2


def test_a_program_that_doesnt_ask_for_it_is_not_refused(client: Client, db: psycopg.Connection) -> None:
    client.bound_queue("mail", max_wait=1)
    db.execute("INSERT INTO tasks (name, queue, scheduled_at) VALUES ('a', 'mail', now() - interval '2 min')")
    submit(client)
    assert count(db) == 2


def test_bounds_are_listed_changed_and_removed(client: Client) -> None:
    assert client.bound_queue("mail", max_wait=60)
    assert not client.bound_queue("mail", max_wait=60)
    assert client.bound_queue("mail", max_wait=30, max_pending=5)
    [bound] = client.queue_bounds()
    assert (bound.queue, bound.max_wait, bound.max_pending) == ("mail", 30, 5)
    assert client.bound_queue("mail")
    assert not client.bound_queue("mail")
    assert client.queue_bounds() == []


@pytest.mark.parametrize("bounds", [{"max_wait": 0}, {"max_wait": True}, {"max_pending": 1.5}, {"max_pending": -1}])
def test_bounds_that_can_never_be_kept_are_refused(client: Client, bounds: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption, match="must be a"):
        client.bound_queue("mail", **bounds)


def test_a_queue_without_bounds_is_looked_at_again_after_some_seconds() -> None:
    now = 100.0
    unbounded = Unbounded(lambda: now)
    assert unbounded.others({"a", "b"}) == ["a", "b"]
    unbounded.remember(["a", "b"], [Pressure("b", 1.0, None, None, None)])
    assert unbounded.others({"a", "b"}) == ["b"]
    now += REMEMBERED_SECONDS
    assert unbounded.others({"a", "b"}) == ["a", "b"]


def counted(asking: Config) -> None:
    """The leader counts what waits, by name too."""
    database = Database(asking)
    term = database.run(fleet.lead("leader", 60))
    assert term is not None
    database.run(maintenance.take_snapshot(term, 1000))
    database.run(maintenance.remember_names(term, 1000, 100))
    database.close()


def test_a_name_has_bounds_of_its_own_whatever_the_queue(asking: Config, db: psycopg.Connection) -> None:
    with Client(asking) as client:
        client.bound_name("send", max_pending=2)
        for queue in ("mail", "other"):
            submit(client, queue)
        counted(asking)
        with pytest.raises(QueueFull, match="tasks named send wait: 2 due tasks wait, of 2 at most") as refused:
            submit(client, "third")
        assert (refused.value.name, refused.value.queue) == ("send", "")
        client.submit_task("receive", registered_elsewhere=True, queue="mail")
        assert [(b.name, b.max_wait, b.max_pending) for b in client.name_bounds()] == [("send", None, 2)]
        assert client.queue_bounds() == []
        assert client.bound_name("send")
        assert not client.bound_name("send")


def test_a_name_is_refused_while_its_oldest_due_task_has_waited_too_long(
    asking: Config, db: psycopg.Connection
) -> None:
    with Client(asking) as client:
        client.bound_name("send", max_wait=60)
        db.execute("INSERT INTO tasks (name, scheduled_at) VALUES ('send', now() - interval '100 s')")
        submit(client)
        counted(asking)
        with pytest.raises(QueueFull, match=r"has waited 1\d\d s, of 60 s at most"):
            submit(client)


def test_plain_sql_asks_whether_there_is_room(client: Client, asking: Config, db: psycopg.Connection) -> None:
    client.bound_queue("mail", max_wait=60)
    client.bound_name("send", max_pending=1)

    def has_room(*of: str) -> bool:
        row = db.execute(f"SELECT tasklib_has_room({', '.join(['%s'] * len(of))})".encode(), of).fetchone()
        assert row is not None
        return bool(row[0])

    assert has_room("mail", "send")
    db.execute("INSERT INTO tasks (name, queue, scheduled_at) VALUES ('a', 'mail', now() - interval '2 min')")
    assert not has_room("mail")
    assert has_room("other", "send")
    db.execute("INSERT INTO tasks (name) VALUES ('send')")
    counted(asking)
    assert not has_room("other", "send")
    assert has_room("other")
    insert = "INSERT INTO tasks (name, queue) SELECT 'x', 'mail' WHERE tasklib_has_room('mail')"
    assert db.execute(insert).rowcount == 0
