"""32 sessions on one small table: claims and batch settlements against rescue, cancel and delete. Deadlocks: none."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from uuid import UUID

import psycopg

from tasklib import Client, Config
from tasklib.config import Retention
from tasklib.db.connect import connect
from tasklib.db.database import execute
from tasklib.store import claim, control, fleet, maintenance, settle
from tasklib.store.claim import Served
from tasklib.store.filters import TaskFilter
from tasklib.store.fleet import Term
from tasklib.store.settle import Completion, Failure

CLAIMERS, RESCUERS, CANCELLERS, DELETERS = 22, 4, 4, 2
OPERATIONS = ("claimed", "completed", "failed", "released", "cancelled", "deleted")
_NAME = "crowd"


@dataclass
class Crowd:
    """What the sessions did."""

    operations: Counter[str] = field(default_factory=Counter)
    deadlocks: int = 0
    errors: list[str] = field(default_factory=list)


def gather(config: Config, seconds: float, seed: int = 1) -> Crowd:
    """Let them all loose on one table for a while, and at least until each operation has happened."""
    crowd, ended = Crowd(), threading.Event()
    with connect(config) as db:
        before = _deadlocks(db)
        term = execute(db, fleet.lead("leader", 3600.0), config.schema)
        assert term is not None
        roles: list[Callable[[Config, random.Random, Term, Crowd], Callable[[psycopg.Connection], None]]]
        roles = [_claimer] * CLAIMERS + [_rescuer] * RESCUERS + [_canceller] * CANCELLERS + [_deleter] * DELETERS
        threads = [
            threading.Thread(target=_live, args=[config, role, random.Random(f"{seed} {n}"), term, crowd, ended])
            for n, role in enumerate(roles)
        ]
        for thread in threads:
            thread.start()
        with Client(config) as client:
            deadline = time.monotonic() + seconds
            while time.monotonic() < deadline or not all(crowd.operations[name] for name in OPERATIONS):
                client.submit_many(_NAME, [{}] * 200, registered_elsewhere=True)
                time.sleep(0.05)
        ended.set()
        for thread in threads:
            thread.join(60)
        time.sleep(1.0)  # backends report their statistics once a second at most
        db.execute("SELECT pg_stat_clear_snapshot()")
        crowd.deadlocks = _deadlocks(db) - before
    return crowd


def _live(config: Config, role: Callable[..., Callable[[psycopg.Connection], None]], *rest: object) -> None:
    *given, ended = rest
    crowd = given[-1]
    assert isinstance(ended, threading.Event)
    assert isinstance(crowd, Crowd)
    with connect(config) as connection:
        act = role(config, *given)
        while not ended.is_set():
            try:
                act(connection)
            except psycopg.Error as e:
                crowd.errors.append(repr(e))


def _claimer(config: Config, chance: random.Random, term: Term, crowd: Crowd) -> Callable[[psycopg.Connection], None]:
    me = f"worker-{chance.random()}"
    terms = {"lease_seconds": 1.0, "medium_after": 600.0, "high_after": 1200.0}

    def act(connection: psycopg.Connection) -> None:
        got = execute(connection, claim.claim(Served([_NAME]), chance.choice([1, 10, 100]), me, **terms), None)
        crowd.operations["claimed"] += len(got)
        got.sort()  # one lock order for all who write many rows
        match chance.randrange(6):
            case 0:
                execute(connection, settle.extend(got, me, 1.0), None)
            case 1:
                failures = [Failure(row, "boom", "error", 0.0) for row in got]
                crowd.operations["failed"] += len(execute(connection, settle.fail(failures, me, 3), None)) if got else 0
            case 2:
                crowd.operations["released"] += len(execute(connection, settle.release(got, me), None))
            case _ if got:
                completions = [Completion(row, "null") for row in got]
                crowd.operations["completed"] += len(execute(connection, settle.complete(completions, me), None))

    return act


def _rescuer(config: Config, chance: random.Random, term: Term, crowd: Crowd) -> Callable[[psycopg.Connection], None]:
    def act(connection: psycopg.Connection) -> None:
        crowd.operations["rescued"] += len(execute(connection, maintenance.rescue(term, 3, 100), None))
        execute(connection, maintenance.fail_overdue(term, 0.0, 0.0, 100), None)

    return act


def _canceller(config: Config, chance: random.Random, term: Term, crowd: Crowd) -> Callable[[psycopg.Connection], None]:
    def act(connection: psycopg.Connection) -> None:
        unwanted = TaskFilter(state=["pending", "failed", "running"], name=_NAME)
        cancelled = execute(connection, control.cancel_batch(unwanted, 20, by="crowd"), None)
        crowd.operations["cancelled"] += cancelled.cancelled + cancelled.asked
        for (task,) in connection.execute("SELECT id FROM tasks WHERE state = 'cancelled' LIMIT 5").fetchall():
            assert isinstance(task, UUID)
            crowd.operations["replayed"] += execute(connection, control.replay(task, by="crowd"), None) is not None

    return act


def _deleter(config: Config, chance: random.Random, term: Term, crowd: Crowd) -> Callable[[psycopg.Connection], None]:
    def act(connection: psycopg.Connection) -> None:
        for state in ("completed", "cancelled"):
            page = execute(connection, maintenance.retain(term, Retention(state, days=0), [], None, 500), None)
            crowd.operations["deleted"] += page.deleted
        crowd.operations["deleted"] += len(execute(connection, maintenance.expire_dead_letters(term, 0.0, 500), None))

    return act


def _deadlocks(db: psycopg.Connection) -> int:
    row = db.execute("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()").fetchone()
    assert row is not None
    found: int = row[0]
    return found
