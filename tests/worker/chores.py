"""Work for every duty of the leader, and witnesses to who does it.

Each piece of work has a number. A trigger writes down who changed it, in whose term; and while a gate is closed, a
statement that comes to the piece with that number waits there: in the middle of a batch, in the middle of the work.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Self

import psycopg

PIECES = 50
BATCH = 10
FIRST_GATE, SECOND_GATE = 15, 25
"""In the second batch and in the third."""
SILENT_WORKERS = 30
"""The others are known to be dead, and have been for so long that they are forgotten."""

_WITNESSES = """
CREATE TABLE duty_gates (place text PRIMARY KEY);
CREATE TABLE effects (
    number bigserial, duty text, piece int, by text DEFAULT current_setting('application_name'), holder text, term int);

CREATE FUNCTION witness() RETURNS trigger LANGUAGE plpgsql AS $$
DECLARE
    old_row jsonb := to_jsonb(OLD);
    duty text := CASE TG_TABLE_NAME WHEN 'worker_registrations' THEN 'dead workers' WHEN 'snapshots' THEN 'snapshot'
                                    WHEN 'breakers' THEN 'breakers'
                                    ELSE old_row ->> 'name' END;
    piece int := COALESCE(old_row -> 'kwargs' ->> 'piece', old_row ->> 'pid', old_row ->> 'count',
                          old_row ->> 'at_least', '{FIRST_GATE}')::int;
BEGIN
    PERFORM FROM duty_gates WHERE place = duty || ' ' || piece FOR SHARE;
    INSERT INTO effects (duty, piece, holder, term)
        SELECT duty, piece, leadership.holder, leadership.term FROM leadership;
    RETURN COALESCE(NEW, OLD);
END $$;

CREATE TRIGGER witness BEFORE UPDATE OR DELETE ON tasks FOR EACH ROW
    WHEN (OLD.queue = 'chores' AND current_setting('application_name') LIKE 'worker-%') EXECUTE FUNCTION witness();
CREATE TRIGGER witness BEFORE UPDATE OR DELETE ON worker_registrations FOR EACH ROW
    WHEN (OLD.host = 'chores' AND current_setting('application_name') LIKE 'worker-%') EXECUTE FUNCTION witness();
CREATE TRIGGER witness BEFORE DELETE ON stats_deltas FOR EACH ROW
    WHEN (OLD.name = 'stats' AND current_setting('application_name') LIKE 'worker-%') EXECUTE FUNCTION witness();
CREATE TRIGGER witness BEFORE UPDATE ON breakers FOR EACH ROW
    WHEN (current_setting('application_name') LIKE 'worker-%') EXECUTE FUNCTION witness();
CREATE TRIGGER witness BEFORE UPDATE ON snapshots FOR EACH ROW EXECUTE FUNCTION witness();
""".replace("{FIRST_GATE}", str(FIRST_GATE))

# Like the chores, but not due yet, or of another kind: no duty may touch these.
_BYSTANDERS = """
INSERT INTO workers (id, host, last_heartbeat) VALUES ('bystander', 'elsewhere', now() + interval '1 hour');
INSERT INTO tasks (name, idempotency_key) VALUES ('bystander', 'still counts');
INSERT INTO tasks (name, state, next_retry_at) VALUES ('bystander', 'failed', now() + interval '1 hour');
INSERT INTO tasks (name, state, completed_at) VALUES ('bystander', 'dead_letter', now() - interval '29 days'),
    ('bystander', 'completed', now() - interval '29 days');
INSERT INTO tasks (id, name, state, completed_at)
    VALUES ('00000000-0000-7000-8000-ffffffffffff', 'bystander', 'cancelled', now() - interval '90 days');
INSERT INTO tasks (name, state, worker_id, locked_until, started_at, timeout_seconds)
    VALUES ('bystander', 'running', 'bystander', now() + interval '1 hour', now() - interval '1 day', NULL),
           ('bystander', 'running', 'bystander', now() + interval '1 hour', now(), 3600);
