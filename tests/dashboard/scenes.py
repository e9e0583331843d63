"""What the screens show in tests: a fleet in the middle of its work, and strings that mean harm."""

from __future__ import annotations

import json
from typing import Any

import psycopg

from tasklib.stats import BOUNDS
from tests.dashboard.conftest import Site

HOSTILE = (
    "<script>alert(1)</script>",
    '"><img src=x onerror=alert(1)>',
    "\u202eevitceles ,\u05d0\u05d1\u05d2\u202d'\"`{{7*7}}${7*7}",
    "a" * 10_000,
)
_ERROR = (
    'Traceback (most recent call last):\n  File "mail.py", line 7, in send\nTimeoutError: smtp.example didn\'t answer'
)
_WORK = (
    ("mail.send", "mail", "high", 5, 0.4),
    ("images.resize", "media", "medium", 3, 1.8),
    ("reports.monthly", "reports", "low", 1, 21.0),
    ("search.index", "default", "medium", 9, 0.06),
)


def busy(site: Site) -> None:
    """Four queues, three workers, an hour of history."""
    with psycopg.connect(site.config.database_url, autocommit=True) as db:
        _workers(db)
        _tasks(db)
        _tallies(db)
        _depths(db)
        _of_pages(db)


def hostile_worker(db: psycopg.Connection, text: str, id_: str) -> None:
    db.execute(
        """INSERT INTO workers
               (id, reported_status, queues, names, capabilities, capacity, current_load, version, host, pid,
                heartbeat_timeout_seconds)
           VALUES (%s, 'active', %s, %s, %s, 4, 1, %s, %s, 1, 86400)""",
        (id_ + text, [text], [text], [text], text, text),
    )


def hostile_task(db: psycopg.Connection, text: str, state: str = "pending") -> str:
    """A task whose every field means harm, as plain SQL lets anybody make one."""
    ended = "now()" if state == "dead_letter" else "NULL"
    row = db.execute(
        f"""INSERT INTO tasks (name, queue, state, kwargs, tags, error, completed_at, started_at, required_capabilities)
            VALUES (%s, %s, %s, %s, %s, %s, {ended}, now(), %s) RETURNING id""",
        (text[:9000], text[:9000], state, json.dumps({text: text}), json.dumps({text: text}), text, [text[:500]]),
    ).fetchone()
    assert row
    return str(row[0])


def _workers(db: psycopg.Connection) -> None:
    names = [name for name, *_ in _WORK]
    for i, (queues, capabilities, capacity, load, status) in enumerate(
        [
            (None, [], 20, 13, "active"),
            (["media"], ["gpu", "ffmpeg"], 4, 4, "active"),
            (None, ["eu"], 10, 2, "draining"),
        ]
    ):
        db.execute(
            """INSERT INTO workers
               (id, reported_status, queues, names, capabilities, capacity, current_load, version, host, pid,
                started_at, heartbeat_timeout_seconds)
               VALUES (%s, %s, %s, %s, %s, %s, %s, '0.1.0', %s, %s, now() - interval '5 hours', 86400)""",
            (
                f"web-{i + 1}-41{i}7-c0ffee0{i}",
                status,
                queues,
                names,
                capabilities,
                capacity,
                load,
                f"web-{i + 1}",
                410 + i,
            ),
        )
    db.execute("INSERT INTO workers (id, reported_status, host, pid) VALUES ('web-9-77-dead0000', 'dead', 'web-9', 77)")
    db.execute(
        "UPDATE leadership SET holder = 'web-1-4107-c0ffee00', term = 12, expires_at = now() + interval '1 hour'"
        " WHERE one"
    )
    db.execute(
        """INSERT INTO leadership (holder, term, expires_at)
           SELECT 'web-1-4107-c0ffee00', 12, now() + interval '1 hour' WHERE NOT EXISTS (SELECT FROM leadership)"""
    )


def _tasks(db: psycopg.Connection) -> None:
    for name, queue, level, count, _ in _WORK:
        priority = {"high": 100, "medium": 0, "low": -10}[level]
        db.execute(
            """INSERT INTO tasks (name, queue, priority, scheduled_at)
               SELECT %s, %s, %s, now() - make_interval(secs => n) FROM generate_series(1, %s) AS n""",
            (name, queue, priority, count * 23),
        )
        db.execute(
            """INSERT INTO tasks (name, queue, priority, state, worker_id, locked_until, started_at, lease_token)
               SELECT %s, %s, %s, 'running', CASE n %% 3 WHEN 0 THEN 'web-1-4107-c0ffee00' WHEN 1 THEN
                      'web-2-4117-c0ffee01' ELSE 'web-3-4127-c0ffee02' END,
                      now() + interval '10 minutes', now() - make_interval(secs => n * 47), 1
               FROM generate_series(1, 6) AS n""",
            (name, queue, priority),
        )
    for n in range(6):
        history = [
            {
                "attempt": 1,
                "token": 1,
                "outcome": "error",
                "worker": f"web-{n % 3 + 1}-41{n % 3}7-c0ffee0{n % 3}",
                "started_at": _ago(db, 60 * n + 90),
                "ended_at": _ago(db, 60 * n + 20),
                "error": "TimeoutError",
            }
        ]
        db.execute(
            """INSERT INTO tasks (name, queue, state, error, retry_count, started_at, completed_at,
                                  next_retry_at, history)
               VALUES ('mail.send', 'mail', %s, %s, 1, now() - make_interval(secs => %s),
                       CASE WHEN %s THEN now() - make_interval(secs => %s) END,
                       CASE WHEN %s THEN NULL ELSE now() + interval '1 hour' END, %s)""",
            (
                "dead_letter" if n % 2 else "failed",
                _ERROR,
                60 * n + 90,
                n % 2 == 1,
                60 * n + 20,
                n % 2 == 1,
                json.dumps(history),
            ),
        )


