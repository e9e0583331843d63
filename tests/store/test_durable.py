"""Steps, signals and suspensions in the database: each guarded by the lease, none lost, none twice."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from threading import Thread
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from tasklib import Client, Config
from tasklib.db.database import Database, execute
from tasklib.steps import StepId, StepKind
from tasklib.store import control, durable
from tasklib.store.claim import Served, claim
from tasklib.store.durable import NewStep, Suspension
from tasklib.store.settle import Lease, release

STEP = StepId(StepKind.STEP, "charge")


@pytest.fixture
def database(config: Config) -> Database:
    return Database(config)


def submitted(db: psycopg.Connection) -> UUID:
    row = db.execute("INSERT INTO tasks (name) VALUES ('order') RETURNING id").fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def claimed(database: Database, worker: str = "w") -> Lease | None:
    terms = {"lease_seconds": 60, "medium_after": 600, "high_after": 1200}
    found = database.run(claim(Served(["order"]), 1, worker, **terms))
    return Lease(found[0].id, found[0].token) if found else None


def running(database: Database, db: psycopg.Connection) -> Lease:
    submitted(db)
    lease = claimed(database)
    assert lease is not None
    return lease


def row_of(db: psycopg.Connection, lease: Lease, columns: str) -> Any:
    row = db.execute(f"SELECT {columns} FROM tasks WHERE id = %s".encode(), (lease.id,)).fetchone()
    assert row is not None
    return row if len(row) > 1 else row[0]


def test_the_first_record_of_a_step_counts(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    first = database.run(durable.record_steps([NewStep(lease, STEP, '{"value": 1}')], "w"))
    second = database.run(durable.record_steps([NewStep(lease, STEP, '{"value": 2}')], "w"))
    assert (first[0], second[0]) == (('{"value": 1}', True), ('{"value": 1}', False))


def test_an_attempt_that_lost_its_task_records_nothing(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    new = [NewStep(lease, STEP, '{"value": 1}')]
    assert database.run(durable.record_steps(new, "another")) == {}
    database.run(release([lease], "w"))
    assert database.run(durable.record_steps(new, "w")) == {}
    assert claimed(database) is not None
    assert database.run(durable.record_steps(new, "w")) == {}
    assert database.run(durable.steps_of(lease.id)).steps == []


def test_a_batch_records_the_steps_of_many_tasks(database: Database, db: psycopg.Connection) -> None:
    leases = [running(database, db) for _ in range(3)]
    lost = Lease(str(uuid4()), 1)
    new = [NewStep(each, STEP, f'{{"value": {i}}}') for i, each in enumerate([*leases, lost])]
    new.append(NewStep(leases[0], StepId(StepKind.STEP, "ship"), '{"value": null}'))
    written = database.run(durable.record_steps(new, "w"))
    assert {place: each.result for place, each in written.items()} == {
        0: '{"value": 0}',
        1: '{"value": 1}',
        2: '{"value": 2}',
        4: '{"value": null}',
    }
    assert [step.id.name for step in database.run(durable.steps_of(leases[0].id)).steps] == ["charge", "ship"]


def test_a_moment_is_counted_from_the_databases_clock(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    database.run(durable.record_steps([NewStep(lease, StepId(StepKind.SLEEP, "sleep"), None, 3600.0)], "w"))
    row = db.execute("SELECT (result ->> 'value')::timestamptz - recorded_at FROM steps").fetchone()
    assert row is not None
    assert timedelta(minutes=59) < row[0] < timedelta(minutes=61)


def test_a_step_of_a_locked_task_is_left_for_later(database: Database, config: Config, db: psycopg.Connection) -> None:
    lease = running(database, db)
    with psycopg.connect(config.database_url) as other:
        other.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", (lease.id,))
        assert database.run(durable.record_steps([NewStep(lease, STEP, "{}")], "w")) == {}
    assert database.run(durable.record_steps([NewStep(lease, STEP, "{}")], "w"))[0].is_new


def test_suspending_gives_the_task_back_until_its_moment(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    db.execute("UPDATE tasks SET next_retry_at = now(), retry_count = 2, crash_count = 1")
    until = datetime(2040, 1, 1, tzinfo=UTC)
    assert database.run(durable.suspend([Suspension(lease, until)], "w")) == {lease.id: "pending"}
    columns = "state, scheduled_at, next_retry_at, retry_count, crash_count, awaited_signals, worker_id, lease_token"
    assert row_of(db, lease, columns) == ("pending", until, None, 2, 0, [], None, lease.token)
    assert claimed(database) is None


def test_only_the_holder_can_suspend_a_task(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    until = datetime(2040, 1, 1, tzinfo=UTC)
    assert database.run(durable.suspend([Suspension(lease, until)], "another")) == {}
    assert database.run(durable.suspend([Suspension(Lease(lease.id, lease.token - 1), until)], "w")) == {}
    assert row_of(db, lease, "state") == "running"


def test_a_task_that_was_asked_to_stop_is_cancelled_when_it_suspends(
    database: Database, db: psycopg.Connection
) -> None:
    lease = running(database, db)
    database.run(control.cancel(UUID(lease.id), by="me"))
    assert database.run(durable.suspend([Suspension(lease, None, ["go"])], "w")) == {lease.id: "cancelled"}


def test_a_signal_wakes_the_task_that_waits_for_it(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    database.run(durable.suspend([Suspension(lease, None, ["go", 'o"dd'])], "w"))
    assert send(database, lease, "other") == "sent"
    assert claimed(database) is None
    assert send(database, lease, 'o"dd') == "sent"
    assert claimed(database) == Lease(lease.id, lease.token + 1)


def test_a_signal_that_came_before_the_suspension_is_not_missed(database: Database, db: psycopg.Connection) -> None:
    """The function looked, found nothing, and is about to suspend."""
    lease = running(database, db)
    found = database.run(durable.consume_signal(lease, "w", "go", step="go", expired=False))
    assert found == (None, None, True)
    send(database, lease, "go")
    database.run(durable.suspend([Suspension(lease, None, ["go"], seen=None)], "w"))
    again = claimed(database)
    assert again is not None
    found = database.run(durable.consume_signal(again, "w", "go", step="go", expired=False))
    assert found == ('{"value": 5}', 1, True)


def test_a_suspension_that_has_seen_every_signal_waits(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    send(database, lease, "other")
    found = database.run(durable.consume_signal(lease, "w", "go", step="go", expired=False))
    assert found == (None, 1, True)
    database.run(durable.suspend([Suspension(lease, None, ["go"], seen=1)], "w"))
    assert claimed(database) is None


def test_signals_are_consumed_in_order_and_once(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    for payload in ("1", "2", "3"):
        send(database, lease, "go", payload)

    def consumed(step: str) -> Any:
        found = database.run(durable.consume_signal(lease, "w", "go", step=step, expired=False))
        assert found is not None
        return found.result

    assert [consumed("a"), consumed("b"), consumed("a"), consumed("c"), consumed("d")] == [
        '{"value": 1}',
        '{"value": 2}',
        '{"value": 1}',  # of a step that has its signal, none is taken
        '{"value": 3}',
        None,
    ]
    assert database.run(durable.consume_signal(lease, "another", "go", step="x", expired=True)) is None


def test_no_signal_in_time_is_on_record_too(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    found = database.run(durable.consume_signal(lease, "w", "go", step="go", expired=True))
    assert found is not None
    assert found.result == '{"timed_out": true}'
    send(database, lease, "go")
    found = database.run(durable.consume_signal(lease, "w", "go", step="go", expired=False))
    assert found is not None
    assert found.result == '{"timed_out": true}'


def test_a_signal_with_a_key_is_sent_once_even_after_it_was_consumed(
    database: Database, db: psycopg.Connection
) -> None:
    lease = running(database, db)
    assert send(database, lease, "go", key="k") == "sent"
    assert send(database, lease, "go", key="k") == "known"
    database.run(durable.consume_signal(lease, "w", "go", step="go", expired=False))
    assert send(database, lease, "go", key="k") == "known"
    assert row_of(db, lease, "signals_sent") == 1


def test_a_finished_task_takes_no_signal(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    db.execute("UPDATE tasks SET state = 'completed', completed_at = now(), worker_id = NULL, locked_until = NULL")
    assert send(database, lease, "go") == "finished"
    assert send(database, Lease(str(uuid4()), 1), "go") is None
    assert db.execute("SELECT count(*) FROM signals").fetchone() == (0,)


def test_continuing_as_new_forgets_the_steps_and_keeps_the_signals(database: Database, db: psycopg.Connection) -> None:
    lease = running(database, db)
    database.run(durable.record_steps([NewStep(lease, STEP, "{}")], "w"))
    send(database, lease, "go")
    now = datetime.now(UTC)
    database.run(durable.suspend([Suspension(lease, now, kwargs='{"page": 2}')], "w"))
    assert database.run(durable.steps_of(lease.id)).steps == []
    assert row_of(db, lease, "kwargs, state") == ({"page": 2}, "pending")
    assert db.execute("SELECT count(*) FROM signals").fetchone() == (1,)


def test_steps_and_signals_are_deleted_with_their_task(database: Database, db: psycopg.Connection) -> None:
    lease, other = running(database, db), running(database, db)
    for each in (lease, other):
        database.run(durable.record_steps([NewStep(each, STEP, "{}")], "w"))
        send(database, each, "go")
    db.execute("SET search_path = pg_catalog")
    db.execute("DELETE FROM public.tasks WHERE id = %s", (lease.id,))
    for table in (b"steps", b"signals"):
        assert db.execute(b"SELECT task::text FROM public." + table).fetchall() == [(other.id,)]


def test_a_replayed_dead_letter_keeps_its_steps_and_a_completed_task_begins_anew(
    database: Database, config: Config, db: psycopg.Connection
) -> None:
    done, dead, both = running(database, db), running(database, db), running(database, db)
    for each in (done, dead, both):
        deadline = StepId(StepKind.DEADLINE, "")
        database.run(durable.record_steps([NewStep(each, STEP, "{}"), NewStep(each, deadline, "{}")], "w"))
    db.execute("UPDATE tasks SET state = 'dead_letter', completed_at = now(), worker_id = NULL, locked_until = NULL")
    db.execute("UPDATE tasks SET state = 'completed' WHERE id = %s", (done.id,))
    client = Client(config)
    client.replay_task(UUID(done.id))
    client.replay_task(UUID(dead.id))
    client.replay_dead_letters(everything=True)
    assert {str(task) for (task,) in db.execute("SELECT task FROM steps")} == {dead.id, both.id}
    assert db.execute("SELECT count(*) FROM steps WHERE kind = 'deadline'").fetchone() == (0,)


def test_a_task_gets_its_own_signals_and_records_only(database: Database, db: psycopg.Connection) -> None:
    lease, other, waiting = running(database, db), running(database, db), running(database, db)
    send(database, other, "go")
    send(database, waiting, "go")
    database.run(durable.consume_signal(other, "w", "go", step="go", expired=False))
    database.run(durable.record_steps([NewStep(lease, StepId(StepKind.STEP, "go"), '{"value": 7}')], "w"))
    assert database.run(durable.consume_signal(lease, "w", "go", step="go", expired=False)) == (None, None, True)
    late = Lease(waiting.id, waiting.token - 1)
    assert database.run(durable.consume_signal(late, "w", "go", step="go", expired=False)) is None
    assert db.execute("SELECT count(*) FROM signals WHERE consumed_at IS NOT NULL").fetchone() == (1,)


def test_suspending_keeps_the_record_and_continuing_as_new_forgets_no_other_task(
    database: Database, db: psycopg.Connection
) -> None:
    lease, other, third = running(database, db), running(database, db), running(database, db)
    for each in (lease, other, third):
        database.run(durable.record_steps([NewStep(each, STEP, "{}")], "w"))
    anew, later = Suspension(lease, datetime.now(UTC), kwargs="{}"), Suspension(other, datetime(2040, 1, 1, tzinfo=UTC))
    database.run(durable.suspend([anew, later], "w"))
    assert {str(task) for (task,) in db.execute("SELECT task FROM steps")} == {other.id, third.id}


def send(database: Database, lease: Lease, name: str, payload: str = "5", key: str | None = None) -> str | None:
    return database.run(durable.send_signal(UUID(lease.id), name, payload, key=key, sender="me"))


# ---- two sessions ----


def test_a_suspension_waits_for_the_signal_that_is_being_sent(
    database: Database, config: Config, db: psycopg.Connection
) -> None:
    """While the sender's transaction is open the task's row is locked: the suspension is tried again afterwards."""
    lease = running(database, db)
    with psycopg.connect(config.database_url) as sender:
        execute(sender, durable.send_signal(UUID(lease.id), "go", "1", key=None, sender="me"), None)
        assert database.run(durable.suspend([Suspension(lease, None, ["go"])], "w")) == {}
    assert database.run(durable.suspend([Suspension(lease, None, ["go"])], "w")) == {lease.id: "pending"}
    assert claimed(database) is not None


def test_a_sender_that_waits_for_a_suspension_finds_the_task_suspended(
    database: Database, config: Config, db: psycopg.Connection
) -> None:
    lease = running(database, db)
    with psycopg.connect(config.database_url) as worker, psycopg.connect(config.database_url) as sender:
        execute(worker, durable.suspend([Suspension(lease, None, ["go"])], "w"), None)
        # Its statement begins, and with it its snapshot, before the suspension is committed.
        query = durable.send_signal(UUID(lease.id), "go", "1", key=None, sender="me")
        thread = Thread(target=execute, args=(sender, query, None))
        thread.start()
        waits = "SELECT FROM pg_locks WHERE NOT granted AND pid = %s"
        while not db.execute(waits, (sender.info.backend_pid,)).fetchall():
            pass
        worker.commit()
        thread.join()
        sender.commit()
    assert claimed(database) is not None


def test_a_signal_that_an_unanswered_statement_is_just_consuming_is_asked_for_again(
    database: Database, config: Config, db: psycopg.Connection
) -> None:
    """Taken for "there is none", it would let the task wait for a signal that it has."""
    lease = running(database, db)
    database.run(durable.send_signal(UUID(lease.id), "go", "1", key=None, sender="me"))
    database.run(durable.send_signal(UUID(lease.id), "go", "2", key=None, sender="me"))
    consume = durable.consume_signal(lease, "w", "go", step="go", expired=False)
    answers: list[Any] = []
    with psycopg.connect(config.database_url) as lost, psycopg.connect(config.database_url) as again:
        execute(lost, consume, None)
        thread = Thread(target=lambda: answers.append(execute(again, consume, None)))
        thread.start()
        waits = "SELECT FROM pg_locks WHERE NOT granted AND pid = %s"
        while not db.execute(waits, (again.info.backend_pid,)).fetchall():
            pass
        lost.commit()
        thread.join()
        again.commit()
    assert [(answer.result, answer.is_decided) for answer in answers] == [(None, False)]
    assert database.run(consume) == ('{"value": 1}', 2, True)
    assert db.execute("SELECT count(*) FROM signals WHERE consumed_at IS NOT NULL").fetchall() == [(1,)]
