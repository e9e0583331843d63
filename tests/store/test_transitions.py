"""Every legal move between states, made by its own statement on a real row; and every other one refused."""

from __future__ import annotations

from collections.abc import Callable
from uuid import UUID

import psycopg
import pytest

from tasklib import Config, TaskState
from tasklib.db.database import Database
from tasklib.states import MOVES, TERMINAL, is_legal
from tasklib.store import claim, control, fleet, maintenance, settle
from tasklib.store.claim import Served
from tasklib.store.settle import Completion, Failure, Lease

S = TaskState
TERMS = {"lease_seconds": 600, "medium_after": 600, "high_after": 1200}


class Row:
    """One task, put into a state by legal moves only."""

    def __init__(self, config: Config, db: psycopg.Connection) -> None:
        self.database = Database(config)
        self._db = db
        row = db.execute("INSERT INTO tasks (name, max_retries) VALUES ('work', 1) RETURNING id").fetchone()
        assert row is not None
        self.id: UUID = row[0]

    @property
    def lease(self) -> Lease:
        row = self._db.execute("SELECT id::text, lease_token FROM tasks").fetchone()
        assert row is not None
        return Lease(*row)

    @property
    def state(self) -> TaskState:
        row = self._db.execute("SELECT state FROM tasks").fetchone()
        assert row is not None
        return TaskState(row[0])

    def bring_to(self, state: TaskState) -> None:
        for move in ROUTES[state]:
            move(self)
        assert self.state == state

    def claim(self) -> None:
        self._db.execute("UPDATE tasks SET next_retry_at = now() WHERE next_retry_at IS NOT NULL")
        self.database.run(claim.claim(Served(["work"]), 1, "w", **TERMS))

    def complete(self) -> None:
        self.database.run(settle.complete([Completion(self.lease, '{"value": 1}')], "w"))

    def fail(self) -> None:
        self.database.run(settle.fail([Failure(self.lease, "boom", "error", 5.0)], "w", 3))

    def reject(self) -> None:
        self.database.run(settle.fail([Failure(self.lease, "never", "rejected", 0.0, retriable=False)], "w", 3))

    def release(self) -> None:
        self.database.run(settle.release([self.lease], "w"))

    def cancel(self) -> None:
        self.database.run(control.cancel(self.id, by="test"))

    def stop(self) -> None:
        self.database.run(settle.stop([(self.lease, "cancelled")], "w"))

    def expire(self) -> None:
        self._db.execute("UPDATE tasks SET locked_until = now() - interval '1 s' WHERE state = 'running'")
        term = self.database.run(fleet.lead("leader", 60))
        assert term is not None
        self.database.run(maintenance.rescue(term, 3, 10))

    def replay(self) -> None:
        self.database.run(control.replay(self.id, by="test"))


Move = Callable[[Row], None]
ROUTES: dict[TaskState, list[Move]] = {
    S.PENDING: [],
    S.RUNNING: [Row.claim],
    S.FAILED: [Row.claim, Row.fail],
    S.COMPLETED: [Row.claim, Row.complete],
    S.CANCELLED: [Row.cancel],
    S.DEAD_LETTER: [Row.claim, Row.reject],
}
MADE_BY: list[tuple[TaskState, Move, TaskState]] = [
    (S.PENDING, Row.claim, S.RUNNING),
    (S.FAILED, Row.claim, S.RUNNING),
    (S.RUNNING, Row.complete, S.COMPLETED),
    (S.RUNNING, Row.fail, S.FAILED),
    (S.RUNNING, Row.reject, S.DEAD_LETTER),
    (S.RUNNING, Row.expire, S.FAILED),
    (S.RUNNING, Row.release, S.PENDING),
    (S.RUNNING, Row.stop, S.CANCELLED),
    (S.RUNNING, Row.cancel, S.RUNNING),
    (S.PENDING, Row.cancel, S.CANCELLED),
    (S.FAILED, Row.cancel, S.CANCELLED),
    (S.COMPLETED, Row.replay, S.PENDING),
    (S.CANCELLED, Row.replay, S.PENDING),
    (S.DEAD_LETTER, Row.replay, S.PENDING),
]
ALL_MOVES: list[Move] = [
    Row.claim,
    Row.complete,
    Row.fail,
    Row.reject,
    Row.release,
    Row.cancel,
    Row.stop,
    Row.expire,
    Row.replay,
]


