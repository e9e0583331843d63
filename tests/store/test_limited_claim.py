"""Claiming behind limits: never more than allowed, in order, and in turns."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest

from tasklib import Config
from tasklib.store import settle
from tasklib.store.claim import Claimed, Served
from tasklib.store.limited_claim import Admitted, Turn, claim_limited, name_lanes
from tasklib.store.settle import Completion, Failure
from tests.eventually import eventually
from tests.store.test_claim import Claiming, insert

ALL = Served(["n", "a", "b"])
TERMS = {"lease_seconds": 60.0, "medium_after": 600.0, "high_after": 1200.0}


def lane(*parts: str) -> str:
    """An SQL literal of the lane with these parts."""
    return "E'" + "".join(r"\x01" + part.replace("=", r"\x02") for part in parts) + "'"


class Limited(Claiming):
    """Claims behind limits, and remembers whose turn it is."""

    turn = Turn()

    def admit(self, limit: int, served: Served = ALL, worker: str = "w1") -> Admitted:
        admitted = self.run(claim_limited(served, limit, worker, self.turn, **TERMS))
        self.turn = admitted.turn
        return admitted

    def take(self, limit: int, served: Served = ALL, worker: str = "w1") -> list[Claimed]:
        return self.admit(limit, served, worker).tasks

    def complete(self, tasks: list[Claimed], worker: str = "w1") -> None:
        assert self.run(settle.complete([Completion(t, "{}") for t in tasks], worker)) == {t.id for t in tasks}

    def fail(self, task: Claimed, delay: float, worker: str = "w1") -> None:
        self.run(settle.fail([Failure(task, "boom", "error", delay)], worker, 3))


@pytest.fixture
def limited(config: Config) -> Iterator[Limited]:
    limited = Limited(config)
    yield limited
    limited.connection.close()


def set_limit(db: psycopg.Connection[Any], name: str, **values: object) -> None:
    columns = ", ".join(["name", *values])
    db.execute(f"INSERT INTO limits ({columns}) VALUES (%s{', %s' * len(values)})", [name, *values.values()])


def test_a_queue_runs_no_more_than_its_limit(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "queue:default", max_running=3)
    insert(db, 10, name="'n'")
    first = limited.take(10)
    assert len(first) == 3
    assert limited.take(10) == []
    limited.complete(first[:2])
    assert len(limited.take(10)) == 2


def test_the_plain_claim_takes_nothing_that_has_a_limit(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "queue:mail", max_running=3)
    set_limit(db, "name:a", max_running=3)
    insert(db, 2, queue="'mail'", name="'b'")
    insert(db, 2, name="'a'")
    insert(db, 1, name="'b'")
    assert [c.name for c in limited.claim(ALL, 10)] == ["b"]


def test_tasks_of_a_limited_name_move_into_the_lane_of_its_limit(limited: Limited, db: psycopg.Connection) -> None:
    insert(db, 3, name="'a'")
    insert(db, 2, name="'a'", lane="'a'")
    insert(db, 2, name="'a'", lane=lane("sacme"))
    insert(db, 3, name="'b'")
    set_limit(db, "name:a", max_running=6)
    assert limited.take(10) == []
    assert limited.run(name_lanes([("default", "\x01sacme")])).moved == 7
    assert limited.run(name_lanes([("default", "\x01sacme")])).moved == 0
    assert [c.name for c in limited.take(10)] == ["a"] * 6
    assert [c.name for c in limited.claim(ALL, 10)] == ["b"] * 3


def test_a_lane_with_misplaced_tasks_is_reported(limited: Limited, db: psycopg.Connection) -> None:
    insert(db, 2, name="'a'", lane=lane("sacme"))
    set_limit(db, "name:a", max_running=1)
    admitted = limited.admit(10)
    assert (admitted.tasks, admitted.misplaced) == ([], [("default", "\x01sacme")])


def test_declared_limits_apply_to_tasks_from_anywhere_with_their_keys(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=1)
    db.execute("""INSERT INTO limited_names VALUES ('a', '[{"limit": "stripe", "key": "account", "cost": 1}]')""")
    insert(db, 4, name="'a'", kwargs="jsonb_build_object('account', n % 2)")
    assert limited.claim(ALL, 10) == []
    assert limited.run(name_lanes()).moved == 4
    assert sorted(c.kwargs for c in limited.take(10)) == ['{"account": 0}', '{"account": 1}']


def test_a_limit_for_one_key_goes_before_that_for_all(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=1)
    set_limit(db, "stripe:big", max_running=3)
    insert(db, 5, name="'n'", lane=lane("lstripe=big"))
    insert(db, 5, name="'n'", lane=lane("lstripe=small"))
    assert sorted(c.lane_name for c in limited.take(10)) == ["\x01lstripe\x02big"] * 3 + ["\x01lstripe\x02small"]


def test_several_limits_are_taken_together_or_none(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "one", max_running=1)
    set_limit(db, "two", max_running=2)
    insert(db, 5, name="'n'", lane=lane("lone=", "ltwo="))
    insert(db, 5, name="'n'", lane=lane("ltwo="))
    assert sorted(c.lane_name for c in limited.take(10)) == ["\x01lone\x02\x01ltwo\x02", "\x01ltwo\x02"]
    assert limited.take(10) == []
    assert db.execute("SELECT count(*) FROM places").fetchone() == (3,)


def test_a_limit_that_another_claim_holds_is_passed_over_for_a_moment(
    limited: Limited, config: Config, db: psycopg.Connection
) -> None:
    set_limit(db, "one", max_running=2)
    set_limit(db, "two", max_running=1)
    insert(db, 5, name="'n'", lane=lane("lone="))
    insert(db, 5, name="'n'", lane=lane("ltwo="))
    other = Limited(config)
    with other.connection.transaction():
        assert len(other.take(1)) == 1
        admitted = limited.admit(10)
        assert [c.lane_name for c in admitted.tasks] == ["\x01ltwo\x02"]
        assert admitted.next_seconds == 0.005
    assert len(limited.take(10)) == 1
    other.connection.close()


def test_places_of_lost_attempts_count_no_longer(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "one", max_running=2)
    insert(db, 5, name="'n'", lane=lane("lone="))
    assert len(limited.take(10)) == 2
    # As if the statement that ended it knew nothing of places.
    db.execute("UPDATE tasks SET state = 'pending', worker_id = NULL, locked_until = NULL WHERE state = 'running'")
    assert len(limited.take(10)) == 2
    assert db.execute("SELECT count(*) FROM places").fetchone() == (2,)


def test_limits_that_are_removed_bound_nothing(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "queue:default", max_running=1)
    insert(db, 5, name="'n'")
    assert len(limited.take(10)) == 1
    db.execute("DELETE FROM limits")
    assert len(limited.claim(ALL, 10)) == 4


def test_what_runs_when_a_limit_is_set_counts(limited: Limited, db: psycopg.Connection) -> None:
    insert(db, 5, name="'n'")
    assert len(limited.claim(ALL, 2)) == 2
    set_limit(db, "queue:default", max_running=3)
    assert len(limited.take(10)) == 1


def test_what_runs_counts_when_a_limit_of_its_one_key_comes_and_goes(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "stripe", max_running=2)
    insert(db, 9, name="'n'", lane=lane("lstripe=big"))
    assert len(limited.take(1)) == 1
    set_limit(db, "stripe:big", max_running=3)
    assert len(limited.take(10)) == 2
    db.execute("DELETE FROM limits WHERE name = 'stripe:big'")
    assert limited.take(10) == []


def test_a_failed_task_holds_nothing_once_its_queue_is_no_longer_serial(
    limited: Limited, db: psycopg.Connection
) -> None:
    set_limit(db, "queue:default", serial="hold")
    insert(db, 3, name="'n'")
    (task,) = limited.take(10)
    limited.fail(task, 1000.0)
    db.execute("UPDATE limits SET serial = NULL, max_running = 2")
    assert len(limited.take(10)) == 2


def test_a_task_that_is_inserted_during_a_claim_is_asked_for_again(
    limited: Limited, db: psycopg.Connection, database_url: str
) -> None:
    """It is chosen and locked, and can't be leased: to other claims it seems to be taken."""
    with psycopg.connect(database_url) as holder, ThreadPoolExecutor(1) as thread:
        holder.execute("LOCK TABLE pauses")  # which the claim reads after it has begun
        claiming = thread.submit(limited.admit, 5)
        waits = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'pauses'::regclass"
        eventually(lambda: db.execute(waits).fetchone() == (1,))
        insert(db, 1, name="'n'", lane=lane("sacme"), scheduled_at="now() - interval '1 min'")
        holder.rollback()
        admitted = claiming.result(60)
    assert (admitted.tasks, admitted.has_left_some, admitted.next_seconds) == ([], True, 0)
    assert len(limited.take(5)) == 1


