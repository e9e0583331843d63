"""Stats in the database: counted once, never less, and kept small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.stats import BOUNDS, Key, Stat
from tasklib.store import control, dead_letters, fleet, maintenance, stats
from tasklib.store.filters import DeadLetterFilter, TaskFilter
from tasklib.store.fleet import Term

BUCKETS = [0] * len(BOUNDS) + [0]


def stat(name: str = "send", outcome: str = "completed", count: int = 1, queue: str = "mail", why: str = "") -> Stat:
    buckets = [*BUCKETS]
    buckets[7] = count  # between half a second and one
    return Stat(Key(name, queue, "medium", outcome, why), count, count * 0.75, 2.0, buckets, buckets)


@pytest.fixture
def database(config: Config) -> Iterator[Database]:
    database = Database(config)
    yield database
    database.close()


@pytest.fixture
def term(database: Database) -> Term:
    term = database.run(fleet.lead("leader", 600))
    assert term is not None
    return term


def totals(database: Database) -> dict[tuple[str, str], int]:
    found: Counter[tuple[str, str]] = Counter()
    for t in database.run(stats.totals()):
        found[t.key.outcome, t.key.reason] += t.count
    return dict(found)


def test_what_a_worker_tells_twice_counts_once(database: Database, db: psycopg.Connection) -> None:
    db.execute("INSERT INTO workers (id) VALUES ('w')")
    for number in (1, 1, 2, 1):
        database.run(stats.add([stat(count=5)], worker="w", number=number))
    assert totals(database) == {("completed", ""): 10}
    database.run(stats.add([stat(count=1)]))
    database.run(stats.add([stat(count=1)], worker="no row", number=1))
    assert totals(database) == {("completed", ""): 12}


def test_totals_stay_exact_while_the_leader_folds_and_forgets(
    database: Database, db: psycopg.Connection, term: Term
) -> None:
    for age in ("0 s", "2 min", "5 hours", "5 hours 1 min", "3 days", "40 days"):
        database.run(stats.add([stat(), stat(outcome="failed", why="timeout", count=2)]))
        db.execute("UPDATE stats_deltas SET at = now() - %s::interval WHERE at > now() - interval '1 s'", [age])
    before = database.run(stats.totals())
    assert [(t.count, sum(t.buckets)) for t in before] == [(6, 6), (12, 12)]
    assert database.run(stats.fold(term, 100)) == 12
    assert database.run(stats.totals()) == before
    for span, age, into in stats.KEPT:
        database.run(stats.coarsen(term, span, age, into))
    assert database.run(stats.totals()) == before
    spans = db.execute("SELECT span, sum(count)::int, sum(buckets[8])::int FROM stats GROUP BY 1 ORDER BY 1").fetchall()
    assert spans == [(0, 18, 18), (60, 6, 6), (600, 6, 6), (3600, 3, 3)], "what is 40 days old is in the total alone"


def test_folding_in_batches_and_again_adds_up(database: Database, db: psycopg.Connection, term: Term) -> None:
    for _ in range(7):
        database.run(stats.add([stat()]))
    while database.run(stats.fold(term, 3)) == 3:
        assert totals(database) == {("completed", ""): 7}
    assert totals(database) == {("completed", ""): 7}
    assert db.execute("SELECT count(*) FROM stats_deltas").fetchone() == (0,)


def test_who_does_not_lead_folds_nothing(database: Database, term: Term) -> None:
    database.run(stats.add([stat()]))
    assert database.run(stats.fold(Term("leader", term.number + 1), 100)) == 0


def test_series_has_every_step_and_finds_what_is_told_in_any_span(
    database: Database, db: psycopg.Connection, term: Term
) -> None:
    database.run(stats.add([stat(count=4), stat(outcome="dead_letter", why="error")]))
    points = database.run(stats.series(minutes=60, step_seconds=60))
    assert 60 <= len(points) <= 61
    assert sum(p.of("completed") for p in points) == 4
    [busy] = [p for p in points if p.attempts]
    assert (busy.failures, busy.duration(0.5), busy.wait(0.99)) == (1, pytest.approx(0.75), pytest.approx(0.995))
    assert busy.mean_seconds == pytest.approx(0.75)
    db.execute("UPDATE stats_deltas SET at = at - interval '4 hours'")
    database.run(stats.fold(term, 100))
    for span, age, into in stats.KEPT:
        database.run(stats.coarsen(term, span, age, into))
    points = database.run(stats.series(minutes=1440, step_seconds=600))
    assert [p.of("completed") for p in points if p.attempts] == [4]
    assert sum(p.attempts for p in database.run(stats.series(minutes=60, step_seconds=60))) == 0
    with pytest.raises(ValueError, match="1 to 1500 steps"):
        stats.series(minutes=1441, step_seconds=1)


def test_the_busiest_names_and_queues_come_first(database: Database) -> None:
    told = [stat("a", count=2), stat("b", count=5), stat("b", outcome="failed", queue="slow"), stat("c")]
    database.run(stats.add([*told, Stat(Key("", "", "", "claim"), 1000)]))
    names = database.run(stats.by_name(60, limit=2))
    assert [(p.label, p.of("completed"), p.failures) for p in names] == [("b", 5, 1), ("a", 2, 0)]
    queues = database.run(stats.by_queue(60))
    assert [(p.label, p.attempts) for p in queues] == [("mail", 8), ("slow", 1)]
    assert [p.label for p in database.run(stats.by_name(60, queue="slow"))] == ["b"]
    assert sum(p.attempts for p in database.run(stats.series(60, 60, name="b"))) == 6


def _insert(db: psycopg.Connection, state: str, **columns: str) -> UUID:
    names, values = ", ".join(columns), ", ".join(columns.values())
    row = db.execute(
        f"INSERT INTO tasks (name, queue, priority, state, {names}) VALUES ('t', 'q', 100, '{state}', {values}) "
        "RETURNING id".encode()
    ).fetchone()
    assert row is not None
    found: UUID = row[0]
    return found


def test_what_no_worker_does_is_counted_by_the_statement_that_does_it(
    database: Database, db: psycopg.Connection, term: Term
) -> None:
    waits = _insert(db, "pending", tags="'{}'")
    runs = _insert(db, "running", worker_id="'w'", locked_until="now() + interval '1 h'")
    database.run(control.cancel(waits, by="ann"))
    database.run(control.cancel(runs, by="ann"))
    assert totals(database) == {("cancelled", ""): 1}, "what runs has only been asked"
    database.run(control.replay(waits, by="ann"))
    database.run(control.cancel_batch(TaskFilter(state="pending"), 10, by="ann"))
    assert totals(database) == {("cancelled", ""): 2, ("replayed", "cancelled"): 1}

    _insert(db, "running", worker_id="'gone'", locked_until="now() - interval '1 s'")
    crashed = {"crash_count": "2", "lease_token": "1"}
    _insert(db, "running", worker_id="'gone'", locked_until="now() - interval '1 s'", **crashed)
    _insert(db, "running", worker_id="'gone'", locked_until="now() - interval '1 s'", begun_token="1", **crashed)
    database.run(maintenance.rescue(term, 3, 10))
    _insert(
        db, "running", worker_id="'w'", locked_until="now() + interval '1 h'", timeout_seconds="1",
        started_at="now() - interval '1 h'", max_retries="0", lease_token="1", begun_token="1",
    )  # fmt: skip
    database.run(maintenance.fail_overdue(term, 30, 1, 10))
    database.run(dead_letters.replay(DeadLetterFilter(), None, 10, by="ann"))
    db.execute("INSERT INTO workers (id, last_heartbeat) VALUES ('silent', now() - interval '1 h')")
    database.run(fleet.bury_workers(term, forget_after=86400))
    assert totals(database) == {
        ("cancelled", ""): 2,
        ("replayed", "cancelled"): 1,
        ("failed", "lost"): 1,
        ("released", ""): 1,
        ("dead_letter", "lost"): 1,
        ("dead_letter", "timeout"): 1,
        ("replayed", "dead_letter"): 2,
        ("worker_died", ""): 1,
    }
    assert {t.key.level for t in database.run(stats.totals()) if t.key.outcome != "worker_died"} == {"high"}


def test_what_is_reported_over_http_is_counted_from_the_rows(database: Database, db: psycopg.Connection) -> None:
    started = "now() - interval '3 s'"
    done = _insert(db, "completed", completed_at="now()", started_at=started, scheduled_at="now() - interval '10 s'")
    failed = _insert(db, "failed", next_retry_at="now()", started_at=started, retry_count="1")
    stale = _insert(db, "pending", tags="'{}'")
    told = [(str(done), "completed", ""), (str(failed), "failed", "timeout"), (str(stale), "stale", "")]
    database.run(stats.reported(told))
    database.run(stats.reported([]))
    found = {t.key.outcome: t for t in database.run(stats.totals())}
    assert {(o, t.key.reason, t.count) for o, t in found.items()} == {
        ("completed", "", 1),
        ("failed", "timeout", 1),
        ("stale", "", 1),
    }
    assert found["completed"].seconds == pytest.approx(3.0)
    assert found["completed"].waited == pytest.approx(7.0)
    assert (sum(found["completed"].buckets), sum(found["completed"].waits)) == (1, 1)
    assert found["completed"].buckets[BOUNDS.index(5.0)] == 1
    assert found["failed"].waits == [], "when a retry was due is not known any more"
    assert found["stale"].buckets == []
