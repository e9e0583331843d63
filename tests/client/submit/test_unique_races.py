"""Unique and debounced submissions against claims, ends, replays and each other: every order, and a plain model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given
from hypothesis import strategies as st

from proof.interleavings.stepping import Session, orders, play
from tasklib import Config, DuplicateTask
from tasklib.client.calls import Calls
from tasklib.client.submissions import new_tasks
from tasklib.db.database import Database, execute
from tasklib.db.failures import Conflict
from tasklib.db.query import Query
from tasklib.store import claim, control, settle, submit
from tasklib.store.claim import Served
from tasklib.store.settle import Completion, Failure, Lease
from tasklib.tasks.options import Options
from tasklib.tasks.submitter import Submission
from tests.client.submit.stored import rows

TERMS: dict[str, Any] = {"lease_seconds": 600, "medium_after": 600, "high_after": 1200}
CLAIM = claim.claim(Served(["work"]), 1, "w", **TERMS)
WAYS: dict[str, dict[str, Any]] = {
    "pending return": {"unique": "pending"},
    "pending replace": {"unique": "pending", "on_duplicate": "replace"},
    "pending raise": {"unique": "pending", "on_duplicate": "raise"},
    "unfinished return": {"unique": "unfinished"},
    "unfinished replace": {"unique": "unfinished", "on_duplicate": "replace"},
    "unfinished raise": {"unique": "unfinished", "on_duplicate": "raise"},
    "debounce": {"debounce": 0.000001},
}


def submission(config: Config, way: str, value: int) -> tuple[UUID, Query[Any]]:
    """A submission of this kind with this argument; all meet by the same key."""
    item = Submission("work", {"value": value}, Options(merge_key="k", **WAYS[way]))
    [task] = new_tasks([item], Calls(config).defaults)
    return task.id, submit.submit_one(task)


@pytest.fixture
def sessions(database_url: str, db: psycopg.Connection) -> Iterator[list[Session]]:
    with closing(Session(database_url, db)) as one, closing(Session(database_url, db)) as other:
        yield [one, other]


def run(db: psycopg.Connection, query: Query[Any]) -> Any:
    return execute(db, query, None)


@pytest.mark.parametrize("way", WAYS)
def test_two_submissions_at_once_are_one_task_in_every_order(
    way: str, config: Config, sessions: list[Session], db: psycopg.Connection
) -> None:
    for order in orders(2):
        db.execute("DELETE FROM tasks")
        both = [submission(config, way, 0)[1], submission(config, way, 1)[1]]
        play(sessions, both, order, UUID(int=0))
        for number, session in enumerate(sessions):  # as the client does: once more, in a statement of its own
            if isinstance(session.error, Conflict):
                session.error = None
                try:
                    session.answer = run(db, both[number])
                except DuplicateTask as e:
                    session.error = e
        [task] = rows(db)
        errors = [session.error for session in sessions if session.error is not None]
        assert all(isinstance(error, DuplicateTask) for error in errors), (order, errors)
        assert len(errors) == (1 if "raise" in way else 0), order
        assert {id_ for session in sessions for id_ in (session.answer or {}).values()} == {task["id"]}, order


@pytest.mark.parametrize("way", WAYS)
def test_a_submission_and_a_claim_lose_nothing_in_every_order(
    way: str, config: Config, sessions: list[Session], db: psycopg.Connection
) -> None:
    for order in orders(2):
        db.execute("DELETE FROM tasks")
        first, inserted = submission(config, way, 0)
        run(db, inserted)
        own, again = submission(config, way, 1)
        play(sessions, [again, CLAIM], order, first)
        submitting, claiming = sessions
        if isinstance(submitting.error, Conflict):
            submitting.error = None
            try:
                submitting.answer = run(db, again)
            except DuplicateTask as e:
                submitting.error = e
        assert isinstance(submitting.error, DuplicateTask | None), (order, submitting.error)
        assert claiming.error is None
        found = {row["id"]: row for row in rows(db)}
        claimed = {UUID(str(task.id)): task for task in claiming.answer}
        assert found.keys() == ({first} if own not in found else {first, own})
        if submitting.error is not None:
            assert "raise" in way or (way == "unfinished replace" and first in claimed), order
            continue
        [answer] = submitting.answer.values()
        assert (answer == own) == (own in found)
        if "return" not in way:  # the arguments are in a task that begins, or began, with them
            assert found[answer]["kwargs"] == {"value": 1}, order
            assert answer not in claimed or claimed[answer].kwargs == '{"value": 1}', order
        elif way == "pending return" and answer in claimed:  # it began after the submission was committed
            assert order.index(1) > len(order) - 1 - order[::-1].index(0), order


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("end", ["complete", "fail", "release"])
def test_a_submission_never_stops_an_attempt_from_being_settled(
    way: str, end: str, config: Config, sessions: list[Session], db: psycopg.Connection
) -> None:
    for order in orders(2):
        db.execute("DELETE FROM tasks")
        first, inserted = submission(config, way, 0)
        run(db, inserted)
        [held] = run(db, CLAIM)
        lease = Lease(str(held.id), held.token)
        settling = {
            "complete": settle.complete([Completion(lease, '{"value": 1}')], "w"),
            "fail": settle.fail([Failure(lease, "boom", "error", 0.0)], "w", 3),
            "release": settle.release([lease], "w"),
        }[end]
        play(sessions, [submission(config, way, 1)[1], settling], order, first)
        assert sessions[1].error is None
        [state] = [row["state"] for row in rows(db) if row["id"] == first]
        assert state == {"complete": "completed", "fail": "failed", "release": "pending"}[end], order


# ---- a plain model ----


@dataclass
class Model:
    """What the tasks should be: in the order of their submission."""

    tasks: dict[UUID, dict[str, Any]] = field(default_factory=dict)

    def met(self, mode: str) -> dict[str, Any] | None:
        for task in self.tasks.values():
            lives = task["state"] in ("pending", "running", "failed")
            if task["mode"] == mode and lives and (mode == "unfinished" or not task["claimed"]):
                return task
        return None

    def submit(self, way: str, own: UUID, value: int) -> UUID | None:
        """The id that the submission answers with; None if it is refused."""
        mode = "unfinished" if way.startswith("unfinished") else "pending"
        met = self.met(mode)
        if met is None:
            self.tasks[own] = {"id": own, "mode": mode, "state": "pending", "value": value, "claimed": False}
            return own
        if "raise" in way or ("replace" in way and met["state"] == "running"):
            return None
        if "return" not in way:
            met["value"] = value
        return UUID(str(met["id"]))


STEPS = st.one_of(
    st.tuples(st.sampled_from(list(WAYS)), st.integers(0, 9)),
    st.tuples(st.sampled_from(["claim", "complete", "fail", "release", "cancel", "replay"]), st.integers(0, 9)),
)


@given(steps=st.lists(STEPS, max_size=25))
def test_any_sequence_of_submissions_and_moves_ends_as_in_a_plain_model(
    steps: list[tuple[str, int]], shared_database_url: str, janitor: psycopg.Connection
) -> None:
    config = Config(shared_database_url)
    janitor.execute("DELETE FROM tasks")
    model, database = Model(), Database(config)
    for what, number in steps:
        if what in WAYS:
            own, query = submission(config, what, number)
            expected = model.submit(what, own, number)
            try:
                answer = next(iter(database.run(query).values()))
            except DuplicateTask:
                answer = None
            assert answer == expected, what
        else:
            _move(model, database, janitor, what, number)
    found = {row["id"]: (row["state"], row["kwargs"]["value"]) for row in rows(janitor)}
    assert found == {id_: (task["state"], task["value"]) for id_, task in model.tasks.items()}


def _move(model: Model, database: Database, db: psycopg.Connection, what: str, number: int) -> None:
    """Move a task of the model by the statement that does it, if there is one that can be moved so."""
    wanted = {
        "claim": ("pending", "failed"),
        "cancel": ("pending", "failed"),
        "replay": ("completed", "cancelled", "dead_letter"),
    }.get(what, ("running",))
    able = [task for task in model.tasks.values() if task["state"] in wanted]
    if not able:
        return
    task = able[number % len(able)]
    lease = Lease(str(task["id"]), task.get("token", 0))
    match what:
        case "claim":
            # Make it the only one that is due, so that the claim takes this one.
            db.execute("UPDATE tasks SET scheduled_at = now() + interval '1 h' WHERE next_retry_at IS NULL")
            db.execute("UPDATE tasks SET next_retry_at = now() + interval '1 h' WHERE next_retry_at IS NOT NULL")
            db.execute(
                "UPDATE tasks SET scheduled_at = now(), next_retry_at = CASE WHEN next_retry_at IS NOT NULL "
                "THEN now() END WHERE id = %s",
                (task["id"],),
            )
            [found] = database.run(CLAIM)
            task |= {"state": "running", "claimed": True, "token": found.token}
        case "complete":
            database.run(settle.complete([Completion(lease, '{"value": 1}')], "w"))
            task["state"] = "completed"
        case "fail":
            [(_, state)] = database.run(settle.fail([Failure(lease, "boom", "error", 0.0)], "w", 3)).items()
            task["state"] = str(state)
        case "release":
            database.run(settle.release([lease], "w"))
            row = db.execute("SELECT next_retry_at IS NULL FROM tasks WHERE id = %s", (task["id"],)).fetchone()
            task["state"] = "pending" if row == (True,) else "failed"
        case "cancel":
            database.run(control.cancel(task["id"], by="test"))
            task["state"] = "cancelled"
        case "replay":
            database.run(control.replay(task["id"], by="test"))
            task |= {"state": "pending", "mode": None}
