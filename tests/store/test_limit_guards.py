"""The guards of places, of limits that a throttled attempt holds, and of what a worker passes on."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import execute
from tasklib.store import claim, limits, settle
from tasklib.store.claim import Claimed, Served
from tasklib.store.limits import PlaceRequest
from tasklib.store.settle import Failure, Lease
from tests.store.test_limited_claim import ALL, Limited, lane, set_limit


@pytest.fixture
def limited(config: Config) -> Iterator[Limited]:
    limited = Limited(config)
    yield limited
    limited.connection.close()


# ---- places of blocks ----


def running(limited: Limited, db: psycopg.Connection[Any], count: int) -> list[Claimed]:
    db.execute("INSERT INTO tasks (name) SELECT 'n' FROM generate_series(1, %s)", [count])
    return limited.claim(ALL, count, "w1")


def asked(block: int = 1) -> PlaceRequest:
    return PlaceRequest(limit="api", key="", cost=1, block=block, nested=0)


def test_a_block_takes_places_for_the_attempt_that_holds_the_task_only(
    limited: Limited, db: psycopg.Connection[Any]
) -> None:
    set_limit(db, "api", max_running=5)
    (task,) = running(limited, db, 1)
    assert limited.run(limits.take_place(Lease(task.id, task.token + 1), "w1", asked())) is None
    assert limited.run(limits.take_place(task, "w2", asked())) is None
    assert db.execute("SELECT FROM places").fetchall() == []
    assert limited.run(limits.take_place(task, "w1", asked())) is not None
    limited.complete([task])
    assert limited.run(limits.take_place(task, "w1", asked(2))) is None, "it has ended"


def test_a_block_gives_back_what_it_has_taken_itself(limited: Limited, db: psycopg.Connection[Any]) -> None:
    set_limit(db, "api", max_running=5)
    first, second = running(limited, db, 2)
    for task, block in ((first, 1), (first, 2), (second, 1)):
        limited.run(limits.take_place(task, "w1", asked(block)))
    before = Lease(first.id, first.token - 1)
    db.execute("UPDATE places SET token = token - 1 WHERE task = %s AND block = 2", [first.id])

    def left() -> list[tuple[str, int]]:
        return db.execute("SELECT task::text, block FROM places ORDER BY task, block").fetchall()

    whole = left()
    for lease, worker, block in ((first, "w2", 1), (before, "w1", 2), (first, "w1", 2), (first, "w1", 3)):
        limited.run(limits.leave_place(lease, worker, block))
        assert left() == whole
    limited.run(limits.leave_place(first, "w1", 1))
    assert left() == [each for each in whole if each != (first.id, 1)]


# ---- limits that are held ----


def held(db: psycopg.Connection[Any]) -> list[tuple[str, str]]:
    return db.execute("SELECT limit_name, key FROM limit_states WHERE blocked_until > now() ORDER BY 1, 2").fetchall()


def throttle(limited: Limited, task: Claimed, outcome: str = "throttled", limit: str | None = None) -> None:
    limited.run(settle.fail([Failure(task, "busy", outcome, 3600.0, limit=limit)], "w1", 3))


def behind(limited: Limited, db: psycopg.Connection[Any], *parts: str) -> Claimed:
    db.execute(f"INSERT INTO tasks (name, lane) VALUES ('n', {lane(*parts)})".encode())
    (task,) = limited.take(1)
    return task


def test_only_an_attempt_that_was_throttled_holds_its_limits(limited: Limited, db: psycopg.Connection[Any]) -> None:
    set_limit(db, "api", max_running=5)
    throttle(limited, behind(limited, db, "lapi=ann"), "error")
    throttle(limited, behind(limited, db, "lapi=ann"), "error", limit="other")
    assert held(db) == []
    throttle(limited, behind(limited, db, "lapi=ann"))
    assert held(db) == [("api", "ann")]


def test_one_that_was_cancelled_meanwhile_holds_nothing(limited: Limited, db: psycopg.Connection[Any]) -> None:
    set_limit(db, "api", max_running=5)
    for named in (None, "other"):
        task = behind(limited, db, "lapi=ann")
        db.execute("UPDATE tasks SET cancel_requested_at = now() WHERE id = %s", [task.id])
        throttle(limited, task, limit=named)
    assert held(db) == []


def test_of_several_limits_the_one_that_was_named_is_held(limited: Limited, db: psycopg.Connection[Any]) -> None:
    for name in ("api", "database"):
        set_limit(db, name, max_running=5)
    throttle(limited, behind(limited, db, "lapi=ann", "ldatabase="), limit="api")
    assert held(db) == [("api", "ann")]
    throttle(limited, behind(limited, db, "lapi=bob", "ldatabase="))
    assert held(db) == [("api", "ann"), ("api", "bob"), ("database", "")]


def test_shares_and_the_names_of_lanes_are_no_limits(limited: Limited, db: psycopg.Connection[Any]) -> None:
    set_limit(db, "share", max_running=5)
    throttle(limited, behind(limited, db, "sacme"))
    db.execute("INSERT INTO tasks (name, lane) VALUES ('lapi', 'lapi')")
    (apart,) = limited.claim(Served(["lapi"]), 1, "w1")
    throttle(limited, apart)
    (plain,) = running(limited, db, 1)
    throttle(limited, plain)
    assert held(db) == []
    assert db.execute("SELECT name FROM limits").fetchall() == [("share",)]


# ---- passing on ----


class Passed:
    """What a worker that was woken wakes others for. The functions that notify them are replaced in a transaction."""

    def __init__(self, db: psycopg.Connection[Any]) -> None:
        self.db = db
        db.execute("CREATE TEMPORARY TABLE woken (queue text, name text, capabilities text[], tasks bigint)")
        db.execute(
            "CREATE OR REPLACE FUNCTION tasklib_wake_for(queue text, name text, capabilities text[], tasks bigint, "
            "but text DEFAULT NULL) RETURNS void LANGUAGE sql AS $$ INSERT INTO woken VALUES ($1, $2, $3, $4) $$"
        )
        db.execute(
            "CREATE OR REPLACE FUNCTION tasklib_wake_all(message text DEFAULT '') RETURNS void LANGUAGE sql "
            "AS $$ INSERT INTO woken VALUES ('*') $$"
        )

    def insert(self, name: str, queue: str = "default", lane_: str = "''", due: str = "now()") -> None:
        self.db.execute(
            f"INSERT INTO tasks (name, queue, lane, scheduled_at) VALUES (%s, %s, {lane_}, {due})".encode(),
            [name, queue],
        )

    def on(self, names: list[str], queues: list[str] | None = None) -> list[tuple[str, str | None, int | None]]:
        """The queue and name of each kind of task, and for how many."""
        self.db.execute("TRUNCATE woken")
        execute(self.db, claim.pass_on(Served(names, queues), "w1"), None)
        return self.db.execute("SELECT queue, name, tasks FROM woken ORDER BY 1, 2").fetchall()


@pytest.fixture
def passed(db: psycopg.Connection[Any]) -> Iterator[Passed]:
    with db.transaction(force_rollback=True):
        db.execute("ALTER TABLE tasks DISABLE TRIGGER tasks_wake")
        yield Passed(db)


def test_due_tasks_of_its_names_and_queues_are_passed_on(passed: Passed) -> None:
    for _ in range(3):
        passed.insert("a")
    passed.insert("b", "mail")
    passed.insert("foreign")
    passed.insert("a", due="now() + interval '1 hour'")
    assert passed.on(["a", "b"]) == [("default", "a", 3), ("mail", "b", 1)]
    assert passed.on(["a", "b"], ["mail"]) == [("mail", "b", 1)]


def test_what_is_paused_is_not_passed_on(passed: Passed) -> None:
    passed.insert("a")
    passed.insert("a", "mail")
    passed.insert("b", "mail")
    passed.insert("b", "mail", lane("lapi="))
    passed.db.execute("INSERT INTO pauses (kind, value) VALUES ('queue', 'default'), ('name', 'a')")
    assert passed.on(["a", "b"]) == [("mail", "b", 2)]
    passed.db.execute("INSERT INTO pauses (kind, value) VALUES ('open_breaker', 'b')")
    assert passed.on(["a", "b"]) == []
    passed.db.execute("DELETE FROM pauses WHERE kind <> 'queue'")
    passed.insert("a", "default", lane("lapi="))
    assert passed.on(["a"], ["default"]) == []


def test_of_each_lane_behind_limits_one_task_is_passed_on(passed: Passed) -> None:
    for key in ("ann", "bob"):
        passed.insert("a", lane_=lane(f"lapi={key}"))
        passed.insert("a", lane_=lane(f"lapi={key}"))
    passed.insert("a", "mail", lane("lapi=ann"))
    passed.insert("a", "mail", lane("lapi=ann"), due="now() + interval '1 hour'")
    passed.insert("a", "later", lane("lapi=ann"), due="now() + interval '1 hour'")
    assert passed.on(["a"]) == [("default", "a", 2), ("mail", "a", 1)]
    assert passed.on(["a"], ["mail"]) == [("mail", "a", 1)]


def test_tasks_at_a_gate_and_those_that_ended_are_not_passed_on(passed: Passed) -> None:
    passed.insert("a", lane_=lane("lapi=ann"))
    passed.db.execute("UPDATE tasks SET waits_for = gen_random_uuid()")
    passed.insert("a", lane_=lane("lapi=bob"))
    passed.db.execute("UPDATE tasks SET state = 'completed', completed_at = now() WHERE waits_for IS NULL")
    assert passed.on(["a"]) == []


def test_lanes_of_limited_queues_and_names_are_passed_on_and_no_others_behind_them(passed: Passed) -> None:
    passed.db.execute("INSERT INTO pauses (kind, value) VALUES ('limited_queue', 'bounded'), ('limited_name', 'a')")
    for name in ("a", "b"):
        passed.insert(name, "bounded", f"'{name}'")
        passed.insert(name, "default", f"'{name}'")
    passed.insert("c", "default", "'c'")
    assert passed.on(["a", "b", "c"]) == [
        ("bounded", "a", 1), ("bounded", "b", 1), ("default", "a", 1), ("default", "b", 1), ("default", "c", 1),
    ]  # fmt: skip