def test_priorities_and_due_times_decide_within_a_lane(limited: Limited, db: psycopg.Connection) -> None:
    insert(db, 1, name="'a'", lane=lane("lone="), priority="0", scheduled_at="now() - interval '1 min'")
    insert(db, 1, name="'n'", lane=lane("lone="), priority="0", scheduled_at="now() - interval '2 min'")
    insert(db, 1, name="'b'", lane=lane("lone="), priority="50")
    assert [limited.take(1)[0].name for _ in range(3)] == ["b", "n", "a"]


def test_a_serial_queue_runs_one_at_a_time_in_order_of_insertion(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "queue:default", serial="hold")
    for n in range(5):
        columns = {"priority": str((n * 7) % 5), "required_capabilities": "'{gpu}'" if n == 2 else "'{}'"}
        insert(db, 1, name="'n'", kwargs=f"jsonb_build_object('n', {n})", **columns)
    seen = []
    served = Served(["n"], capabilities=["gpu"])
    for _ in range(5):
        (task,) = limited.take(10, served)
        assert limited.take(10, served) == []
        seen.append(task.kwargs)
        limited.complete([task])
    assert seen == [f'{{"n": {n}}}' for n in range(5)]


def test_a_task_that_failed_holds_a_serial_queue_until_its_retry(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "queue:default", serial="hold")
    insert(db, 3, name="'n'")
    (task,) = limited.take(10)
    limited.fail(task, 1000.0)
    admitted = limited.admit(10)
    assert admitted.tasks == []
    assert 900 < (admitted.next_seconds or 0) <= 1000
    db.execute("UPDATE tasks SET next_retry_at = now() WHERE state = 'failed'")
    (again,) = limited.take(10)
    assert (again.id, again.token) == (task.id, 2)
    limited.complete([again])
    assert limited.take(10)[0].id != task.id


