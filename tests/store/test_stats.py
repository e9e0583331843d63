"""Stats in the database: counted once, never less, and kept small."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from uuid import UUID

import psycopg
import pytest

from tasklib import Config
from tasklib.db.database import Database
from tasklib.sql import statement
from tasklib.stats import BOUNDS, Key, Stat
from tasklib.store import control, dead_letters, fleet, maintenance, stats
from tasklib.store.filters import DeadLetterFilter, TaskFilter
from tasklib.store.fleet import Term
from tests.store.test_claim import scans_of_tasks

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


def test_the_period_before_has_the_same_steps(database: Database, db: psycopg.Connection) -> None:
    database.run(stats.add([stat(count=4)]))
    db.execute("UPDATE stats_deltas SET at = at - interval '65 minutes'")
    database.run(stats.add([stat(count=7)]))
    now, before = (database.run(stats.series(60, 60, ago=ago)) for ago in (0.0, 3600.0))
    assert len(now) == len(before)
    assert (sum(p.attempts for p in now), sum(p.attempts for p in before)) == (7, 4)


def test_attempts_are_known_by_worker_before_and_after_the_fold(
    database: Database, db: psycopg.Connection, term: Term
) -> None:
    db.execute("INSERT INTO workers (id) VALUES ('w1'), ('w2')")
    database.run(
        stats.add([stat(count=3), stat("other", count=2), Stat(Key("", "", "", "claim"), 9)], worker="w1", number=1)
    )
    database.run(stats.add([stat(count=5), stat(outcome="failed")], worker="w2", number=1))
    for _ in range(2):
        found = database.run(stats.by_worker(60))
        assert [(p.label, p.of("completed"), p.failures) for p in found] == [("w2", 5, 1), ("w1", 5, 0)]
        assert sum(p.attempts for p in database.run(stats.series(60, 60, worker="w2"))) == 6
        assert sum(p.attempts for p in database.run(stats.series(60, 60))) == 11, "nothing counts twice"
        steps = database.run(stats.series_by("worker", 60, 60, limit=1))
        assert {p.label: p.attempts for _, some in steps for p in some} == {"w2": 6, "": 5}
        database.run(stats.fold(term, 100))
    assert totals(database) == {("completed", ""): 10, ("failed", ""): 1, ("claim", ""): 9}


def test_single_workers_are_forgotten_after_two_days_and_a_large_fleet_shares_a_label(
    database: Database, db: psycopg.Connection, term: Term, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "MOST_WORKERS", 2)
    for worker in ("w1", "w2", "w3", "w4"):
        database.run(stats.add([stat(count=2)], worker=worker, number=1))
    database.run(stats.fold(term, 100))
    assert {p.label: p.attempts for p in database.run(stats.by_worker(60))} == {"(other)": 4, "w1": 2, "w2": 2}
    for age in ("3 hours 20 min", "3 days"):
        db.execute("UPDATE stats SET start = start - %s::interval WHERE span <> 0", [age])
        for span, kept, into in stats.KEPT:
            database.run(stats.coarsen(term, span, kept, into))
    assert database.run(stats.by_worker(20_000)) == []
    assert sum(p.attempts for p in database.run(stats.series(20_000, 3600))) == 8


def _submit(db: psycopg.Connection, count: int, name: str, seconds_into_minute: float = 10) -> None:
    """Tasks of the minute before the last one, by their ids."""
    db.execute(
        """INSERT INTO tasks (id, name, queue)
           SELECT (lpad(to_hex((1000 * (extract(epoch FROM date_trunc('minute', now())) - 120 + %s))::bigint), 12, '0')
                   || right(replace(tasklib_new_id()::text, '-', ''), 20))::uuid, %s, 'mail'
           FROM generate_series(1, %s)""",
        (seconds_into_minute, name, count),
    )


def _arrivals(database: Database, **only: str) -> list[tuple[int, float]]:
    return [
        (p.of("submitted"), p.counted_seconds())
        for p in database.run(stats.series(30, 60, **only))  # type: ignore[arg-type]
        if p.stats
    ]


def test_submissions_are_counted_once_by_the_minute_of_their_ids(
    database: Database, db: psycopg.Connection, term: Term
) -> None:
    _submit(db, 5, "a")
    _submit(db, 3, "b")
    for _ in range(3):
        database.run(stats.count_arrivals(term, most_minutes=10))
    counted = _arrivals(database)
    assert [number for number, _ in counted if number] == [8]
    assert all(seconds == 60 for _, seconds in counted)
    assert len(counted) == 10, "the ten minutes before: those without a submission are known to have none"
    of_one_name = _arrivals(database, name="b")
    assert [number for number, _ in of_one_name if number] == [3]
    assert len(of_one_name) == 10
    assert [p.of("submitted") for p in database.run(stats.by_queue(60))] == [8]
    assert totals(database) == {}, "no metric counts them"


def test_of_very_many_submissions_the_first_ones_stand_for_the_minute(
    database: Database, db: psycopg.Connection, term: Term, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stats, "MOST_ARRIVALS", 30)
    for tenth in range(60):
        _submit(db, 3, "a", tenth + 0.5)
    database.run(stats.count_arrivals(term))
    [number] = [number for number, _ in _arrivals(database) if number]
    assert number == pytest.approx(180, rel=0.1)
    reasons = db.execute("SELECT reason FROM stats WHERE outcome = 'arrivals_counted' AND reason <> ''").fetchall()
    assert reasons == [("sampled",)]


def test_only_the_leader_counts_submissions(database: Database, db: psycopg.Connection, term: Term) -> None:
    _submit(db, 5, "a")
    database.run(stats.count_arrivals(Term("leader", term.number + 1)))
    assert _arrivals(database) == []


def test_counting_submissions_reads_the_minute_alone(database: Database, db: psycopg.Connection, term: Term) -> None:
    db.execute(
        "INSERT INTO tasks (name, state, completed_at) SELECT 'x', 'completed', now() FROM generate_series(1, 20000)"
    )
    _submit(db, 50, "a")
    db.execute("ANALYZE tasks")
    query = stats.count_arrivals(term)
    row = db.execute(
        ("EXPLAIN (ANALYZE, FORMAT JSON) " + statement(query.name, None)).encode(), query.parameters
    ).fetchone()
    assert row is not None
    scans = list(scans_of_tasks(row[0][0]["Plan"]))
    assert scans
    for scan in scans:
        assert scan["Node Type"] != "Seq Scan"
        assert scan["Actual Rows"] * scan["Actual Loops"] <= 60


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
    database.run(stats.reported("w", told))
    database.run(stats.reported("w", []))
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
    assert [(p.label, p.attempts) for p in database.run(stats.by_worker(60))] == [("w", 2)]
