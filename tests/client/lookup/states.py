"""Tasks in each state, without a worker."""

from __future__ import annotations

from uuid import UUID

import psycopg

SET_TO = {
    "pending": "state = 'pending'",
    "running": "state = 'running', worker_id = 'w', locked_until = now() + interval '1 minute', started_at = now()",
    "completed": "state = 'completed', completed_at = now(), result = '{\"value\": 42}'",
    "failed": "state = 'failed', next_retry_at = now() + interval '1 hour', error = 'once'",
    "cancelled": "state = 'cancelled', completed_at = now()",
    "dead_letter": "state = 'dead_letter', completed_at = now(), error = 'Traceback: boom at line 1'",
}


def put(db: psycopg.Connection, task_id: UUID, state: str) -> None:
    db.execute(f"UPDATE tasks SET {SET_TO[state]} WHERE id = %s", [task_id])