def test_a_task_that_failed_steps_aside_where_the_queue_says_so(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "queue:default", serial="aside")
    insert(db, 2, name="'n'")
    (task,) = limited.take(10)
    limited.fail(task, 1000.0)
    (other,) = limited.take(10)
    assert other.id != task.id


def test_a_task_that_waits_for_its_time_holds_no_serial_queue(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "queue:default", serial="hold")
    insert(db, 1, name="'a'", scheduled_at="now() + interval '1 h'")
    insert(db, 1, name="'b'")
    assert [c.name for c in limited.take(10)] == ["b"]


def test_a_worker_takes_no_later_task_of_a_serial_queue_than_the_next(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "queue:default", serial="hold")
    insert(db, 1, name="'a'")
    insert(db, 1, name="'b'")
    assert limited.take(10, Served(["b"])) == []
    assert [c.name for c in limited.take(10, Served(["a"]))] == ["a"]


def test_serial_keys_run_beside_each_other_and_one_by_one(limited: Limited, db: psycopg.Connection) -> None:
    for n in range(3):
        insert(db, 1, name="'n'", lane=lane("kann"), priority=str(n), kwargs=f"jsonb_build_object('n', {n})")
        insert(db, 1, name="'n'", lane=lane("kbob", "lone="), kwargs=f"jsonb_build_object('n', {n})")
    assert [c.kwargs for c in limited.take(10)] == ['{"n": 0}', '{"n": 0}']
    assert limited.take(10) == []


def test_tasks_with_serial_keys_are_moved_in_order(limited: Limited, config: Config, db: psycopg.Connection) -> None:
    """While one claim moves the first tasks of a name, another one must not bring later ones before them."""
    db.execute("""INSERT INTO limited_names VALUES ('a', '[{"serial": "account"}]')""")
    insert(db, 2, name="'a'", kwargs="""'{"account": "ann"}'""")
    other = Limited(config)
    with other.connection.transaction():
        assert other.run(name_lanes()) == (2, False)
        insert(db, 2, name="'a'", kwargs="""'{"account": "ann"}'""")
        assert limited.run(name_lanes()) == (0, True)
    assert limited.run(name_lanes()) == (2, False)
    other.connection.close()


def test_a_task_that_is_locked_holds_up_others_with_serial_keys(
    limited: Limited, db: psycopg.Connection, database_url: str
) -> None:
    db.execute("""INSERT INTO limited_names VALUES ('a', '[{"serial": "account"}]'), ('b', '[{"share": "account"}]')""")
    insert(db, 3, name="'a'", kwargs="""'{"account": "ann"}'""")
    insert(db, 3, name="'b'", kwargs="""'{"account": "ann"}'""")
    with psycopg.connect(database_url) as holder:
        for name in "ab":
            holder.execute("SELECT FROM tasks WHERE name = %s ORDER BY id LIMIT 1 FOR UPDATE", (name,))
        assert limited.run(name_lanes()) == (2, True)
    assert limited.run(name_lanes()) == (4, False)