def _ago(db: psycopg.Connection, seconds: float) -> str:
    row = db.execute("SELECT (now() - make_interval(secs => %s))::text", (seconds,)).fetchone()
    assert row
    return str(row[0])


def _tallies(db: psycopg.Connection) -> None:
    """An hour in which the load rises and falls, as minutes that were folded before."""
    statement = """INSERT INTO stats (start, span, name, queue, level, outcome, reason, count, seconds, waited,
                                        buckets, waits)
                   SELECT date_trunc('minute', now()) - make_interval(mins => %s), 60, %s, %s, %s, %s, '',
                          %s, %s, %s, %s, %s"""
    for minute in range(1, 60):
        for name, queue, level, rate, seconds in _WORK:
            wave = 1 + ((minute * 7) % 13) / 6 + (minute % 29) / 10
            for outcome, share in (
                ("completed", 1.0),
                ("failed", 0.05 if minute % 5 == 0 else 0),
                ("dead_letter", 0.01),
            ):
                count = int(rate * wave * 12 * share)
                if count:
                    row: tuple[Any, ...] = (
                        count,
                        count * seconds,
                        count * 0.2,
                        _spread(count, seconds),
                        _spread(count, 0.1),
                    )
                    db.execute(statement, (minute, name, queue, level, outcome, *row))


def _spread(count: int, seconds: float) -> list[int]:
    middle = next(i for i, bound in enumerate([*BOUNDS, float("inf")]) if bound >= seconds)
    buckets = [0] * (len(BOUNDS) + 1)
    for offset, share in ((-1, 0.3), (0, 0.5), (1, 0.16), (2, 0.04)):
        buckets[min(max(middle + offset, 0), len(BOUNDS))] += round(count * share)
    return buckets


def _depths(db: psycopg.Connection) -> None:
    db.execute(
        """INSERT INTO depths (minute, queue, level, depth, capped, oldest_age_seconds)
           SELECT date_trunc('minute', now()) - make_interval(mins => n), queue, level,
                  x * (2 + sin(n / 7.0 + x))::int + mod(n, 5), false, 10
           FROM generate_series(0, 59) AS n,
                (VALUES ('mail', 'high', 21), ('media', 'medium', 34), ('reports', 'low', 55)) AS q (queue, level, x)"""
    )


def _of_pages(db: psycopg.Connection) -> None:
    """What the leader counts besides: mail is behind for twelve minutes; submissions; attempts by worker; a deploy."""
    db.execute(
        """UPDATE depths SET oldest_age_seconds = 90 + 60 * (12 - age)
           FROM (SELECT minute, queue, level, extract(epoch FROM date_trunc('minute', now()) - minute) / 60 AS age
                 FROM depths) AS old
           WHERE (depths.minute, depths.queue, depths.level) = (old.minute, old.queue, old.level)
             AND old.queue = 'mail' AND age <= 12"""
    )
    db.execute("UPDATE tasks SET scheduled_at = scheduled_at - interval '13 minutes' WHERE queue = 'mail'")
    db.execute(
        """INSERT INTO depths (minute, queue, level, depth, capped, oldest_age_seconds)
           SELECT DISTINCT minute, '', '', 0, false, 0 FROM depths"""
    )
    db.execute(
        """INSERT INTO depths (minute, queue, level, depth, capped, oldest_age_seconds, name)
           SELECT minute, '', level, depth, capped, oldest_age_seconds, 'mail.send' FROM depths WHERE queue = 'mail'"""
    )
    db.execute(
        """INSERT INTO stats (span, start, name, queue, level, outcome, reason, count, seconds, waited, buckets, waits)
           SELECT span, start, name, queue, '', 'submitted', '', count * 11 / 10, 0, 0, '{}', '{}'
           FROM stats WHERE outcome = 'completed' AND worker = ''
           UNION ALL
           SELECT DISTINCT 60, start, '', '', '', 'arrivals_counted', '', 0, 60, 0, '{}'::bigint[], '{}'::bigint[]
           FROM stats WHERE span = 60"""
    )
    db.execute(
        """INSERT INTO stats (span, start, name, queue, level, outcome, reason, count, seconds, waited, buckets, waits,
                              worker)
           SELECT 60, start, '', '', '', outcome, '', sum(count) / 3, sum(seconds), sum(waited),
                  min(buckets), min(waits), w.id
           FROM stats, (VALUES ('web-1-4107-c0ffee00'), ('web-2-4117-c0ffee01')) AS w (id)
           WHERE outcome IN ('completed', 'failed', 'dead_letter') AND span = 60
           GROUP BY start, outcome, w.id"""
    )
    db.execute(
        """INSERT INTO deploys VALUES (now() - interval '50 minutes', now() - interval '40 minutes')
           ON CONFLICT DO NOTHING"""
    )
