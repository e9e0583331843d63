"""The audit is only ever added to, and no statement of an operator forgets it."""

from __future__ import annotations

import re
from collections.abc import Iterator

import psycopg
import pytest

from tasklib import Config
from tasklib.config import Retention
from tasklib.db.database import Database
from tasklib.sql import statement, statements
from tasklib.store import audit, fleet, maintenance, pauses
from tasklib.store.audit import CHANGES_NOTHING, Action
from tasklib.store.fleet import Term

BY_NO_OPERATOR = {
    # A submission: the row itself says when, and by whom.
    *("submit", "submit_once", "submit_one", "submit_one_once", "submit_given", "submit_copy"),
    *("submit_simple", "submit_copy_simple"),
    *("submit_unique", "submit_replacing"),
    "flow_new",
    "flow_submit",
    # Arrivals, counted into gates; and what follows on flow_cancel and flow_replay, which are audited.
    *("fold", "flow_cancel_tasks", "flow_replay_tasks"),
    # Workers and what they do.
    *(
        "claim",
        "claim_next",
        "set_apart",
        "claim_limited",
        "name_lanes",
        "begin",
        "complete",
        "complete_reporting",
        "complete_unlocked",
        "fail",
        "release",
        "stop",
        "extend",
        "progress",
        "place_leave",
    ),
    *("worker_register", "worker_heartbeat", "worker_sleeps", "worker_may_begin", "worker_deregister"),
    # What durable tasks record, while they run.
    *("record_steps", "consume_signal", "suspend", "adopt"),
    # What running tasks add.
    "spawn",
    # The leader and its duties.
    *("lead", "resign", "bury_workers", "rescue", "fail_overdue"),
    *("expire_keys", "expire_dead_letters", "retain", "take_snapshot", "schedule_fire", "forget_skips"),
    "forget_flows",
    # What the leader does for a replay; its beginning, pauses and end are audited.
    *("replay_advance", "replay_outcomes", "forget_replays"),
    # That a deploy has a schedule as it is: nothing of it changes.
    "schedule_deployed",
    # The limits that the code declares.
    "limits_sync",
    # Circuit breakers that the code declares; and what the leader does with them, which a trigger records.
    *("breakers_sync", "breakers_judge", "breakers_probe"),
    # What happened, counted.
    *("stats_add", "stats_reported", "stats_fold", "stats_coarsen", "count_arrivals", "remember_names"),
    # Tests, and the use of a token.
    *("make_due", "token_used"),
    # A look at a plan: nothing is run.
    "doctor_claim_plan",
}
"""The statements that change something and write no audit, with the reason why."""

_CHANGES = re.compile(r"\b(INSERT INTO|UPDATE|DELETE FROM|COPY) \{schema\.\}")


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.close()


def test_every_statement_that_changes_something_is_audited_or_has_a_reason_not_to_be() -> None:
    # The mark stands where the schema's name will be.
    texts = {name: statement(name, "S").replace('"S".', "{schema.}") for name in statements()}
    changing = {name for name, text in texts.items() if _CHANGES.search(text)}
    audited = {name for name, text in texts.items() if "INSERT INTO {schema.}audit" in text}
    assert changing - audited == BY_NO_OPERATOR
    # A replay is paused, resumed and stopped by one statement.
    # A schedule is changed and resumed by one statement. It is backfilled by that which runs it, or one by one.
    shared = {Action.RESUME_SCHEDULE, Action.PAUSE_REPLAY, Action.RESUME_REPLAY}
    assert len(audited) - 1 == len(set(Action) - CHANGES_NOTHING - shared)


# ---- append-only ----


@pytest.mark.parametrize(
    "change",
    [
        "UPDATE audit SET actor = 'somebody else'",
        "DELETE FROM audit",
        "DELETE FROM audit WHERE false",
        "TRUNCATE audit",
        "INSERT INTO audit (id, actor, action) OVERRIDING SYSTEM VALUE VALUES (1, 'a', 'b') "
        "ON CONFLICT (id) DO UPDATE SET actor = 'somebody else'",
    ],
)
def test_a_record_is_neither_changed_nor_deleted(database: Database, db: psycopg.Connection, change: str) -> None:
    database.run(pauses.pause("queue", "mail", by="ann"))
    with pytest.raises(psycopg.errors.ObjectNotInPrerequisiteState, match="the audit is only ever added to"):
        db.execute(change.encode())
    assert [r.actor for r in database.run(audit.page(limit=10))] == ["ann"]


def test_a_record_cannot_be_slipped_in_under_another_number(db: psycopg.Connection) -> None:
    with pytest.raises(psycopg.errors.GeneratedAlways):
        db.execute("INSERT INTO audit (id, actor, action) VALUES (1, 'a', 'b')")


def test_retention_deletes_tasks_and_no_audit(database: Database, db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO tasks (id, name, state, completed_at) VALUES "
        "('00000000-0000-7000-8000-000000000001', 'old', 'completed', now() - interval '9 years'),"
        "('00000000-0000-7000-8000-000000000002', 'old', 'dead_letter', now() - interval '9 years')"
    )
    database.run(pauses.pause("queue", "mail", by="ann"))
    term = database.run(fleet.lead("w", 60))
    assert isinstance(term, Term)
    database.run(maintenance.expire_dead_letters(term, 0, 100))
    database.run(maintenance.retain(term, Retention("completed", days=0), [], None, 100))
    assert db.execute("SELECT count(*) FROM tasks").fetchone() == (0,)
    assert len(database.run(audit.page(limit=10))) == 1


def test_records_are_read_in_pages_and_by_each_filter(database: Database) -> None:
    for number in range(5):
        database.run(pauses.pause("queue", f"q{number}", by="ann" if number % 2 else "bob"))
    database.run(pauses.resume("queue", "q0", by="ann"))
    everything = database.run(audit.page(limit=100))
    assert [(r.action, r.target) for r in everything][:2] == [("resume", "queue:q0"), ("pause", "queue:q4")]
    first = database.run(audit.page(limit=2))
    rest = database.run(audit.page(limit=100, before=first[-1].id))
    assert first + rest == everything
    assert {r.actor for r in database.run(audit.page(limit=100, actor="bob"))} == {"bob"}
    assert [r.target for r in database.run(audit.page(limit=100, action="resume"))] == ["queue:q0"]
    assert len(database.run(audit.page(limit=100, target="queue:q0"))) == 2
    assert database.run(audit.page(limit=100, actor="bob", action="resume")) == []


def test_what_happened_to_one_task_is_found_by_an_index(database: Database, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO audit (actor, action, target) SELECT 'a', 'task.cancel', n FROM generate_series(1, 5000) n")
    db.execute("ANALYZE audit")
    query = audit.page(limit=10, target="77")
    explain = db.execute(("EXPLAIN " + statement(query.name, None)).encode(), query.parameters).fetchall()
    assert any("audit_target" in row[0] for row in explain)