def test_a_serial_key_has_one_order_over_lanes_with_other_limits(limited: Limited, db: psycopg.Connection) -> None:
    insert(db, 1, name="'a'", lane=lane("kann", "sacme"))
    insert(db, 1, name="'b'", lane=lane("kann"))
    insert(db, 1, name="'n'", lane=lane("kann", "lone="))
    seen = []
    for _ in range(3):
        (task,) = limited.take(10)
        seen.append(task.name)
        limited.complete([task])
    assert seen == ["a", "b", "n"]


def test_a_rate_admits_its_burst_and_then_says_when(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "one", rate=1, per=1000, burst=3)
    insert(db, 10, name="'n'", lane=lane("lone="))
    assert len(limited.take(10)) == 3
    admitted = limited.admit(10)
    assert admitted.tasks == []
    assert 900 < (admitted.next_seconds or 0) <= 1000
    db.execute("UPDATE limit_states SET empty_at = empty_at - interval '2000 s'")
    assert len(limited.take(10)) == 2


def test_a_task_that_costs_more_uses_more_of_a_rate(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "one", rate=1, per=1000, burst=5)
    insert(db, 10, name="'n'", lane=lane("lone==2"))
    assert len(limited.take(10)) == 2


def test_shares_take_turns_whatever_they_have_waiting(limited: Limited, db: psycopg.Connection) -> None:
    insert(db, 50, name="'n'", lane=lane("sbig"), scheduled_at="now() - interval '1 h'")
    insert(db, 3, name="'n'", lane=lane("ssmall"))
    assert [limited.take(1)[0].lane_name[2:] for _ in range(6)] == ["big", "small"] * 3
    assert len(limited.take(10)) == 10


def test_a_heavier_share_gets_more_in_its_turn(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "share:big", weight=3)
    insert(db, 50, name="'n'", lane=lane("sbig"))
    insert(db, 50, name="'n'", lane=lane("ssmall"))
    order = [limited.take(1)[0].lane_name[2:] for _ in range(8)]
    assert order == ["big", "big", "big", "small"] * 2
    counts = [c.lane_name[2:] for c in limited.take(40)]
    assert (counts.count("big"), counts.count("small")) == (30, 10)


def test_a_share_runs_no_more_than_its_own_unless_it_may_burst(limited: Limited, db: psycopg.Connection) -> None:
    set_limit(db, "share", max_running=2)
    set_limit(db, "share:b", max_running=2, may_burst=True)
    insert(db, 10, name="'n'", lane=lane("sa"))
    insert(db, 10, name="'n'", lane=lane("sb"))
    counts = [c.lane_name[2:] for c in limited.take(4)]
    assert (counts.count("a"), counts.count("b")) == (2, 2)
    assert [c.lane_name[2:] for c in limited.take(3)] == ["b"] * 3


def test_a_paused_name_or_queue_is_not_admitted(limited: Limited, db: psycopg.Connection) -> None:
    insert(db, 1, name="'a'", lane=lane("lone="))
    insert(db, 1, name="'b'", lane=lane("lone="), queue="'held'")
    db.execute("INSERT INTO pauses (kind, value) VALUES ('name', 'a'), ('queue', 'held')")
    assert limited.take(10) == []


def test_a_claim_passes_ten_thousand_shares_in_bounded_steps(limited: Limited, db: psycopg.Connection) -> None:
    insert(db, 10_000, name="'elsewhere'", lane=r"E'\x01s' || n")
    admitted = limited.admit(10)
    assert admitted.tasks == []
    assert admitted.next_seconds == 0
    assert admitted.turn.lane > "\x01s"


def test_a_task_that_a_claim_chose_and_left_keeps_its_place_in_a_serial_queue(
    limited: Limited, db: psycopg.Connection, database_url: str
) -> None:
    """A claim began to look before the leader took the first task from its lost worker, and chose after that."""
    set_limit(db, "queue:ledger", serial="hold")
    for ago in (2, 1):
        insert(db, 1, queue="'ledger'", name="'n'", scheduled_at=f"now() - interval '{ago} h'")
    [first] = limited.take(1)
    with psycopg.connect(database_url) as holding, ThreadPoolExecutor(1) as other:
        holding.execute("LOCK TABLE pauses IN ACCESS EXCLUSIVE MODE")
        late = other.submit(limited.admit, 1)
        waits = (
            "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock' AND query LIKE '%%tasklib_admit%%'"
        )
        eventually(lambda: db.execute(waits.encode()).fetchone() == (1,))
        db.execute(
            "UPDATE tasks SET state = 'failed', next_retry_at = now(), worker_id = NULL, locked_until = NULL "
            "WHERE id = %s",
            (first.id,),
        )
        holding.rollback()
        assert late.result().tasks == []
    assert [claimed.id for claimed in limited.take(2)] == [first.id]