"""


@dataclass(frozen=True)
class Chore:
    """Work for one duty."""

    duty: str
    work: str
    """Makes the pieces 1 to PIECES, in the order in which the duty takes them."""
    in_batches: bool = True
    """At most BATCH pieces are done by one statement."""
    goes_on_at_once: bool = True
    """A full batch is followed by the next, without asking in between whether we still lead."""


def _tasks(duty: str, columns: str, values: str) -> str:
    return f"""INSERT INTO tasks (queue, name, kwargs, {columns})
        SELECT 'chores', '{duty}', jsonb_build_object('piece', n), {values} FROM generate_series(1, {PIECES}) AS n"""


CHORES = [
    Chore(
        "dead workers",
        f"""INSERT INTO workers (host, id, pid, reported_status, last_heartbeat)
        SELECT 'chores', 'silent ' || n, n, 'active', now() - interval '1 hour'
        FROM generate_series(1, {SILENT_WORKERS}) AS n
        UNION ALL
        SELECT 'chores', 'long dead ' || n, n, 'dead', now() - interval '2 days'
        FROM generate_series({SILENT_WORKERS + 1}, {PIECES}) AS n""",
        in_batches=False,
        goes_on_at_once=False,
    ),
    Chore(
        "orphans",
        _tasks(
            "orphans",
            "state, worker_id, started_at, locked_until",
            "'running', 'gone', now() - make_interval(secs => n), now() - interval '1 hour'",
        ),
    ),
    Chore(
        "overdue",
        _tasks(
            "overdue",
            "state, worker_id, timeout_seconds, started_at, locked_until",
            "'running', 'bystander', 5, now() - make_interval(hours => 1, secs => n), now() + interval '1 hour'",
        ),
    ),
    Chore("snapshot", "SELECT", in_batches=False, goes_on_at_once=False),
    Chore(
        "stats",
        f"INSERT INTO stats_deltas (name, outcome, count) SELECT 'stats', 'completed', generate_series(1, {PIECES})",
        in_batches=False,
        goes_on_at_once=False,
    ),
    Chore(
        "breakers",
        f"""INSERT INTO breakers (name, state, until, failures, at_least, within, pause, probes)
        SELECT 'chore ' || lpad(n::text, 3, '0'), 'open', now() - interval '1 s', 0.5, n, 60, 60, 1
        FROM generate_series(1, {PIECES}) AS n""",
        in_batches=False,
        goes_on_at_once=False,
    ),
    Chore(
        "idempotency",
        _tasks(
            "idempotency",
            "idempotency_key, idempotency_expires_at",
            "'key ' || n, now() - interval '1 hour' + make_interval(secs => n)",
        ),
    ),
    Chore(
        "dead letters",
        _tasks(
            "dead letters",
            "state, completed_at",
            "'dead_letter', now() - interval '90 days' + make_interval(secs => n)",
        ),
    ),
    Chore(
        "replays",
        _tasks("replays", "state, completed_at", "'dead_letter', now() - interval '1 h' + make_interval(secs => n)")
        + "; INSERT INTO replays (conditions, expected, expected_is_capped, created_by) "
        + "VALUES ('{\"name\": \"replays\"}', 50, false, 'ann')",
    ),
    Chore(
        "retention",
        _tasks(
            "retention",
            "id, state, completed_at",
            "('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, 'completed', now() - interval '90 days'",
        ),
    ),
]


def put_witnesses(db: psycopg.Connection) -> None:
    """Make the gates, the triggers and the bystanders."""
    db.execute(_WITNESSES.encode())
    db.execute(_BYSTANDERS.encode())
    for chore in CHORES:
        # Where all is done at once, there is no third batch to stop in.
        for piece in (FIRST_GATE, SECOND_GATE) if chore.in_batches else (FIRST_GATE,):
            db.execute("INSERT INTO duty_gates VALUES (%s)", (f"{chore.duty} {piece}",))


def clear_away_chores(db: psycopg.Connection) -> None:
    """Begin anew, with nothing done and nothing witnessed."""
    db.execute("DELETE FROM tasks WHERE queue = 'chores'")
    db.execute("DELETE FROM workers WHERE host = 'chores'")
    db.execute("DELETE FROM stats_deltas")
    db.execute("DELETE FROM breakers")
    db.execute("DELETE FROM replays")
    db.execute("DELETE FROM replayed_tasks")
    db.execute("DELETE FROM effects")


def bystanders(db: psycopg.Connection) -> list[object]:
    return [
        *db.execute("SELECT * FROM tasks WHERE name = 'bystander' ORDER BY id"),
        *db.execute("SELECT * FROM workers WHERE id = 'bystander'"),
    ]


class Gate:
    """Keeps a duty's statements from going past one piece of work until it is opened, or its session ends."""

    def __init__(self, url: str, chore: Chore, piece: int) -> None:
        self._session = psycopg.connect(url)
        self._session.execute("SELECT FROM duty_gates WHERE place = %s FOR UPDATE", (f"{chore.duty} {piece}",))
        self.pid = self._session.info.backend_pid

    def open(self) -> None:
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.open()
