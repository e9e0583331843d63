"""Each guard of a settlement on its own: a token of the past, another worker, a lease that is over change nothing."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple
from uuid import UUID

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.db.query import Query
from tasklib.store import settle
from tasklib.store.settle import Completion, Failure, Lease

TOKEN, HOLDER = 5, "holder"

Settlement = Callable[[Lease, str], Query[Any]]


class _Plain(NamedTuple):
    """The lease of a task that reports to no gate and has no limits, as a claim gives it."""

    id: str
    token: int
    trace_context: str | None = None
    lane_name: str = ""
    reports: bool = False
    holds_places: bool = False


SETTLEMENTS: dict[str, Settlement] = {
    "complete": lambda lease, worker: settle.complete([Completion(_Plain(*lease), "1")], worker),
    "complete_reporting": lambda lease, worker: settle.complete([Completion(lease, '{"value": 1}')], worker),
    "complete_unlocked": lambda lease, worker: settle.complete([Completion(lease, "1")], worker, contended=True),
    "fail": lambda lease, worker: settle.fail([Failure(lease, "boom", "error", 0.0)], worker, 3),
    "release": lambda lease, worker: settle.release([lease], worker),
    "stop": lambda lease, worker: settle.stop([(lease, "stopped")], worker),
    "extend": lambda lease, worker: settle.extend([lease], worker, 600.0),
    "begin": lambda lease, worker: settle.begin([(lease, True)], worker),
    "progress": lambda lease, worker: settle.progress([(lease, "0.5")], worker),
}
each_settlement = pytest.mark.parametrize("settlement", SETTLEMENTS.values(), ids=SETTLEMENTS)


@pytest.fixture
def task(db: psycopg.Connection) -> UUID:
    """One that runs, in its fifth attempt."""
    row = db.execute(
        "INSERT INTO tasks (name, state, worker_id, locked_until, lease_token) "
        "VALUES ('work', 'running', %s, now() + interval '5 min', %s) RETURNING id",
        [HOLDER, TOKEN],
    ).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


@pytest.fixture
def row(db: psycopg.Connection, task: UUID) -> Callable[[], Any]:
    """All of it, whenever it is asked for."""
    return lambda: db.execute("SELECT * FROM tasks WHERE id = %s", [task]).fetchone()


@each_settlement
def test_who_has_the_lease_may(settlement: Settlement, config: Config, task: UUID, row: Callable[[], Any]) -> None:
    before = row()
    assert list(Database(config).run(settlement(Lease(str(task), TOKEN), HOLDER))) == [str(task)]
    assert row() != before


@each_settlement
@pytest.mark.parametrize("token", [TOKEN - 1, TOKEN + 1])
def test_another_token_may_not(
    settlement: Settlement, token: int, config: Config, task: UUID, row: Callable[[], Any]
) -> None:
    before = row()
    assert not Database(config).run(settlement(Lease(str(task), token), HOLDER))
    assert row() == before


@each_settlement
def test_another_worker_may_not_though_it_knows_the_token(
    settlement: Settlement, config: Config, task: UUID, row: Callable[[], Any]
) -> None:
    before = row()
    assert not Database(config).run(settlement(Lease(str(task), TOKEN), "somebody else"))
    assert row() == before


def test_a_lease_that_is_over_is_not_extended(
    config: Config, db: psycopg.Connection, task: UUID, row: Callable[[], Any]
) -> None:
    db.execute("UPDATE tasks SET locked_until = now() - interval '1 ms'")
    before = row()
    assert not Database(config).run(settle.extend([Lease(str(task), TOKEN)], HOLDER, 600.0))
    assert row() == before


@pytest.mark.parametrize(
    ("change", "asked_for", "is_held"),
    [
        ("lease_token = lease_token", {}, True),
        ("lease_token = lease_token + 1", {}, False),
        ("worker_id = 'somebody else'", {}, False),
        ("state = 'pending', worker_id = NULL, locked_until = NULL", {}, False),
        ("locked_until = now() - interval '1 s'", {}, True),
        ("locked_until = now() - interval '1 s'", {"unexpired": True}, False),
        ("begun_token = lease_token, at_most_once = true", {}, True),
        ("begun_token = lease_token, at_most_once = true", {"releasing": True}, False),
        ("begun_token = lease_token - 1, at_most_once = true", {"releasing": True}, True),
        ("begun_token = lease_token", {"releasing": True}, True),
    ],
)
def test_still_held_says_which_attempts_are_ours(
    change: str, asked_for: dict[str, bool], is_held: bool, config: Config, db: psycopg.Connection, task: UUID
) -> None:
    db.execute(f"UPDATE tasks SET {change}".encode())
    asked = settle.still_held([Lease(str(task), TOKEN)], HOLDER, **asked_for)
    assert Database(config).run(asked) == ({str(task)} if is_held else set())


@pytest.mark.parametrize(
    ("token", "state", "is_settled"),
    [(TOKEN, "pending", True), (TOKEN - 1, "pending", False), (TOKEN, "running", False)],
)
def test_settled_says_which_attempts_are_over(
    token: int, state: str, is_settled: bool, config: Config, db: psycopg.Connection, task: UUID
) -> None:
    if state == "pending":
        db.execute("UPDATE tasks SET state = 'pending', worker_id = NULL, locked_until = NULL")
    found = Database(config).run(settle.settled([Lease(str(task), token)]))
    assert found == ({str(task)} if is_settled else set())