@pytest.fixture
def row(config: Config, db: psycopg.Connection) -> Row:
    return Row(config, db)


@pytest.mark.parametrize(("before", "move", "after"), MADE_BY, ids=[f"{b}-{m.__name__}-{a}" for b, m, a in MADE_BY])
def test_move(row: Row, before: TaskState, move: Move, after: TaskState) -> None:
    row.bring_to(before)
    token = row.lease.token
    move(row)
    assert row.state == after
    assert row.lease.token == token + (move is Row.claim), "the token grows with each claim and never otherwise"


@pytest.mark.parametrize("state", list(S))
@pytest.mark.parametrize("move", ALL_MOVES, ids=lambda m: m.__name__)
def test_any_other_move_changes_nothing(row: Row, db: psycopg.Connection, state: TaskState, move: Move) -> None:
    if any(b == state and m is move for b, m, _ in MADE_BY):
        return  # that one is legal
    row.bring_to(state)
    before = db.execute("SELECT * FROM tasks").fetchone()
    move(row)
    after = db.execute("SELECT * FROM tasks").fetchone()
    if move is Row.claim and state == S.FAILED:
        return
    assert after == before


def test_the_statements_make_exactly_the_moves_that_are_written_down() -> None:
    made = {(b, a) for b, _, a in MADE_BY if b != a} | {(S.RUNNING, S.FAILED)}
    assert made == {(before, after) for before, moves in MOVES.items() for after in moves}
    assert not is_legal(S.COMPLETED, S.RUNNING)
    assert all(set(MOVES[state]) == {S.PENDING} for state in TERMINAL)


def test_last_retry_used_up_leads_to_dead_letter(row: Row) -> None:
    row.claim()
    row.fail()
    row.claim()
    row.fail()
    assert row.state == S.DEAD_LETTER


def test_completed_at_is_set_in_every_terminal_state_and_in_no_other(row: Row, db: psycopg.Connection) -> None:
    for state in S:
        db.execute("DELETE FROM tasks")
        fresh = Row(Config(row.database.config.database_url), db)
        fresh.bring_to(state)
        ended = db.execute("SELECT completed_at IS NOT NULL FROM tasks").fetchone()
        assert ended == (state in TERMINAL,), state
        fresh.database.close()


def test_replay_starts_afresh_is_recorded_and_keeps_the_token(row: Row, db: psycopg.Connection) -> None:
    row.claim()
    row.reject()
    row.replay()
    found = db.execute(
        "SELECT state, retry_count, error, lease_token, history->-1->>'outcome', history->-1->>'was' FROM tasks"
    ).fetchone()
    assert found == ("pending", 0, None, 1, "replayed", "dead_letter")


@pytest.mark.parametrize("ending", [Row.fail, Row.expire, Row.release], ids=lambda m: m.__name__)
def test_cancelled_while_running_is_not_run_again_however_the_attempt_ends(row: Row, ending: Move) -> None:
    row.claim()
    row.cancel()
    assert row.state == S.RUNNING
    ending(row)
    assert row.state == S.CANCELLED


def test_cancelled_while_running_but_completed_first_is_completed(row: Row) -> None:
    row.claim()
    row.cancel()
    row.complete()
    assert row.state == S.COMPLETED


@pytest.mark.parametrize(
    "edit",
    [
        "state = 'lost'",
        "state = 'running'",
        "state = 'failed'",
        "state = 'completed'",
        "completed_at = now()",
        "priority = 101",
        "kwargs = '[]'",
        "max_retries = -1",
        "timeout_seconds = 0",
        "name = ''",
    ],
)
def test_row_edited_into_nonsense_is_refused_by_the_database(row: Row, db: psycopg.Connection, edit: str) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        db.execute(f"UPDATE tasks SET {edit}".encode())
