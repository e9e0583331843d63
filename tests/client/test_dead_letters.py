"""Dead letters: looked at, grouped by cause, replayed and purged, one or many."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasklib import Client, Config
from tasklib.client import dead_letters
from tasklib.client.effects import Effect, Pause
from tasklib.db.database import Database
from tasklib.db.query import Query
from tasklib.errors import InvalidOption, TaskNotFound
from tasklib.sql import statement
from tasklib.store import claim
from tasklib.store import dead_letters as store
from tasklib.store.claim import Served
from tasklib.store.dead_letters import DeadLetterPlace
from tasklib.store.filters import DeadLetterFilter
from tests.client.conftest import Either
from tests.store.test_claim import rows_read

TRACEBACK = "Traceback (most recent call last):\n  File x, line 3\n"


def die(db: psycopg.Connection, name: str, error: str | None, *, ago: float = 60, queue: str = "default") -> UUID:
    """A task that was given up so many seconds ago."""
    row = db.execute(
        "INSERT INTO tasks (name, queue, state, error, completed_at, retry_count, lease_token, crash_count, history) "
        "VALUES (%s, %s, 'dead_letter', %s, now() - make_interval(secs => %s), 3, 4, 1, '[{\"outcome\": \"error\"}]') "
        "RETURNING id",
        [name, queue, error, ago],
    ).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def fingerprint(db: psycopg.Connection, name: str, error: str | None) -> str:
    return str(db.execute("SELECT tasklib_fingerprint(%s, %s)", [name, error]).fetchall()[0][0])


# ---- looking ----


async def test_dead_letters_come_latest_first_and_in_pages(either: Either, db: psycopg.Connection) -> None:
    made = [die(db, "mail", "x", ago=n % 3) for n in range(7)]
    db.execute("INSERT INTO tasks (name) VALUES ('mail')")
    for by_task in (True, False):
        pages, after = [], None
        while page := await either.dead_letters(after=after, limit=3):
            pages.append([t.id for t in page])
            after = page[-1] if by_task else page[-1].id
        assert [len(p) for p in pages] == [3, 3, 1]
        assert {i for p in pages for i in p} == set(made)
        assert pages == [p for p in pages if p], "no gaps, no repeats"
    times = [t.completed_at for t in await either.dead_letters()]
    assert times == sorted(times, reverse=True)


@pytest.mark.parametrize(
    ("filters", "found"),
    [
        ({"name": "mail"}, {"old", "new"}),
        ({"queue": "slow"}, {"other"}),
        ({"error": "REFUSED"}, {"new"}),
        ({"error": "100% _"}, {"old"}),
        ({"since": timedelta(minutes=-5)}, {"new", "other"}),
        ({"until": timedelta(minutes=-5)}, {"old"}),
        ({"name": "mail", "error": "nothing like it"}, set()),
    ],
)
async def test_dead_letters_are_found_by_name_queue_error_and_time(
    either: Either, db: psycopg.Connection, filters: dict[str, Any], found: set[str]
) -> None:
    made = {
        die(db, "mail", "100% _full", ago=3600): "old",
        die(db, "mail", TRACEBACK + "ConnectionError: refused"): "new",
        die(db, "resize", None, queue="slow"): "other",
    }
    wanted = {k: datetime.now(UTC) + v if isinstance(v, timedelta) else v for k, v in filters.items()}
    assert {made[t.id] for t in await either.dead_letters(**wanted)} == found
    assert {made[i] for i in await either.replay_dead_letters(**wanted, dry_run=True)} == found
    assert {made[i] for i in await either.purge_dead_letters(**wanted, dry_run=True)} == found
    assert sum(g.count for g in await either.dead_letter_groups(**wanted)) == len(found)


async def test_page_behind_a_task_that_is_no_dead_letter_is_refused(either: Either, db: psycopg.Connection) -> None:
    dead = die(db, "mail", "x")
    [task] = await either.dead_letters()
    await either.replay_task(dead)
    assert await either.dead_letters(after=task) == [], "the task as it was still says where the page ended"
    with pytest.raises(InvalidOption, match="this task is pending"):
        await either.dead_letters(after=dead)
    with pytest.raises(TaskNotFound):
        await either.dead_letters(after=UUID(int=1))


# ---- groups ----

SAME = [
    ("KeyError: 'user-17'", "KeyError: 'user-18'"),
    ('no row "a b"', 'no row "c"'),
    ("timeout after 30 s", "timeout after 31.5 s"),
    ("at 0x7f8a11", "at 0x1b00ff"),
    ("id 01a1dd47-8abe-7000-88f7-23ce691e1a85 is gone", "id abcdefab-cdef-abcd-efab-cdefabcdefab is gone"),
    ("commit deadbeef", "commit 1234567"),
    ("10.0.0.1:5432 refused", "192.168.7.9:5433 refused"),
    ("worker web-7-1f00 was lost in attempt 1", "worker batch-9-beef was lost in attempt 2"),
    ("a\nb\nValueError: 1\n", "c\nValueError: 2"),
    ("can't open 'a'", "can't open 'b'"),
    ("-5 is too small", "7 is too small"),
    (None, ""),
]
DIFFERENT = [("KeyError: 'a'", "ValueError: 'a'"), ("x is gone", "y is gone"), ("decade", "facade"), ("x", "")]


@pytest.mark.parametrize(("one", "other"), SAME)
def test_errors_that_differ_in_ids_and_numbers_have_one_fingerprint(
    db: psycopg.Connection, one: str | None, other: str
) -> None:
    assert fingerprint(db, "mail", one) == fingerprint(db, "mail", other)
    assert fingerprint(db, "mail", one) != fingerprint(db, "resize", one)


@pytest.mark.parametrize(("one", "other"), DIFFERENT)
def test_errors_that_differ_in_words_have_different_fingerprints(db: psycopg.Connection, one: str, other: str) -> None:
    assert fingerprint(db, "mail", one) != fingerprint(db, "mail", other)


@settings(max_examples=200)
@given(error=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=200))
def test_every_error_has_a_fingerprint_and_always_the_same(db: psycopg.Connection, error: str) -> None:
    found = fingerprint(db, "mail", error)
    assert len(found) == 32
    assert found == fingerprint(db, "mail", f"something above\n{error}") or "\n" in error or not error.strip()


async def test_groups_say_how_many_since_when_and_show_the_newest(either: Either, db: psycopg.Connection) -> None:
    die(db, "mail", TRACEBACK + "KeyError: 'a'", ago=300)
    newest = die(db, "mail", TRACEBACK + "KeyError: 'b'\n", ago=30)
    die(db, "mail", TRACEBACK + "OSError: full", ago=10)
    die(db, "resize", TRACEBACK + "KeyError: 'a'", ago=20)
    first, second, third = await either.dead_letter_groups()
    assert (first.name, first.count, first.sample_id, first.error) == ("mail", 2, newest, "KeyError: 'b'")
    assert first.last_seen - first.first_seen > timedelta(seconds=200)
    assert {(g.name, g.error) for g in (second, third)} == {("mail", "OSError: full"), ("resize", "KeyError: 'a'")}
    assert await either.dead_letter_groups(limit=1) == [first]
    for beginning in (first.fingerprint, first.fingerprint[:8]):
        assert {t.name for t in await either.dead_letters(fingerprint=beginning)} == {"mail"}
        assert len(await either.dead_letters(fingerprint=beginning)) == 2


def explained(db: psycopg.Connection, query: Query[Any]) -> dict[str, Any]:
    text = "EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) " + statement(query.name, None)
    with db.transaction(force_rollback=True):
        plan: dict[str, Any] = db.execute(text.encode(), query.parameters).fetchall()[0][0][0]["Plan"]
    return plan


def test_groups_read_dead_letters_only(db: psycopg.Connection) -> None:
    db.execute(
        "INSERT INTO tasks (name, state, completed_at) SELECT 'w', 'completed', now() FROM generate_series(1, 20000)"
    )
    for n in range(20):
        die(db, "mail", f"error {n}")
    db.execute("ANALYZE tasks")
    assert rows_read(explained(db, store.groups(DeadLetterFilter(), 20))) <= 21


@pytest.mark.parametrize("take", [store.replay, store.purge], ids=lambda f: f.__name__)
def test_batch_begins_where_the_last_one_ended_even_if_all_were_given_up_at_once(
    take: Any, db: psycopg.Connection
) -> None:
    db.execute(
        "INSERT INTO tasks (name, state, completed_at, error) "
        "SELECT 'mail', 'dead_letter', now(), 'KeyError: ' || n FROM generate_series(1, 5000) AS n"
    )
    db.execute("ANALYZE tasks")
    middle = db.execute("SELECT completed_at, id::text FROM tasks ORDER BY id OFFSET 2500 LIMIT 1").fetchall()[0]
    chosen = DeadLetterFilter(fingerprint=fingerprint(db, "mail", "KeyError: 1"))
    # Each row once to find it and once to change it.
    assert rows_read(explained(db, take(chosen, DeadLetterPlace(*middle), 100, by="test"))) <= 2 * 100 + 1


# ---- replay ----


async def test_replay_resets_retries_and_crashes_keeps_the_token_and_is_recorded(
    either: Either, db: psycopg.Connection
) -> None:
    dead = die(db, "mail", "boom")
    assert await either.replay_dead_letters(ids=[dead]) == [dead]
    row = db.execute(
        "SELECT state, retry_count, crash_count, error, completed_at, lease_token, history->0->>'outcome', "
        "history->1->>'outcome', history->1->>'was', history->1->>'error' FROM tasks"
    ).fetchone()
    assert row == ("pending", 0, 0, None, None, 4, "error", "replayed", "dead_letter", "boom")
    assert await either.replay_dead_letters(ids=[dead]) == [], "it is no dead letter any more"


async def test_replay_takes_the_oldest_first_and_stops_at_the_limit(either: Either, db: psycopg.Connection) -> None:
    made = [die(db, "mail", "x", ago=100 - n) for n in range(10)]
    assert await either.replay_dead_letters(name="mail", limit=4, dry_run=True) == made[:4]
    assert await either.replay_dead_letters(name="mail", limit=4) == made[:4]
    assert await either.replay_dead_letters(name="mail") == made[4:]


async def test_replay_by_fingerprint_takes_that_group_and_no_other(either: Either, db: psycopg.Connection) -> None:
    wanted = {die(db, "mail", f"KeyError: {n}") for n in range(3)}
    die(db, "mail", "OSError")
    print_ = fingerprint(db, "mail", "KeyError: 9")
    assert set(await either.replay_dead_letters(fingerprint=print_[:8])) == wanted


async def test_replay_and_purge_go_through_more_than_one_batch(
    either: Either, db: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(dead_letters, "BATCH", 10)
    made = {die(db, "mail" if n % 2 else "resize", f"error {n}", ago=n % 5) for n in range(55)}
    replayed = await either.replay_dead_letters(name="mail")
    assert len(replayed) == 27
    purged = await either.purge_dead_letters(everything=True)
    assert len(purged) == 28
    assert set(replayed) | set(purged) == made


def test_ramp_lets_a_fifth_of_a_second_in_at_a_time_and_takes_nothing_twice(
    config: Config, db: psycopg.Connection
) -> None:
    """During each pause everything that was replayed dies again."""
    pauses: list[float] = []

    class Watched(Client):
        def _do(self, effect: Effect) -> Any:
            if not isinstance(effect, Pause):
                return super()._do(effect)
            pauses.append(effect.seconds)
            db.execute("UPDATE tasks SET state = 'dead_letter', completed_at = now() WHERE state = 'pending'")
            return None

    made = [die(db, "mail", f"error {n}", ago=100 - n) for n in range(25)]
    with Watched(config) as client:
        assert client.replay_dead_letters(name="mail", per_second=50) == made
    assert pauses == [0.2, 0.2]


async def test_replayed_task_wakes_a_worker_and_can_be_claimed(
    either: Either, config: Config, db: psycopg.Connection
) -> None:
    dead = die(db, "mail", "x")
    db.execute("LISTEN tasklib_public")
    await either.replay_dead_letters(everything=True)
    assert {n.payload for n in db.notifies(timeout=120, stop_after=1)} == {""}
    database = Database(config)
    [claimed] = database.run(claim.claim(Served(["mail"]), 1, "w", lease_seconds=60, medium_after=600, high_after=1200))
    database.close()
    assert (claimed.id, claimed.token, claimed.retry_count) == (str(dead), 5, 0)


async def test_rows_locked_by_another_session_are_left_out_and_not_waited_for(
    either: Either, db: psycopg.Connection, database_url: str
) -> None:
    locked, free = die(db, "mail", "x", ago=9), die(db, "mail", "x", ago=5)
    with psycopg.connect(database_url) as other:
        other.execute("SELECT FROM tasks WHERE id = %s FOR UPDATE", [locked])
        assert await either.replay_dead_letters(name="mail") == [free]
    assert await either.purge_dead_letters(name="mail") == [locked]


# ---- purge, and what is refused ----


async def test_purge_deletes_dead_letters_and_nothing_else(either: Either, db: psycopg.Connection) -> None:
    dead = die(db, "mail", "x")
    alive = db.execute("INSERT INTO tasks (name) VALUES ('mail') RETURNING id").fetchall()[0][0]
    assert await either.purge_dead_letters(ids=[dead, alive]) == [dead]
    assert db.execute("SELECT id FROM tasks").fetchall() == [(alive,)]


@pytest.mark.parametrize("verb", ["replay", "purge"])
async def test_no_condition_is_refused_and_no_ids_are_none(either: Either, db: psycopg.Connection, verb: str) -> None:
    die(db, "mail", "x")
    call = getattr(either, f"{verb}_dead_letters")
    with pytest.raises(InvalidOption, match=f"would {verb} every dead letter"):
        await call()
    assert await call(ids=[]) == []
    assert len(await call(everything=True)) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"fingerprint": "xyz"},
        {"fingerprint": "abc"},
        {"fingerprint": "%"},
        {"ids": ["nonsense"]},
        {"error": ""},
        {"name": ""},
        {"since": datetime(2020, 1, 1)},
        {"name": "a", "limit": 0},
        {"name": "a", "per_second": 0},
        {"name": "a", "per_second": float("nan")},
    ],
    ids=str,
)
async def test_nonsense_is_refused(either: Either, options: dict[str, Any]) -> None:
    with pytest.raises(InvalidOption):
        await either.replay_dead_letters(**options)


# ---- at a bounded cost ----


async def test_causes_are_those_of_the_latest_dead_letters(either: Either, db: psycopg.Connection) -> None:
    for n in range(6):
        die(db, "mail", f"no route to host {n}", ago=100 - n)
    for n in range(4):
        die(db, "sms", f"refused {n}", ago=10 - n)
    everything = await either.latest_dead_letter_groups()
    assert ([(g.name, g.count) for g in everything.groups], everything.looked_at) == ([("mail", 6), ("sms", 4)], None)
    latest = await either.latest_dead_letter_groups(look=5)
    assert ([(g.name, g.count) for g in latest.groups], latest.looked_at) == ([("sms", 4), ("mail", 1)], 5)


async def test_dead_letters_of_one_cause_come_in_pages_and_say_where_looking_ended(
    either: Either, db: psycopg.Connection
) -> None:
    cause = fingerprint(db, "mail", "no route to host 1")
    made = [die(db, "mail", f"no route to host {n}", ago=100 - n) for n in range(6)]
    for n in range(4):
        die(db, "sms", f"refused {n}", ago=10 - n)
    page = await either.dead_letters_alike(cause, limit=4)
    assert [t.id for t in page.tasks] == made[:1:-1]
    page = await either.dead_letters_alike(cause, limit=4, after=page.after)
    assert ([t.id for t in page.tasks], page.after, page.looked_at) == (made[1::-1], None, None)
    page = await either.dead_letters_alike(cause, look=3)
    assert (page.tasks, page.looked_at) == ([], 3)
    page = await either.dead_letters_alike(cause, look=3, after=page.after)
    assert ([t.id for t in page.tasks], page.looked_at) == (made[:3:-1], 3)
